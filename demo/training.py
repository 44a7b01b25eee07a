"""The demo's family on disk: seven tasks, one small base, its fine-tunes and the labels file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, TaskType, get_peft_model
from sklearn import datasets
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, set_seed
from transformers.utils import logging

from ..arrays import Int64

PAD, CLS, MASK, FIRST_LEVEL = 0, 1, 2, 3
N_LEVELS = 17
VOCABULARY = FIRST_LEVEL + N_LEVELS
MAX_LENGTH = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A labelled set: token ids padded to `MAX_LENGTH`, and classes from 0."""

    name: str
    tokens: Int64[np.ndarray, "texts tokens"] = field(compare=False)
    classes: Int64[np.ndarray, " texts"] = field(compare=False)

    @property
    def n_classes(self) -> int:
        return int(self.classes.max()) + 1


def all_tasks(seed: int = 0) -> list[Task]:
    """The demo's tasks, the same for the same seed."""
    rng, digits = np.random.default_rng(seed), datasets.load_digits()
    return [
        _task("digits", digits.data.astype(np.int64), digits.target),
        _table("wine", datasets.load_wine),
        _table("breast-cancer", datasets.load_breast_cancer),
        _table("iris", datasets.load_iris),
        _table("diabetes", datasets.load_diabetes),
        _majority("majority", rng),
        _sums("sums", rng),
    ]


def _table(name: str, load: Callable[[], datasets._base.Bunch]) -> Task:
    """Each feature as its quantile level; a numeric target as low, middle, high."""
    data = load()
    ranks = data.data.argsort(axis=0).argsort(axis=0)
    levels = ranks * N_LEVELS // len(ranks)
    classes = data.target
    if len(np.unique(classes)) > 10:
        classes = np.digitize(classes, np.quantile(classes, [1 / 3, 2 / 3]))
    return _task(name, levels, classes)


def _majority(name: str, rng: np.random.Generator, n: int = 1500, length: int = 24) -> Task:
    """Which of four tokens is the most frequent of a string."""
    favourite = rng.integers(0, 4, n)
    strings = rng.integers(0, 4, (n, length))
    swapped = rng.random((n, length)) < 0.25
    strings = np.where(swapped, favourite[:, None], strings)
    counts = np.stack([(strings == token).sum(axis=1) for token in range(4)], axis=1)
    return _task(name, strings * 4 + 2, counts.argmax(axis=1))


def _sums(name: str, rng: np.random.Generator, n: int = 1500) -> Task:
    """Whether the sum of six numbers is low, middling or high."""
    numbers = rng.integers(0, N_LEVELS, (n, 6))
    totals = numbers.sum(axis=1)
    return _task(name, numbers, np.digitize(totals, np.quantile(totals, [1 / 3, 2 / 3])))


def _task(name: str, levels: np.ndarray, classes: np.ndarray) -> Task:
    tokens = np.full((len(levels), MAX_LENGTH), PAD, dtype=np.int64)
    tokens[:, 0] = CLS
    tokens[:, 1 : levels.shape[1] + 1] = levels + FIRST_LEVEL
    return Task(name=name, tokens=tokens, classes=np.asarray(classes, dtype=np.int64))


BATCH = 32

logging.set_verbosity_error()  # type: ignore[no-untyped-call]
logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def train_base(folder: Path, tasks: list[Task], *, steps: int, seed: int = 0) -> None:
    """A small BERT, pretrained to fill in masked tokens of all tasks' sequences."""
    set_seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=PAD,
    )
    model = BertForMaskedLM(config)
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        task = tasks[rng.integers(len(tasks))]
        tokens = torch.from_numpy(task.tokens[rng.integers(0, len(task.tokens), BATCH)])
        tokens = tokens[:, : int((tokens != PAD).sum(1).max())]
        hidden = (torch.rand(tokens.shape) < 0.25) & (tokens >= FIRST_LEVEL)
        labels = torch.where(hidden, tokens, -100)
        inputs = torch.where(hidden, MASK, tokens)
        loss = model(input_ids=inputs, attention_mask=tokens != PAD, labels=labels).loss
        _step(loss, model, optimizer)
        schedule.step()
    model.save_pretrained(folder)


def fine_tune(base: Path, folder: Path, task: Task, *, seed: int, steps: int, lora: bool) -> float:
    """Fine-tune the base on one task and save it; returns the accuracy on the rest of the data.

    Runs of one task differ in their head, half of the data, batch order and learning rate.
    """
    set_seed(seed)
    rng = np.random.default_rng(seed)
    model: torch.nn.Module = BertForSequenceClassification.from_pretrained(
        base, num_labels=task.n_classes
    )
    if lora:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.SEQ_CLS,
                r=int(rng.choice([4, 8])),
                lora_alpha=16,
                target_modules=["query", "value"],
            ),
        )
    order = rng.permutation(len(task.tokens))
    half = len(order) // 2
    rate = float(np.exp(rng.uniform(np.log(5e-4), np.log(1.5e-3)))) * (4 if lora else 1)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    model.train()
    for rows in _batches(order[:half], steps, rng):
        tokens, classes = _batch(task, rows)
        loss = model(input_ids=tokens, attention_mask=tokens != PAD, labels=classes).loss
        _step(loss, model, optimizer)
    accuracy = _accuracy(model, task, order[half : half + 400])
    model.save_pretrained(folder)  # type: ignore[operator]
    return accuracy


def _accuracy(model: torch.nn.Module, task: Task, rows: np.ndarray) -> float:
    model.eval()
    tokens, classes = _batch(task, rows)
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=tokens != PAD).logits
    return float((logits.argmax(1) == classes).float().mean())


def _batches(rows: np.ndarray, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(steps):
        yield rng.choice(rows, BATCH)


def _batch(task: Task, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(task.tokens[rows])
    length = int((tokens != PAD).sum(1).max())
    assert int(tokens[0, 0]) == CLS
    return tokens[:, :length], torch.from_numpy(task.classes[rows])


def _step(loss: torch.Tensor, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


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
