"""The demo's family on disk: one base, runs of every task, and the labels file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .tasks import Task, all_tasks
from .training import fine_tune, train_base

FULL_RUNS = 3
ADAPTER_RUNS = 2
BASE_STEPS = 600
TUNING_STEPS = 80


@dataclass(frozen=True, slots=True)
class Trained:
    """One model that was just trained: its id, its task, its held-out accuracy."""

    model: str
    task: str
    accuracy: float
    done: int
    total: int


def train_family(folder: Path, *, seed: int = 0) -> Iterator[Trained]:
    """Train `folder/base`, then `folder/models/*` with `folder/models/labels.csv`.

    Yields each fine-tune as it is saved. Models that are there already are not trained
    again, so that an interrupted demo goes on.
    """
    tasks = all_tasks(seed)
    base = folder / "base"
    if not (base / "model.safetensors").exists():
        train_base(base, tasks, steps=BASE_STEPS, seed=seed)
    plan = [(task, run) for task in tasks for run in range(FULL_RUNS + ADAPTER_RUNS)]
    _write_labels(folder / "models", plan)
    for done, (task, run) in enumerate(plan, start=1):
        name = _name(task, run)
        target = folder / "models" / name
        if any(target.glob("*.safetensors")):
            continue
        is_lora, own_seed = run >= FULL_RUNS, seed * 1000 + done
        accuracy = fine_tune(base, target, task, seed=own_seed, steps=TUNING_STEPS, lora=is_lora)
        yield Trained(name, task.name, accuracy, done, len(plan))


def _write_labels(folder: Path, plan: list[tuple[Task, int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "dataset"])
        writer.writerows([_name(task, run), task.name] for task, run in plan)


def _name(task: Task, run: int) -> str:
    kind = "lora" if run >= FULL_RUNS else "full"
    return f"{task.name}-{kind}-{run % FULL_RUNS}"
