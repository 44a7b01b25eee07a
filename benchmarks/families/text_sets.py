"""Text sets: a CSV file each, and sets that are cut out of one by its classes or its texts."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


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
    cut = CUTS.get(name, Cut(name))
    with (folder / f"{cut.file}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    return [
        (text, label)
        for text, label in rows
        if (not cut.classes or label in cut.classes) and cut.holds(text)
    ]
