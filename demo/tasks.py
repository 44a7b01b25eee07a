"""Seven different classification tasks as token sequences, from scikit-learn's bundled sets
and two made ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn import datasets

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
