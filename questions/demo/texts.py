"""Models trained on texts that every machine has: what Python's modules say of themselves."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    set_seed,
)

TOPICS = {
    "mail": ("email.message", "email.policy", "mailbox", "smtplib", "imaplib", "poplib"),
    "numbers": ("decimal", "fractions", "statistics", "math", "random"),
    "testing": ("unittest.case", "unittest.mock", "unittest.suite", "doctest", "pdb"),
}
"""Modules of the standard library by what their docstrings are about."""

VOCABULARY, WIDTH, LENGTH = 4_000, 32, 32

STEPS, BATCH, RATE = 40, 16, 1e-3


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
            _write(folder / f"{name}.csv", [text for text, _ in rows])
            _train(base, folder / "text-models" / name, tokenizer, rows, seed=2 * seed + half)
            yield f"  {name}: {len(rows)} sentences from docstrings on {topic}"


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        texts,
        trainers.WordLevelTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
            min_frequency=2,
            show_progress=False,
        ),
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)  # type: ignore[no-untyped-call]


def _write(path: Path, texts: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in texts)])


def _train(
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    model.train()
    for _ in range(STEPS):
        texts, classes = zip(*(rows[i] for i in rng.choice(len(rows), BATCH)), strict=True)
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
