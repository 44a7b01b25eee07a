"""Text sets: a CSV file each, and sets that are cut out of one by its classes or its texts."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows of one file that make a set.

    Attributes:
        classes: Labels that are kept; all, where there are none.
        holds: What a text must be.
    """

    file: str
    classes: tuple[str, ...] = ()
    holds: Callable[[str], bool] = bool


CUTS = {
    "agnews-world-sports": Cut("agnews", ("0", "1")),
    "agnews-business-science": Cut("agnews", ("2", "3")),
    "trec-descriptions": Cut("trec", ("0", "1", "2")),
    "trec-facts": Cut("trec", ("3", "4", "5")),
    "emotion-anger-sadness": Cut("tweet_emotion", ("0", "3")),
    "emotion-joy-optimism": Cut("tweet_emotion", ("1", "2")),
    "irony-replies": Cut("tweet_irony", holds=lambda text: text.startswith("@")),
    "irony-posts": Cut("tweet_irony", holds=lambda text: not text.startswith("@")),
    "mr-short": Cut("mr", holds=lambda text: len(text) < 110),
    "mr-long": Cut("mr", holds=lambda text: len(text) >= 110),
    "mpqa-words": Cut("mpqa", holds=lambda text: len(text.split()) <= 2),
    "mpqa-phrases": Cut("mpqa", holds=lambda text: len(text.split()) > 2),
}
"""Twelve sets of six files: topics, kinds of question, feelings, kinds of post, lengths."""


def read_set(folder: Path, name: str) -> list[tuple[str, str]]:
    """The (text, class) rows of a set: a cut, or the file of that name."""
    cut = CUTS.get(name) or Cut(name)
    with (folder / f"{cut.file}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    return [
        (text, label)
        for text, label in rows
        if (not cut.classes or label in cut.classes) and cut.holds(text)
    ]


BASE_SHARE = 5
"""Every fifth row of a set trains the causal family's base, and none of its fine-tunes."""


def rows_of_half(n_rows: int, half: int | None, *, causal: bool) -> np.ndarray:
    """The rows of a set, or of one half of it, in the order of a fixed permutation."""
    chosen = np.random.default_rng(0).permutation(n_rows)
    if causal:
        chosen = chosen[np.arange(n_rows) % BASE_SHARE > 0]
    return chosen if half is None else chosen[half::2]


def base_texts(folder: Path) -> list[str]:
    """The texts of all sets that the causal family's base is trained on."""
    texts = []
    for name in CUTS:
        rows = read_set(folder, name)
        order = np.random.default_rng(0).permutation(len(rows))
        texts += [rows[place][0] for place in order[::BASE_SHARE]]
    return texts
