"""What each text contributes to the anisotropy and mean cosine of a cloud, for intervals.

The infinitesimal jackknife (Efron 1982, ch. 6) with whole texts: T times the first-order change
of a statistic by a text's rows. The mean of these values over fresh texts varies as the statistic
itself does, so that a bootstrap over texts gives an interval for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import Float, Float64, Int64
from .moments import Moments, top_eigenpairs

TextInfluence = Mapping[str, Mapping[str, float]]
"""By measure: the contribution of each text, by its id. They sum to 0."""


def text_influence(
    rows: Float[np.ndarray, "rows dim"], text: Int64[np.ndarray, " rows"], ids: Mapping[str, int]
) -> TextInfluence:
    """Of every text of a group, by the rows sampled from it; nothing for fewer than two rows."""
    if len(rows) < 2:
        return {}
    places = np.searchsorted(np.unique(text), text)
    by_number = {
        measure: dict(zip(np.unique(text).tolist(), np.bincount(places, values), strict=True))
        for measure, values in _row_influence(rows.astype(np.float64)).items()
    }
    n = len(ids)
    return {
        measure: {i: n * float(values.get(number, 0.0)) for i, number in ids.items()}
        for measure, values in by_number.items()
    }


def _row_influence(
    rows: Float64[np.ndarray, "rows dim"],
) -> dict[str, Float64[np.ndarray, " rows"]]:
    """The first-order change of each statistic by each row."""
    moments = Moments.of(rows)
    clouds = {
        "centred": (rows - moments.mean, moments.scatter),
        "uncentred": (rows, moments.about_origin()),
    }
    found = {}
    for name, (points, gram) in clouds.items():
        squares = np.einsum("ij,ij->i", points, points)
        total = float(squares.sum())
        if total > 0:
            # λ changes by the square of the row's part along its eigenvector
            values, vectors = top_eigenpairs(gram, 1)
            along = (points @ vectors[:, 0]) ** 2
            found[name] = (along - float(values[0]) / total * squares) / total
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if (lengths > 0).all():
        units = rows / lengths[:, None]
        n = len(rows)
        cosines = (units @ units.sum(axis=0) - 1.0) / (n - 1)
        found["mean_cosine"] = 2.0 / n * (cosines - cosines.mean())
    return found
