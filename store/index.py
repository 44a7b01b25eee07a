"""The derived FAISS index: caught up with the catalog, or rebuilt from it; scores are exact."""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from ..arrays import Float32, Int64
from ..errors import StoreFull
from ..records import Recipe
from .catalog import Catalog
from .derived import derived_path
from .export import whole, write_whole
from .family_vectors import FamilyVectors
from .shortlist import (
    add,
    coarse_search,
    copied,
    fits,
    is_exact,
    make_index,
    remove,
    training_size,
)

log = logging.getLogger(__name__)

TIE_DECIMALS = 9
OVERFETCH = 32
RESCORED = 28
"""Candidates of a coarse index that are scored exactly, at least."""

CHECKED_AT_ONCE = 1 << 24
"""Bytes of an index file."""

UNSAVED_SHARE = 0.01
"""Changes since the index was saved that are made again rather than saved, as a share of it."""

PERSIST_FROM = 256
"""Vectors below which reading the catalog is as fast as reading an index file."""


class VectorIndex:
    """One family's vectors under one recipe, searchable; a snapshot of the catalog.

    Attributes:
        models: Shared by the views that several readers have of one snapshot.
    """

    def __init__(self, vectors: FamilyVectors, index: faiss.Index, models: _Models) -> None:
        self._vectors = vectors
        self._index = index
        self.models = models
        self._keys, self._ids, self._kinds = models.keys, models.ids, models.kinds
        self._rows = models.rows

    def read_through(self, vectors: FamilyVectors) -> VectorIndex:
        """The same snapshot, for a thread with a reader of its own."""
        return VectorIndex(vectors, self._index, self.models)

    @property
    def ids(self) -> Sequence[str]:
        """The models' ids, row by row."""
        return self._ids

    @property
    def kinds(self) -> Sequence[str]:
        """Their kinds."""
        return self._kinds

    def kinds_of(self, ids: Sequence[str]) -> list[str]:
        """The kinds of the named models."""
        return [self._kinds[self._rows[id]] for id in ids]

    def keys_of(self, ids: Sequence[str]) -> list[int]:
        """The catalog's keys of the named models."""
        return [int(self._keys[self._rows[id]]) for id in ids]

    def vectors_of(self, ids: Sequence[str]) -> Float32[np.ndarray, "models dim"]:
        """The vectors of the named models, in their order."""
        rows = np.array([self._rows[id] for id in ids], dtype=np.int64)
        keys, vectors = self._vectors.of(self._keys[rows])
        return vectors[np.searchsorted(np.array(keys, dtype=np.int64), self._keys[rows])]

    def by_kind(self, allowed: Collection[str] | None = None) -> list[list[str] | None]:
        """The models that are allowed, kind by kind; None for all, of one kind or too many."""
        if allowed is None and (not is_exact(self._index) or len(set(self._kinds)) <= 1):
            return [None]
        names = self._ids if allowed is None else [id for id in allowed if id in self._rows]
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._kinds[self._rows[name]], []).append(name)
        return [groups[kind] for kind in sorted(groups)]

    def __len__(self) -> int:
        return len(self._ids)

    @classmethod
    def open(
        cls,
        catalog: Catalog,
        base: str,
        recipe: Recipe,
        *,
        prepare: Callable[[VectorIndex], object] | None = None,
    ) -> VectorIndex:
        """The index as of now: the last one if nothing changed, else its file caught up.

        Args:
            prepare: What is done with a new one before other threads have it.
        """
        vectors = catalog.family_vectors(base, recipe)
        opened = catalog.access.derived(_Opened).of(base, recipe.id)
        if opened.index is None or catalog.waits_for_index:
            with opened.lock:
                changes = catalog.changes
                if opened.index is None or opened.changes != changes:
                    with catalog.snapshot():
                        index = cls._open(vectors, opened.index)
                        if prepare is not None:
                            prepare(index)
                    opened.index, opened.changes = index, changes
        return opened.index.read_through(vectors)

    @classmethod
    def _open(cls, vectors: FamilyVectors, last: VectorIndex | None) -> VectorIndex:
        """The last snapshot caught up, else the index file, else all made anew."""
        models = _Models.of(vectors, last.models if last else None)
        keys, recipe = models.keys, vectors.recipe
        if last is not None and models is last.models:
            return last
        path = derived_path(vectors.path, vectors.base, recipe.id)
        index, held, saved = None, keys[:0], 0
        if last is not None and fits(last._index, len(keys)):
            index, held, saved = copied(last._index), last._keys, last.models.saved
        elif len(keys) >= PERSIST_FROM:
            index, held = load_index(path, recipe.dim)
            if index is not None and not fits(index, len(keys)):
                index = None
            saved = len(held) if index is not None else 0
        if index is None:
            held = keys[:0]
            sample = _sample(vectors, keys)
            index = make_index(recipe.dim, len(keys), sample)
        gone = np.setdiff1d(held, keys)
        if len(gone):
            remove(index, held, gone)
            held = np.setdiff1d(held, gone)
        after = int(held[-1]) if len(held) else -1
        if not np.array_equal(held, keys[keys <= after]):
            # every change comes with a new key: the file is of another catalog, or of a later one
            # than this, which was put back
            index, after = make_index(recipe.dim, len(keys), _sample(vectors, keys)), -1
        for some, added in vectors.batches(after):
            add(index, np.array(some, dtype=np.int64), added)
        unsaved = len(gone) + abs(len(keys) - saved)
        if len(keys) >= PERSIST_FROM and unsaved > saved * UNSAVED_SHARE:
            _save(path, index, keys)
            saved = len(keys)
        return cls(vectors, index, replace(models, saved=saved))

    def search(
        self,
        queries: Float32[np.ndarray, "queries dim"],
        k: int,
        *,
        allowed: Collection[str] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Per query the `k` best (id, score), or all if there are fewer; ties by id.

        Scores are exact. So is the choice, also under `allowed`, in families up to
        `FLAT_UP_TO`: candidates are scored again in float64, and fetched on until no tie can
        hide behind the last. In larger ones it is of a shortlist.

        Raises:
            ValueError: k < 1, or a query that is not a finite, non-zero vector of this length.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if queries.ndim != 2 or queries.shape[1] != self._index.d:
            raise ValueError(f"queries must have {self._index.d} columns, got {queries.shape}")
        if not np.isfinite(queries).all() or not queries.any(axis=1).all():
            raise ValueError("a query holds NaN or infinity, or is all zero")
        rows = self._some(allowed)
        return [self._search_one(query, k, rows) for query in queries]

    def shortlist(
        self,
        query: Float32[np.ndarray, " dim"],
        n_candidates: int,
        *,
        allowed: Collection[str] | None = None,
    ) -> list[str]:
        """The models to score exactly: the nearest `n_candidates` of a family that is scanned
        exactly, as many likely ones of a larger family; the best first."""
        if is_exact(self._index):
            return [id for id, _ in self.search(query[None, :], n_candidates, allowed=allowed)[0]]
        return [self._ids[row] for row in self._coarse(query, n_candidates, self._some(allowed))]

    def search_codes(self, query: Float32[np.ndarray, " dim"], n_candidates: int) -> None:
        """What FAISS alone does of a search: nothing comes back. For benchmarks."""
        if is_exact(self._index):
            self._index.search(query[None, :], n_candidates)
        else:
            coarse_search(self._index, query, n_candidates, None)

    def _some(self, allowed: Collection[str] | None) -> Int64[np.ndarray, " allowed"] | None:
        """Rows of the allowed models."""
        if allowed is None:
            return None
        return np.array(sorted({self._rows[i] for i in allowed if i in self._rows}), np.int64)

    def _coarse(
        self,
        query: Float32[np.ndarray, " dim"],
        n_candidates: int,
        rows: Int64[np.ndarray, " allowed"] | None,
    ) -> Int64[np.ndarray, " found"]:
        """Rows of the likely nearest, by their codes, best first."""
        allowed = None if rows is None else self._keys[rows]
        found = coarse_search(self._index, query, n_candidates, allowed)
        rows_found: Int64[np.ndarray, " found"] = np.searchsorted(self._keys, found)
        return rows_found

    def _search_one(
        self,
        query: Float32[np.ndarray, " dim"],
        k: int,
        rows: Int64[np.ndarray, " allowed"] | None,
    ) -> list[tuple[str, float]]:
        n_candidates = len(self) if rows is None else len(rows)
        if n_candidates == 0:
            return []
        if not is_exact(self._index):
            near = np.sort(self._coarse(query, max(RESCORED, 2 * k), rows))
            _, vectors = self._vectors.of(self._keys[near])
            return self._ranked(query, near, vectors)[:k]
        parameters = None
        if rows is not None:
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorArray(rows))  # type: ignore[call-arg]
        fetch = min(k + OVERFETCH, n_candidates)
        while True:
            scores, found = self._index.search(query[None, :], fetch, params=parameters)
            last_of_k, last = scores[0][min(k, fetch) - 1], scores[0][fetch - 1]
            if fetch == n_candidates or last < last_of_k - 1e-5:
                break
            fetch = min(2 * fetch, n_candidates)
        return self._ranked(query, found[0], self._index.reconstruct_batch(found[0]))[:k]

    def _ranked(
        self,
        query: Float32[np.ndarray, " dim"],
        rows: Int64[np.ndarray, " found"],
        vectors: Float32[np.ndarray, "found dim"],
    ) -> list[tuple[str, float]]:
        """(id, exact score) of the found, best first; ties by id."""
        exact = vectors.astype(np.float64) @ query.astype(np.float64)
        pairs = [(self._ids[row], float(score)) for row, score in zip(rows, exact, strict=True)]
        return sorted(pairs, key=lambda pair: (-round(pair[1], TIE_DECIMALS), pair[0]))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Models:
    """A family's fingerprinted models, by key.

    Attributes:
        rows: Where each id is.
        saved: How many the index file holds.
        derived: What was computed from them, by its class.
    """

    keys: Int64[np.ndarray, " models"]
    ids: list[str]
    kinds: list[str]
    rows: dict[str, int]
    saved: int = 0
    derived: dict[type, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, vectors: FamilyVectors, last: _Models | None) -> _Models:
        """As of now; the last ones themselves, if they are the same still."""
        n_models = vectors.count()
        if last is not None:
            after = int(last.keys[-1]) if len(last.keys) else -1
            new = vectors.models(after)
            if len(last.keys) + len(new) == n_models:
                return last._with(new) if new else last
        none = cls(keys=np.zeros(0, dtype=np.int64), ids=[], kinds=[], rows={})
        return none._with(vectors.models())

    def _with(self, new: Sequence[tuple[int, str, str]]) -> _Models:
        """These and later ones."""
        ids = [*self.ids, *(id for _, id, _ in new)]
        return _Models(
            keys=np.concatenate([self.keys, np.array([k for k, _, _ in new], dtype=np.int64)]),
            ids=ids,
            kinds=[*self.kinds, *(kind for _, _, kind in new)],
            rows={id: row for row, id in enumerate(ids)},
            saved=self.saved,
        )


@dataclass(slots=True)
class _Entry:
    """The last snapshot of one family under one recipe; one thread at a time makes a new one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    changes: str = ""
    index: VectorIndex | None = None


class _Opened:
    """The snapshots of one open catalog."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, str], _Entry] = {}

    def of(self, base: str, recipe: str) -> _Entry:
        with self._lock:
            return self._entries.setdefault((base, recipe), _Entry())

    def close(self) -> None:
        self._entries.clear()


def _sample(
    vectors: FamilyVectors, keys: Int64[np.ndarray, " models"]
) -> Float32[np.ndarray, "sample dim"]:
    """Vectors that train a coarse index, spread over the family; none for an exact one."""
    size = min(len(keys), training_size(len(keys)))
    places = np.linspace(0, len(keys) - 1, size).astype(np.int64)
    return vectors.of(keys[np.unique(places)])[1]


def load_index(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
    """The index in a file and its keys; None if it is missing, damaged or of another kind."""
    nothing = np.zeros(0, dtype=np.int64)
    try:
        note = json.loads(path.with_suffix(".json").read_text("utf-8"))
        keys = np.array(note["keys"], dtype=np.int64)
        file = path.with_suffix(".faiss")
        if _crc32(file) != note["crc32"] or note["dim"] != dim:
            raise ValueError("checksum or dimension")
        index = faiss.read_index(str(file))
        if index.ntotal != len(keys) or index.d != dim:
            raise ValueError("count")
    except FileNotFoundError:
        return None, nothing
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        log.info("the search index was damaged; building it again from the catalog")
        return None, nothing
    return index, keys


def _save(path: Path, index: faiss.Index, keys: Int64[np.ndarray, " models"]) -> None:
    """Write the index, then the note that vouches for it; a refusal keeps it in memory only."""
    file = path.with_suffix(".faiss")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as temporary:
            faiss.write_index(index, str(temporary))
            note = {"crc32": _crc32(temporary), "dim": index.d, "keys": keys.tolist()}
        write_whole(path.with_suffix(".json"), json.dumps(note).encode())
    except (OSError, StoreFull, RuntimeError):
        log.info("the search index cannot be kept beside the catalog; it stays in memory")


def _crc32(path: Path) -> int:
    """Checksum of a file, a piece at a time."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(CHECKED_AT_ONCE):
            value = zlib.crc32(piece, value)
    return value
