"""Products of sketches with the means: the same for every query, and so taken once a row."""

from __future__ import annotations

import numpy as np

from ..arrays import Float32
from ..store import SketchMatrix


class MeanProducts:
    """Inner products of the rows of one file with some means, as far as they were asked for.

    Shared by threads: what two of them take at once is the same.
    """

    def __init__(self) -> None:
        # the file, and what is known of its rows: one value, for both change together
        self._state: tuple[object, Float32[np.ndarray, "rows kinds"]] = (
            None,
            np.zeros((0, 0), dtype=np.float32),
        )

    def of(
        self, matrix: SketchMatrix, means: Float32[np.ndarray, "kinds columns"]
    ) -> Float32[np.ndarray, "models kinds"]:
        """Of every row of `matrix` with every mean."""
        whole, known = self._state
        if whole is not matrix.whole:
            known = np.full((matrix.whole.ntotal, len(means)), np.nan, dtype=np.float32)
            self._state = matrix.whole, known
        new = np.flatnonzero(np.isnan(known[matrix.places]).any(axis=1))
        if len(new):
            known[matrix.places[new]] = matrix.some(new).dots(means)
        products: Float32[np.ndarray, "models kinds"] = known[matrix.places]
        return products
