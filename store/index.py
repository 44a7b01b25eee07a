"""The derived FAISS index: caught up with the catalog, or rebuilt from it; scores are exact."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from ..errors import StoreFull
from ..records import Recipe
from .catalog import Catalog
from .export import whole, write_whole
from .shortlist import (
    add,
    coarse_search,
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
    """One family's vectors under one recipe, searchable; a snapshot of the catalog."""

    def __init__(
        self, catalog: Catalog, recipe: Recipe, index: faiss.Index, models: _Models
    ) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._index = index
        self._keys, self._ids, self._kinds = models.keys, models.ids, models.kinds
        self._rows = {id: row for row, id in enumerate(self._ids)}

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
        keys, vectors = self._catalog.vectors_of(self._recipe, self._keys[rows])
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
    def open(cls, catalog: Catalog, base: str, recipe: Recipe) -> VectorIndex:
        """The index as of now: the last one if nothing changed, else its file caught up."""
        known = _OPENED.setdefault(catalog, {})
        changes, opened = known.get((base, recipe.id), (-1, None))
        if opened is None or changes != catalog.changes:
            opened = cls._open(catalog, base, recipe)
            known[base, recipe.id] = (catalog.changes, opened)
        return opened

    @classmethod
    def _open(cls, catalog: Catalog, base: str, recipe: Recipe) -> VectorIndex:
        wanted = catalog.vector_keys(base, recipe)
        keys = np.array([key for key, _, _ in wanted], dtype=np.int64)
        models = _Models(keys, [id for _, id, _ in wanted], [kind for _, _, kind in wanted])
        name = hashlib.sha256(f"{base}\n{recipe.id}".encode()).hexdigest()[:16]
        path = index_folder(catalog.path) / name
        index, held = _load(path, recipe.dim) if len(keys) >= PERSIST_FROM else (None, keys[:0])
        if index is not None and not fits(index, len(keys)):
            index = None
        saved = len(held) if index is not None else 0
        if index is None:
            held = keys[:0]
            sample = _sample(catalog, recipe, keys)
            index = make_index(recipe.dim, len(keys), sample)
        gone = np.setdiff1d(held, keys)
        if len(gone):
            remove(index, held, gone)
            held = np.setdiff1d(held, gone)
        after = int(held[-1]) if len(held) else -1
        for some, vectors in catalog.vectors_by_key(base, recipe, after):
            add(index, np.array(some, dtype=np.int64), vectors)
        changed = len(gone) + len(keys) - len(held)
        if len(keys) >= PERSIST_FROM and changed > saved * UNSAVED_SHARE:
            _save(path, index, keys)
        return cls(catalog, recipe, index, models)

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
            _, vectors = self._catalog.vectors_of(self._recipe, self._keys[near])
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


@dataclass(frozen=True, slots=True)
class _Models:
    """A family's fingerprinted models, by key."""

    keys: Int64[np.ndarray, " models"]
    ids: list[str]
    kinds: list[str]


_OPENED: WeakKeyDictionary[Catalog, dict[tuple[str, str], tuple[int, VectorIndex]]] = (
    WeakKeyDictionary()
)


def _sample(
    catalog: Catalog, recipe: Recipe, keys: Int64[np.ndarray, " models"]
) -> Float32[np.ndarray, "sample dim"]:
    """Vectors that train a coarse index, spread over the family; none for an exact one."""
    size = min(len(keys), training_size(len(keys)))
    places = np.linspace(0, len(keys) - 1, size).astype(np.int64)
    return catalog.vectors_of(recipe, keys[np.unique(places)])[1]


def index_folder(catalog_path: Path) -> Path:
    """Where the derived files of a catalog are."""
    return catalog_path.with_name(catalog_path.name + ".index")


def _load(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
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
