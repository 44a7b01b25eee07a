"""The models that stand for a family's strangers: all of a kind, or a sample by their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ...arrays import Int64

COHORT = 256
"""Models of a kind at most. A mean and a spread over as many are known to a few percent."""


def id_digest(id: str) -> bytes:
    """What a sample of models is sorted by: it depends neither on names nor on order."""
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()


def sample_by_kind(ids: Sequence[str], kinds: Sequence[str]) -> dict[str, Int64[np.ndarray, " _"]]:
    """Rows of each kind, in order of id: all, or `COHORT` of them picked by their ids.

    The same for every process and order of the models; a family that grows keeps most of it.
    """
    chosen = {}
    for kind in sorted(set(kinds)):
        rows = [row for row, other in enumerate(kinds) if other == kind]
        if len(rows) > COHORT:
            rows.sort(key=lambda row: id_digest(ids[row]))
        rows = sorted(rows[:COHORT], key=ids.__getitem__)
        chosen[kind] = np.array(rows, dtype=np.int64)
    return chosen
