"""Scores among some models of a family, and how some are picked."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float64, Int64

from ..precision import TIE_DECIMALS, LabelledFamily


def scores_between(
    family: LabelledFamily,
    rows: Int64[np.ndarray, " queries"],
    columns: Int64[np.ndarray, " reference"],
) -> Float64[np.ndarray, "queries reference"]:
    """Cosines of some models with some others, as `LabelledFamily.score_block` has them."""
    if family.scores is not None:
        cosines = family.scores[np.ix_(rows, columns)]
    else:
        vectors = family.vectors
        cosines = vectors[rows].astype(np.float64) @ vectors[columns].astype(np.float64).T
    rounded: Float64[np.ndarray, "queries reference"] = np.round(cosines, TIE_DECIMALS)
    return rounded


def by_hash(id: str) -> bytes:
    """What a sample is sorted by: unrelated to names and to order."""
    return hashlib.sha256(id.encode()).digest()
