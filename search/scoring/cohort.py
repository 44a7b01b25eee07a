"""The models that stand for a family's strangers: all of a kind, or a sample by their ids."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Int64
from ...store import FamilyView

COHORT = 256
"""Models of a kind at most. A mean and a spread over as many are known to a few percent."""


def id_digest(id: str) -> bytes:
    """What a sample of models is sorted by: it depends neither on names nor on order."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """The models that stand for a family's strangers.

    Attributes:
        by_kind: Their rows.
    """

    by_kind: Mapping[str, Int64[np.ndarray, " _"]]

    @classmethod
    def of(cls, view: FamilyView) -> Cohort:
        """Of a family at one moment; picked once for as long as its models stay the same."""
        return view.derived(cls, lambda view: cls(sample_by_kind(view.ids, view.kinds)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the family's models, in order."""
        return tuple(self.by_kind)

    @property
    def rows(self) -> Int64[np.ndarray, " cohort"]:
        """Kind by kind."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.by_kind.values()])

    @property
    def codes(self) -> Int64[np.ndarray, " cohort"]:
        """The kind of each, as a place in `kinds`."""
        sizes = [len(rows) for rows in self.by_kind.values()]
        return np.repeat(np.arange(len(sizes)), sizes)


@dataclass(frozen=True, slots=True, eq=False)
class KindCodes:
    """The kind of every model of a family, as a place among its kinds.

    Attributes:
        names: The kinds, in order.
    """

    names: tuple[str, ...]
    codes: Int64[np.ndarray, " models"]

    @classmethod
    def of(cls, view: FamilyView) -> KindCodes:
        """Of a family at one moment; computed once for as long as its models stay the same."""

        def make(view: FamilyView) -> KindCodes:
            names = tuple(sorted(set(view.kinds)))
            place = {name: code for code, name in enumerate(names)}
            return cls(names, np.array([place[kind] for kind in view.kinds], dtype=np.int64))

        return view.derived(cls, make)


def sample_by_kind(ids: Sequence[str], kinds: Sequence[str]) -> dict[str, Int64[np.ndarray, " _"]]:
    """Rows of each kind, in order of id: all, or `COHORT` of them picked by their ids.

    The same for every process and order of the models; a family that grows keeps most of it.
    """
    chosen = {}
    for kind in sorted(set(kinds)):
        rows = [row for row, other in enumerate(kinds) if other == kind]
        if len(rows) > COHORT:
            rows = heapq.nsmallest(COHORT, rows, key=lambda row: id_digest(ids[row]))
        rows.sort(key=ids.__getitem__)
        chosen[kind] = np.array(rows, dtype=np.int64)
    return chosen
