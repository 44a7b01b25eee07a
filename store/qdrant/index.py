"""A family's candidates from points (a key, a vector and a payload each) that were exported to a
collection of a Qdrant server; from the catalog for the models that the export lacks."""

from __future__ import annotations

import logging
import threading

import numpy as np
import xxhash

from ...arrays import Bool, Int64
from ...errors import EngineError, StoreDamaged
from ...results import count
from ..tables.outcomes import CLOSE, Fetch
from .server import Found, Keys, PointCollection, Some, Vector, Vectors

log = logging.getLogger(__name__)

IDS_AT_ONCE = 50_000
"""Keys of a filter that one request carries."""

EXACT_UP_TO = 50_000
"""Points that are all compared with a query, as FAISS's are."""

MOST_MISSING = 20_000
"""Models that are compared in memory because the export lacks them: 160 MB of 2,048 numbers."""

READ_AT_ONCE = 4_096
"""Points of a page without vectors, and vectors of the catalog."""


def digests(vectors: Vectors) -> list[str]:
    """A checksum of each vector's bytes."""
    rows = np.ascontiguousarray(vectors, "<f4")
    return [xxhash.xxh3_64_hexdigest(row.tobytes()) for row in rows]


class ExportedPoints:
    """A collection, and which of its points hold the catalog's vectors. Threads share it."""

    def __init__(self, collection: PointCollection) -> None:
        self.collection = collection
        self._lock = threading.Lock()
        # of the points that were right, rising: a number for each key and digest
        self._right: Keys = np.zeros(0, dtype=np.int64)

    def read(self, keys: Keys, fetch: Fetch) -> Some:
        """Which of these models have a point with the vector that the catalog has."""
        with self._lock:
            exported, right = [keys[:0]], [self._right[:0]]
            for page in self.collection.pages(READ_AT_ONCE):
                here = np.array(list(page), dtype=np.int64)
                pairs = [(key, payload["digest"]) for key, payload in page.items()]
                marks = np.array([hash(pair) for pair in pairs], dtype=np.int64)
                is_right = _is_in(marks, self._right)
                present, vectors = fetch(np.intersect1d(here[~is_right], keys))
                held = set(zip(present.tolist(), digests(vectors), strict=True))
                is_right |= np.array([pair in held for pair in pairs], dtype=np.bool_)
                exported.append(here[is_right])
                right.append(marks[is_right])
            self._right = np.sort(np.concatenate(right))
            return np.intersect1d(keys, np.concatenate(exported))


class QdrantIndex:
    """The candidates of a family, whose keys rise, from exported points, as of `SearchIndex`."""

    def __init__(self, points: ExportedPoints, keys: Keys, fetch: Fetch) -> None:
        """Raises `EngineError` if the collection lacks too many of the models."""
        self.keys = keys
        self._points, self._fetch = points, fetch
        self._n_points = points.collection.count(is_exact=False)
        self._known = self._read()

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared with a query; else likely ones are."""
        return self._n_points <= EXACT_UP_TO

    def nearest(self, query: Vector, n: int, allowed: Some | None = None) -> Some:
        """As of `SearchIndex`; of the models that the export lacks the `n` nearest too. Raises
        `EngineError` if the engine fails."""
        exported, missing, vectors = self._current()
        parts: list[Keys | None] = [None]
        if allowed is not None:
            here = exported[_is_in(exported, allowed)]
            parts = [here[at : at + IDS_AT_ONCE] for at in range(0, len(here), IDS_AT_ONCE)]
            is_allowed = _is_in(missing, allowed)
            missing, vectors = missing[is_allowed], vectors[is_allowed]
        found = [self._search(query, n, exported, part) for part in parts]
        found.append((missing, vectors @ query))
        keys = np.concatenate([keys for keys, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        order = np.argsort(-scores, kind="stable")
        if len(order) > n:
            order = order[scores[order] >= scores[order[n - 1]] - CLOSE]
        return np.asarray(keys[order])

    def _current(self) -> tuple[Some, Some, Vectors]:
        """What is known, read again where the collection has fewer points than at the last look."""
        n_points = self._points.collection.count(is_exact=False)
        if n_points < self._n_points:
            self._known = self._read()
        self._n_points = n_points
        return self._known

    def _read(self) -> tuple[Some, Some, Vectors]:
        """Keys of the models that are exported; keys and vectors of the others."""
        exported, target = self._points.read(self.keys, self._fetch), self._points.collection.target
        missing = np.setdiff1d(self.keys, exported)
        lacks = f"{target} lacks {len(missing):,} of {count(len(self.keys), 'model', form=',')}"
        if len(missing) > MOST_MISSING:
            raise EngineError(f"{lacks}: run `deltadex export --to {target}`")
        if len(missing):
            log.warning("%s, compared in memory; run `deltadex export --to %s`", lacks, target)
        return exported, *self._fetch(missing)

    def _search(self, query: Vector, n: int, exported: Some, allowed: Some | None) -> Found:
        """About the `n` nearest exported models, and those as good as the last; of some alone.
        Raises `StoreDamaged` if a score is not finite."""
        is_exact = self.is_exact if allowed is None else len(allowed) <= EXACT_UP_TO
        n_found = wanted = n
        while n_found == wanted:
            wanted *= 2
            collection = self._points.collection
            keys, scores = collection.nearest(query, wanted, allowed, is_exact=is_exact)
            if not np.isfinite(scores).all():
                raise StoreDamaged(f"{collection.target}: scores that are not finite")
            n_found, is_model = len(keys), _is_in(keys, exported)
            keys, scores = keys[is_model], scores[is_model]
            if len(keys) > n and (not is_exact or scores[-1] < scores[n - 1] - CLOSE):
                break
        return keys, scores


def _is_in(keys: Keys, rising: Int64[np.ndarray, " rising"]) -> Bool[np.ndarray, " models"]:
    """Which keys are among rising ones."""
    return np.asarray(np.append(rising, -1)[np.searchsorted(rising, keys)] == keys)


class ExportedFamilies:
    """The points that searches of one open catalog use, by base and recipe; FAISS has others."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, str], ExportedPoints] = {}

    def close(self) -> None:
        for points in self.points.values():
            points.collection.close()
        self.points.clear()
