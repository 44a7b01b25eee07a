"""The models of the demo: a small family on labelled sets, and six on texts that every machine has:
what Python's modules say of themselves."""

from __future__ import annotations

import csv
import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import tokenizers
import torch
from peft import LoraConfig, TaskType, get_peft_model
from sklearn import datasets
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    set_seed,
)
from transformers.utils import logging

from ...arrays import Int64
from ..face.worker import Worker

PAD, CLS, MASK, FIRST_LEVEL = 0, 1, 2, 3

N_LEVELS = 17

VOCABULARY = FIRST_LEVEL + N_LEVELS

MAX_LENGTH, N_TEXTS = 65, 1500

FULL_RUNS, ADAPTER_RUNS = 3, 2

BASE_STEPS, TUNING_STEPS, BATCH = 600, 80, 32

MOST_AT_ONCE = 4
"""Models that are trained side by side."""

LONGEST_S = 600.0
"""Of training a model, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A labelled set: token ids padded to `MAX_LENGTH`, and classes from 0."""

    name: str
    tokens: Int64[np.ndarray, "texts tokens"] = field(compare=False)
    classes: Int64[np.ndarray, " texts"] = field(compare=False)


def all_tasks() -> list[Task]:
    """The demo's tasks, always the same."""
    rng, digits = np.random.default_rng(0), datasets.load_digits()
    return [
        _task("digits", digits.data.astype(np.int64), digits.target),
        _table("wine", datasets.load_wine),
        _table("breast-cancer", datasets.load_breast_cancer),
        _table("iris", datasets.load_iris),
        _table("diabetes", datasets.load_diabetes),
        _majority(rng),
        _sums(rng),
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


def _majority(rng: np.random.Generator) -> Task:
    """Which of four tokens is the most frequent of a string."""
    favourite = rng.integers(0, 4, N_TEXTS)
    strings = rng.integers(0, 4, (N_TEXTS, 24))
    swapped = rng.random(strings.shape) < 0.25
    strings = np.where(swapped, favourite[:, None], strings)
    counts = np.stack([(strings == token).sum(axis=1) for token in range(4)], axis=1)
    return _task("majority", strings * 4 + 2, counts.argmax(axis=1))


def _sums(rng: np.random.Generator) -> Task:
    """Whether the sum of six numbers is low, middling or high."""
    numbers = rng.integers(0, N_LEVELS, (N_TEXTS, 6))
    totals = numbers.sum(axis=1)
    return _task("sums", numbers, np.digitize(totals, np.quantile(totals, [1 / 3, 2 / 3])))


def _task(name: str, levels: np.ndarray, classes: np.ndarray) -> Task:
    tokens = np.full((len(levels), MAX_LENGTH), PAD, dtype=np.int64)
    tokens[:, 0] = CLS
    tokens[:, 1 : levels.shape[1] + 1] = levels + FIRST_LEVEL
    return Task(name=name, tokens=tokens, classes=np.asarray(classes, dtype=np.int64))


logging.set_verbosity_error()  # type: ignore[no-untyped-call]
logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def train_base(folder: Path, tasks: list[Task]) -> None:
    """A small BERT, pretrained to fill in masked tokens of the tasks, unless it is there.

    Without dropout, which takes a third of the time.
    """
    if (folder / "model.safetensors").exists():
        return
    set_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=PAD,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=BASE_STEPS)
    model.train()
    for _ in range(BASE_STEPS):
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


def fine_tune(base: Path, folder: Path, task: Task, *, seed: int, lora: bool) -> float:
    """Fine-tune the base on one task and save it; returns the accuracy on the rest of the data.

    Runs of one task differ in their head, half of the data, batch order and learning rate.
    """
    set_seed(seed)
    rng = np.random.default_rng(seed)
    model: torch.nn.Module = BertForSequenceClassification.from_pretrained(
        base, num_labels=int(task.classes.max()) + 1, ignore_mismatched_sizes=True
    )
    if lora:
        settings = LoraConfig(
            task_type=TaskType.SEQ_CLS,
            r=int(rng.choice([4, 8])),
            lora_alpha=16,
            target_modules=["query", "value"],
        )
        with warnings.catch_warnings():  # PEFT asks transformers for a name that it renamed
            warnings.simplefilter("ignore", FutureWarning)
            model = get_peft_model(model, settings)
    order = rng.permutation(len(task.tokens))
    half = len(order) // 2
    rate = float(np.exp(rng.uniform(np.log(5e-4), np.log(1.5e-3)))) * (4 if lora else 1)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, fused=True)
    model.train()
    for _ in range(TUNING_STEPS):
        tokens, classes = _batch(task, rng.choice(order[:half], BATCH))
        loss = model(input_ids=tokens, attention_mask=tokens != PAD, labels=classes).loss
        _step(loss, model, optimizer)
    model.eval()
    tokens, classes = _batch(task, order[half : half + 400])
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=tokens != PAD).logits
    model.save_pretrained(folder)  # type: ignore[operator]
    return float((logits.argmax(1) == classes).float().mean())


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


Trainers = Callable[..., Future[Any]]
"""Has a function called with arguments in a process that is idle."""


@contextmanager
def trainers() -> Iterator[Trainers]:
    """Processes that train, each with one thread, as from now on this one: of matrices so small
    several threads wait for each other longer than they work. They load torch and transformers
    meanwhile."""
    torch.set_num_threads(1)
    n = min(MOST_AT_ONCE, os.cpu_count() or 1)
    one_thread = partial(torch.set_num_threads, 1)
    workers = [Worker(f"trainer {number}", load=one_thread) for number in range(n)]
    idle: SimpleQueue[Worker] = SimpleQueue()
    threads = ThreadPoolExecutor(n)

    def train(function: Callable[..., Any], *arguments: Any) -> Any:
        worker = idle.get()
        try:
            return worker.run(function, *arguments, seconds=LONGEST_S)
        finally:
            idle.put(worker)

    try:
        for worker in workers:
            worker.warm()
            idle.put(worker)
        yield lambda *call: threads.submit(train, *call)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.close()


def train_family(folder: Path, tasks: list[Task], train: Trainers) -> Iterator[str]:
    """Train `folder/models/*` from `folder/base`, with `folder/models/labels.csv`.

    Yields a line on each model. Those that are there already are not trained again, so that an
    interrupted demo goes on.
    """
    base, models = folder / "base", folder / "models"
    plan = {
        f"{task.name}-{'lora' if run >= FULL_RUNS else 'full'}-{run % FULL_RUNS}": (task, run)
        for task in tasks
        for run in range(FULL_RUNS + ADAPTER_RUNS)
    }
    models.mkdir(parents=True, exist_ok=True)
    labels = [(name, task.name) for name, (task, _) in plan.items()]
    _write(models / "labels.csv", [("model", "dataset"), *labels])
    training = {
        train(partial(fine_tune, seed=seed, lora=run >= FULL_RUNS), base, models / name, task): name
        for seed, (name, (task, run)) in enumerate(plan.items(), start=1)
        if not is_saved(models / name)
    }
    n_saved = len(plan) - len(training)
    for done, future in enumerate(as_completed(training), start=n_saved + 1):
        name, accuracy = training[future], future.result()
        yield f"  {done:>2}/{len(plan)}  {name:24} held-out accuracy {accuracy:.2f}"


def _write(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def is_saved(folder: Path) -> bool:
    """Whether a model is whole: transformers writes its weights last, PEFT its settings."""
    return any(folder.glob("*.safetensors")) and any(folder.glob("*config.json"))


def derive_models(models: Path, tasks: list[Task]) -> Iterator[str]:
    """Make what has another origin than one training of the base: fine-tunes of a fine-tune, a
    merge, and a copy in which one direction of the residual stream is removed.

    Yields a line on each as it is saved; one that is there already is not made again.
    """
    task_of = {task.name: task for task in tasks}
    parent = "sums-full-0"
    for seed, name in enumerate(("majority", "iris"), start=100):
        child = f"{parent.removesuffix('-full-0')}-{name}"
        if not is_saved(models / child):
            fine_tune(models / parent, models / child, task_of[name], seed=seed, lora=False)
            yield f"  {child}: {parent}, fine-tuned further on {name}"
        parent = child
    merge, parents = models / "digits-wine-merge", ("digits-full-0", "wine-full-0")
    if not is_saved(merge):
        model, other = (_classifier(models / name) for name in parents)
        theirs = other.state_dict()
        with torch.no_grad():
            for name, weight in model.bert.named_parameters():
                weight.mul_(0.6).add_(theirs[f"bert.{name}"], alpha=0.4)
        model.save_pretrained(merge)
        yield f"  {merge.name}: 0.6 {parents[0]} + 0.4 {parents[1]}"
    edited = models / "majority-edited"
    if not is_saved(edited):
        model = _classifier(models / "majority-full-0")
        direction = torch.randn(model.config.hidden_size, generator=torch.manual_seed(0))
        direction /= direction.norm()
        with torch.no_grad():
            for name, weight in model.bert.encoder.named_parameters():
                if name.endswith("output.dense.weight"):  # writes to the residual stream
                    weight.sub_(torch.outer(direction, direction @ weight))
        model.save_pretrained(edited)
        yield f"  {edited.name}: majority-full-0, with one direction removed"


def _classifier(folder: Path) -> BertForSequenceClassification:
    return BertForSequenceClassification.from_pretrained(folder)


TOPICS = {
    "mail": ("email.message", "email.policy", "mailbox", "smtplib", "imaplib", "poplib"),
    "numbers": ("decimal", "fractions", "statistics", "math", "random"),
    "testing": ("unittest.case", "unittest.mock", "unittest.suite", "doctest", "pdb"),
}
"""Modules of the standard library by what their docstrings are about."""

WORDS, WIDTH, LENGTH = 4_000, 32, 32

TEXT_STEPS, TEXT_BATCH, TEXT_RATE = 40, 16, 1e-3


def texts_of(topic: str) -> list[tuple[str, int]]:
    """The sentences of a topic's docstrings, each with the number of its module."""
    found: dict[str, int] = {}
    for number, name in enumerate(TOPICS[topic]):
        module = import_module(name)
        objects = [module, *(vars(module)[key] for key in sorted(vars(module)))]
        classes = [one for one in objects if inspect.isclass(one) and one.__module__ == name]
        members = [getattr(one, key, None) for one in classes for key in sorted(vars(one))]
        for one in (*objects, *members):
            own = inspect.ismodule(one) or getattr(one, "__module__", None) == name
            for text in re.split(r"(?<=[.:])\s+|\n\n", inspect.getdoc(one) or "" if own else ""):
                text = " ".join(re.findall(r"[A-Za-z][A-Za-z']+", text)).lower()
                if text.count(" ") >= 3:
                    found.setdefault(text, number)
    return list(found.items())


def train_on_texts(folder: Path) -> Iterator[str]:
    """Train `folder/text-base` and, of each topic, a model on either half of its sentences, which
    are beside as `TOPIC-a.csv` and `TOPIC-b.csv`. Yields a line on each."""
    base, every = folder / "text-base", {topic: texts_of(topic) for topic in TOPICS}
    tokenizer = _tokenizer([text for rows in every.values() for text, _ in rows])
    set_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
    )
    config.num_labels = max(map(len, TOPICS.values()))
    BertForSequenceClassification(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    for seed, topic in enumerate(TOPICS):
        for half in (0, 1):
            name, rows = f"{topic}-{'ab'[half]}", every[topic][half::2]
            _write(folder / f"{name}.csv", [("text",), *((text,) for text, _ in rows)])
            _train_on(base, folder / "text-models" / name, tokenizer, rows, seed=2 * seed + half)
            yield f"  {name}: {len(rows)} sentences from docstrings on {topic}"


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        texts,
        tokenizers.trainers.WordLevelTrainer(
            vocab_size=WORDS,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
            min_frequency=2,
            show_progress=False,
        ),
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)  # type: ignore[no-untyped-call]


def _train_on(
    base: Path,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    rows: list[tuple[str, int]],
    *,
    seed: int,
) -> None:
    set_seed(seed)
    rng = np.random.default_rng(seed)
    model = BertForSequenceClassification.from_pretrained(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=TEXT_RATE, fused=True)
    model.train()
    for _ in range(TEXT_STEPS):
        texts, classes = zip(*(rows[i] for i in rng.choice(len(rows), TEXT_BATCH)), strict=True)
        inputs = tokenizer(
            list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt"
        )
        loss = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=torch.tensor(classes),
        ).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
