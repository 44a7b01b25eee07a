"""Families cut out of what was built: small ones, mixed ones, ones that one set dominates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .text_sets import CUTS

MIXED = ("halves", "lora", "few-steps", "frozen")
SIZES = (8, 20)
DOMINATED = (0.5, 0.7, 0.9)
DOMINATED_SIZE = 20
DRAWS = 5
"""Random families of each kind."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Some of the built models.

    Attributes:
        name: Equal for the draws of one kind of family.
        rows: Of the models, rising.
    """

    name: str
    rows: np.ndarray


def selections(
    kinds: Sequence[str], datasets: Sequence[str], dominating: str
) -> Iterator[Selection]:
    """Every family that the models allow.

    Args:
        kinds: How each model was trained: its folder.
        datasets: Of each model; halves of one set are that set.
        dominating: The set with models to spare.
    """
    names, sets = np.array(kinds), np.array(datasets)
    rows = np.arange(len(names))
    for name, chosen in (("everything", rows), ("mixed", np.flatnonzero(np.isin(names, MIXED)))):
        if _has_siblings(sets[chosen]):
            yield Selection(name, chosen)
    rng = np.random.default_rng(0)
    apart = np.flatnonzero(np.isin(sets, _one_of_each_file(sets)))
    if _has_siblings(sets[apart]):
        yield Selection("one set of each file", apart)
    for _ in range(DRAWS if len(apart) > DOMINATED_SIZE else 0):
        chosen = rng.choice(apart, DOMINATED_SIZE, replace=False)
        yield Selection(f"{DOMINATED_SIZE} of these", np.sort(chosen))
    for size in SIZES:
        for _ in range(DRAWS):
            chosen = _pairs(sets, rng, size // 2, ())
            if len(chosen) == size:
                yield Selection(f"{size} models", chosen)
    for share in DOMINATED:
        n_own = round(share * DOMINATED_SIZE)
        own = np.flatnonzero(sets == dominating)
        if len(own) < n_own:
            continue
        for _ in range(DRAWS):
            others = _pairs(sets, rng, (DOMINATED_SIZE - n_own) // 2, (dominating,))
            chosen = np.concatenate([rng.choice(own, n_own, replace=False), others])
            yield Selection(f"{share:.0%} of one set", np.sort(chosen))


def _has_siblings(sets: np.ndarray) -> bool:
    return any(name and count > 1 for name, count in Counter(sets.tolist()).items())


def _one_of_each_file(sets: np.ndarray) -> list[str]:
    """The first cut of every file: sets of one file are alike."""
    first: dict[str, str] = {}
    for name in np.unique(sets).tolist():
        if name:
            first.setdefault(CUTS[name].file if name in CUTS else name, name)
    return list(first.values())


def _pairs(
    sets: np.ndarray, rng: np.random.Generator, n_sets: int, without: Sequence[str]
) -> np.ndarray:
    """Two models each of some sets."""
    several = [
        name
        for name in np.unique(sets).tolist()
        if name and name not in without and (sets == name).sum() > 1
    ]
    chosen = rng.permutation(several)[:n_sets]
    pairs = [rng.choice(np.flatnonzero(sets == name), 2, replace=False) for name in chosen]
    return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *pairs]))
