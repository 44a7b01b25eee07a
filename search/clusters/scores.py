"""Scores among some models of a family, and how some are picked."""

from __future__ import annotations

import hashlib

import numpy as np

from ...arrays import Float64, Int64
from ..labelled import TIE_DECIMALS, LabelledModels


def scores_between(
    family: LabelledModels,
    rows: Int64[np.ndarray, " queries"],
    columns: Int64[np.ndarray, " reference"],
) -> Float64[np.ndarray, "queries reference"]:
    """Cosines of some models with some others, as `LabelledModels.score_block` has them."""
    cosines = cosines_between(family, rows, columns)
    rounded: Float64[np.ndarray, "queries reference"] = np.round(cosines, TIE_DECIMALS)
    return rounded


def cosines_between(
    family: LabelledModels,
    rows: Int64[np.ndarray, " queries"],
    columns: Int64[np.ndarray, " reference"],
) -> Float64[np.ndarray, "queries reference"]:
    """The same before rounding, which would part cosines that are equal to their last bits."""
    if family.scores is not None:
        known: Float64[np.ndarray, "queries reference"] = family.scores[np.ix_(rows, columns)]
        return known
    vectors = family.vectors
    cosines: Float64[np.ndarray, "queries reference"] = (
        vectors[rows].astype(np.float64) @ vectors[columns].astype(np.float64).T
    )
    return cosines


def by_hash(id: str) -> bytes:
    """What a sample is sorted by: unrelated to names and to order."""
    return hashlib.sha256(id.encode()).digest()
