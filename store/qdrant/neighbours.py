"""The nearest vectors of some, by comparing all: what an engine's answers are measured by."""

from __future__ import annotations

import numpy as np

from ...arrays import Float32, Int64
from ..derived.candidates import CLOSE

KEPT = 32
"""Nearest that are kept of each query: the ten, and those as good as the tenth."""

NEAREST = 10


class ExactNeighbours:
    """The nearest of some queries among vectors that are given batch by batch."""

    def __init__(
        self, keys: Int64[np.ndarray, " queries"], vectors: Float32[np.ndarray, "queries dim"]
    ) -> None:
        """Queries are models themselves, and no neighbours of their own.

        Args:
            keys: Of the queries.
            vectors: Of the queries.
        """
        self.keys, self.vectors = keys, vectors
        self._scores = np.full((len(keys), KEPT), -np.inf, dtype=np.float32)
        self._nearest = np.full((len(keys), KEPT), -1, dtype=np.int64)

    def add(
        self, keys: Int64[np.ndarray, " models"], vectors: Float32[np.ndarray, "models dim"]
    ) -> None:
        """Compare the queries with some models."""
        if not len(keys) or not len(self.keys):
            return
        scores = self.vectors @ vectors.T  # (queries, models)
        scores[self.keys[:, None] == keys[None, :]] = -np.inf
        n_best = min(KEPT, len(keys))
        best = np.argpartition(-scores, n_best - 1, axis=1)[:, :n_best]
        scores = np.concatenate([self._scores, np.take_along_axis(scores, best, axis=1)], axis=1)
        nearest = np.concatenate([self._nearest, keys[best]], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :KEPT]
        self._scores = np.take_along_axis(scores, order, axis=1)
        self._nearest = np.take_along_axis(nearest, order, axis=1)

    def recall(self, query: int, answer: Int64[np.ndarray, " found"]) -> float:
        """Share of the ten nearest of a query, or of all if there are fewer, that an answer holds;
        another as good as the tenth counts like it."""
        n_nearest = min(NEAREST, int((self._nearest[query] >= 0).sum()))
        if not n_nearest:
            return 1.0
        least = self._scores[query, n_nearest - 1] - CLOSE
        as_good = self._nearest[query][(self._scores[query] >= least) & (self._nearest[query] >= 0)]
        hits = np.isin(answer[answer != self.keys[query]][:n_nearest], as_good).sum()
        return float(hits) / n_nearest
