"""All runs of the plan, two at a time, then what needs no training: saves in half, merges."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from .base import base_folder, small_base
from .plan import DERIVED_KINDS, KINDS, SETTINGS, Plan, Run, planned, shortened


def build(
    out: Path,
    texts: Path,
    base: Path | None,
    kinds: Iterable[str],
    sets: Iterable[str],
    plan: Plan,
    runs: int | None,
    most_steps: int | None,
    workers: int,
) -> None:
    """Train what is missing under `out` and write its labels.csv. Killed, it goes on.

    Without a base it is all-MiniLM-L6-v2, or one that is trained first, where the plan names it.
    Labels: model, dataset, run; merges carry both parents' datasets in the columns that
    the index ignores.
    """
    names = sorted(sets) or plan.sets or sorted(path.stem for path in texts.glob("*.csv"))
    wanted = planned(plan, [kind for kind in kinds if kind in KINDS], names, runs)
    if most_steps is not None:
        wanted = [shortened(run, most_steps) for run in wanted]
    missing = [run for run in wanted if not (out / run.model).exists()]
    for kind in {run.kind for run in missing}:
        (out / kind).mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        if base is None:
            base = small_base(out) if plan.base else base_folder()
            if plan.base:
                pool.submit(_train_base, plan.base, texts, base).result()
        jobs = {pool.submit(_train, run, texts, out, base): run for run in missing}
        for done, job in enumerate(as_completed(jobs), start=1):
            job.result()
            seconds = time.monotonic() - start
            print(f"{done}/{len(jobs)} {jobs[job].model} {seconds:.0f} s", flush=True)
        for kind in kinds:
            if kind in DERIVED_KINDS:
                pool.submit(_derive, kind, out).result()
    write_labels(out)


def _end_with_parent() -> None:
    """Have a worker end when this process is gone; the pool's own pipe does not tell it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _train_base(name: str, texts: Path, base: Path) -> None:
    from .small_bases import train_base

    train_base(name, texts, base)


def _train(run: Run, texts: Path, out: Path, base: Path) -> None:
    """Train in a worker: only workers load torch and transformers."""
    from .training import train

    train(run, texts, out, base)


def _derive(kind: str, out: Path) -> None:
    from .derived import make_derived

    make_derived(kind, out)


def write_labels(out: Path) -> None:
    """labels.csv from the settings beside each model."""
    with (out / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "dataset", "author", "run", "parents"])
        for path in sorted(out.glob(f"*/*/{SETTINGS}")):
            settings = json.loads(path.read_text("utf-8"))
            model = path.parent.relative_to(out).as_posix()
            parents = settings.get("parents", [])
            dataset = settings.get("dataset") or (_dataset(settings) if not parents else "")
            writer.writerow([model, dataset, "", settings.get("run", model), " ".join(parents)])


def _dataset(settings: dict[str, object]) -> str:
    fields = {k: v for k, v in settings.items() if k not in ("last_loss", "lora_targets")}
    return Run(**fields).dataset  # type: ignore[arg-type]
