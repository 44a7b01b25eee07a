"""Candidates from exported vectors, and from the catalog for the models that the export lacks."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Float32, Int64, UInt64
from ...errors import EngineError, StoreDamaged
from ..tables.outcomes import CLOSE, Fetch
from .points import (
    IDS_AT_ONCE,
    Found,
    Keys,
    PointCollection,
    Vector,
    digests,
    digests_of,
    keys_of,
    pages,
)

log = logging.getLogger(__name__)

EXACT_UP_TO = 50_000
"""Points that are all compared with a query, as FAISS's are."""

MOST_MISSING = 20_000
"""Models that are compared in memory because the export lacks them: 160 MB of 2,048 numbers."""

READ_AT_ONCE = 4_096
"""Points of a page without vectors, and vectors of the catalog."""

COUNTED_AGAIN_AFTER_S = 30.0
"""After so long a search looks whether the collection still has as many points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which models of a family the engine answers for.

    Attributes:
        n_points: Of the collection, those of no model among them.
        exported: Keys of the models whose points hold the catalog's vectors, rising.
        missing, vectors: Keys, rising, and vectors of the others.
    """

    n_points: int
    exported: Int64[np.ndarray, " exported"]
    missing: Int64[np.ndarray, " missing"]
    vectors: Float32[np.ndarray, "missing dim"]


class ExportedPoints:
    """A collection, and what is known of its points. Threads share it."""

    def __init__(self, collection: PointCollection) -> None:
        self.collection = collection
        self._lock = threading.Lock()
        self._keys: Int64[np.ndarray, " points"] = np.zeros(0, dtype=np.int64)
        self._digests: UInt64[np.ndarray, " points"] = np.zeros(0, dtype=np.uint64)
        # of the points whose digest is that of the catalog's vector
        self._is_checked: Bool[np.ndarray, " points"] = np.zeros(0, dtype=np.bool_)

    def coverage(self, keys: Keys, dim: int, fetch: Fetch) -> Coverage:
        """Which of a family's models have a point with the vector that the catalog has; raises
        `EngineError` if the collection lacks too many of them."""
        with self._lock:
            self._read_points()
            unchecked = np.intersect1d(keys, self._keys[~self._is_checked])
            for start in range(0, len(unchecked), READ_AT_ONCE):
                present, vectors = fetch(unchecked[start : start + READ_AT_ONCE])
                places = np.searchsorted(self._keys, present)
                self._is_checked[places] = self._digests[places] == digests(vectors)
            exported = np.intersect1d(keys, self._keys[self._is_checked])
            n_points = len(self._keys)
        missing = np.setdiff1d(keys, exported)
        target = self.collection.target
        if len(missing) > MOST_MISSING:
            raise EngineError(
                f"{target} lacks {len(missing):,} of {len(keys):,} models: run "
                f"`deltadex export --to {target}`"
            )
        if len(missing):
            log.warning(
                "%d of %d models are not in %s and are compared in memory; "
                "run `deltadex export --to %s`",
                *(len(missing), len(keys), target, target),
            )
        missing, vectors = fetch(missing)
        return Coverage(
            n_points=n_points,
            exported=exported,
            missing=missing,
            vectors=vectors if len(missing) else np.zeros((0, dim), dtype=np.float32),
        )

    def _read_points(self) -> None:
        """Read the keys and digests of all points; what was checked stays so where it is equal."""
        read = [
            (keys_of(page), digests_of(page))
            for page in pages(self.collection, READ_AT_ONCE, with_vectors=False)
        ]
        keys = np.concatenate([self._keys[:0], *(keys for keys, _ in read)])
        values = np.concatenate([self._digests[:0], *(values for _, values in read)])
        is_checked = np.zeros(len(keys), dtype=np.bool_)
        _, now, before = np.intersect1d(keys, self._keys, return_indices=True)
        is_checked[now] = self._is_checked[before] & (values[now] == self._digests[before])
        self._keys, self._digests, self._is_checked = keys, values, is_checked


class QdrantIndex:
    """The candidates of a family, whose keys rise, from exported points, as of `SearchIndex`."""

    def __init__(self, points: ExportedPoints, keys: Keys, dim: int, fetch: Fetch) -> None:
        self.keys = keys
        self._points, self._dim, self._fetch = points, dim, fetch
        self._coverage = points.coverage(keys, dim, fetch)
        self._counted_at = time.monotonic()
        self._lock = threading.Lock()

    @property
    def n_missing(self) -> int:
        """Models that the export lacks."""
        return len(self._coverage.missing)

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared with a query; else likely ones are."""
        return self._coverage.n_points <= EXACT_UP_TO

    def nearest(
        self, query: Vector, n: int, allowed: Keys | None = None
    ) -> Int64[np.ndarray, " candidates"]:
        """As of `SearchIndex`; of the models that the export lacks the `n` nearest too. Raises
        `EngineError` if the engine fails."""
        coverage = self._current()
        exported, missing = coverage.exported, coverage.missing
        parts: list[Int64[np.ndarray, " part"] | None] = [None]
        if allowed is not None:
            here = exported[_is_in(exported, allowed)]
            starts = range(0, len(here), IDS_AT_ONCE)
            parts = [here[start : start + IDS_AT_ONCE] for start in starts]
        collection = self._points.collection
        found = [search_points(collection, coverage, query, n, part) for part in parts]
        is_allowed = slice(None) if allowed is None else _is_in(missing, allowed)
        scores = coverage.vectors[is_allowed] @ query
        found.append((missing[is_allowed], scores))
        keys = np.concatenate([keys for keys, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        order = np.argsort(-scores, kind="stable")
        if len(order) > n:
            order = order[scores[order] >= scores[order[n - 1]] - CLOSE]
        return np.asarray(keys[order])

    def _current(self) -> Coverage:
        """What the collection holds; looked at again where its number of points changed."""
        with self._lock:
            if time.monotonic() - self._counted_at > COUNTED_AGAIN_AFTER_S:
                if self._points.collection.count() != self._coverage.n_points:
                    self._coverage = self._points.coverage(self.keys, self._dim, self._fetch)
                self._counted_at = time.monotonic()
            return self._coverage


def search_points(
    collection: PointCollection,
    coverage: Coverage,
    query: Vector,
    n: int,
    allowed: Keys | None = None,
) -> Found:
    """Keys and scores of about the `n` nearest points of models, and of those as good as the last;
    of some exported models alone, whose keys rise. Raises `StoreDamaged` if one is not finite."""
    n_there = coverage.n_points if allowed is None else len(allowed)
    is_exact, wanted = n_there <= EXACT_UP_TO, min(2 * n, n_there)
    while True:
        if not wanted:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        keys, scores = collection.nearest(query, wanted, allowed, is_exact=is_exact)
        if not np.isfinite(scores).all():
            raise StoreDamaged(f"{collection.target}: scores that are not finite")
        # points of models that are gone, or were indexed again since
        is_model = _is_in(keys, coverage.exported)
        keys, scores, n_found = keys[is_model], scores[is_model], len(keys)
        has_all_ties = len(keys) > n and (not is_exact or scores[-1] < scores[n - 1] - CLOSE)
        if has_all_ties or n_found < wanted or wanted == n_there:
            return keys, scores
        wanted = min(2 * wanted, n_there)


def _is_in(
    keys: Int64[np.ndarray, " keys"], rising: Int64[np.ndarray, " rising"]
) -> Bool[np.ndarray, " keys"]:
    """Which keys are among rising ones."""
    return np.asarray(np.append(rising, -1)[np.searchsorted(rising, keys)] == keys)


class ExportedFamilies:
    """The collections that searches of one open catalog use, by family and recipe."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], ExportedPoints] = {}

    def use(self, base: str, recipe: str, collection: PointCollection) -> None:
        """Take the candidates of a family from a collection."""
        self._points[base, recipe] = ExportedPoints(collection)

    def of(self, base: str, recipe: str) -> ExportedPoints | None:
        """A family's points; None where FAISS has its vectors."""
        return self._points.get((base, recipe))

    @property
    def targets(self) -> dict[tuple[str, str], str]:
        """Where the points are, by base and recipe."""
        return {family: points.collection.target for family, points in self._points.items()}

    def close(self) -> None:
        for points in self._points.values():
            points.collection.close()
        self._points.clear()
