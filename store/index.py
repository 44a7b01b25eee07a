"""The derived FAISS index: exact inner product, caught up or rebuilt from the catalog."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from ..errors import StoreFull
from ..records import Recipe
from .catalog import Catalog
from .export import write_whole

log = logging.getLogger(__name__)

TIE_DECIMALS = 9
OVERFETCH = 32
PERSIST_FROM = 256
"""Vectors below which reading the catalog is as fast as reading an index file."""


class VectorIndex:
    """One family's vectors under one recipe, searchable; a snapshot of the catalog."""

    def __init__(
        self,
        index: faiss.Index,
        keys: Int64[np.ndarray, " models"],
        ids: list[str],
        kinds: list[str],
    ) -> None:
        self._index = index
        self._keys = keys
        self._ids = ids
        self._kinds = kinds
        self._rows = {id: row for row, id in enumerate(ids)}

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

    def by_kind(self, allowed: Collection[str] | None = None) -> list[list[str] | None]:
        """The models that are allowed, kind by kind; None for all of a family of one kind."""
        if allowed is None and len(set(self._kinds)) <= 1:
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
        """The index as of now: from its file if that is whole, else from the catalog."""
        wanted = catalog.vector_keys(base, recipe)
        keys = np.array([key for key, _, _ in wanted], dtype=np.int64)
        ids, kinds = [id for _, id, _ in wanted], [kind for _, _, kind in wanted]
        folder = index_folder(catalog.path)
        name = hashlib.sha256(f"{base}\n{recipe.id}".encode()).hexdigest()[:16]
        index, held = (
            _load(folder / name, recipe.dim) if len(keys) >= PERSIST_FROM else (None, keys[:0])
        )
        if index is None or not _is_prefix(held, keys):
            if index is not None:
                log.info("rebuilding the search index: models were changed or removed")
            index, held = faiss.IndexFlatIP(recipe.dim), keys[:0]
        if len(held) < len(keys):
            after = int(held[-1]) if len(held) else -1
            _, vectors = catalog.vectors_by_key(base, recipe, after)
            index.add(np.ascontiguousarray(vectors))
            if len(keys) >= PERSIST_FROM:
                _save(folder / name, index, keys)
        return cls(index, keys, ids, kinds)

    def search(
        self,
        queries: Float32[np.ndarray, "queries dim"],
        k: int,
        *,
        allowed: Collection[str] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Per query the `k` best (id, score), or all if there are fewer; ties by id.

        Exact, also under `allowed`: candidates are scored again in float64, and fetched on
        until no tie can hide behind the last.

        Raises:
            ValueError: k < 1, or a query that is not a finite, non-zero vector of this length.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if queries.ndim != 2 or queries.shape[1] != self._index.d:
            raise ValueError(f"queries must have {self._index.d} columns, got {queries.shape}")
        if not np.isfinite(queries).all() or not queries.any(axis=1).all():
            raise ValueError("a query holds NaN or infinity, or is all zero")
        rows = None
        if allowed is not None:
            rows = np.array(sorted({self._rows[i] for i in allowed if i in self._rows}), np.int64)
        return [self._search_one(query, k, rows) for query in queries]

    def _search_one(
        self,
        query: Float32[np.ndarray, " dim"],
        k: int,
        rows: Int64[np.ndarray, " allowed"] | None,
    ) -> list[tuple[str, float]]:
        n_candidates = len(self) if rows is None else len(rows)
        if n_candidates == 0:
            return []
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
        return self._rescored(query, found[0])[:k]

    def _rescored(
        self, query: Float32[np.ndarray, " dim"], rows: Int64[np.ndarray, " found"]
    ) -> list[tuple[str, float]]:
        vectors = self._index.reconstruct_batch(rows).astype(np.float64)
        exact = vectors @ query.astype(np.float64)
        pairs = [(self._ids[row], float(score)) for row, score in zip(rows, exact, strict=True)]
        return sorted(pairs, key=lambda pair: (-round(pair[1], TIE_DECIMALS), pair[0]))


def index_folder(catalog_path: Path) -> Path:
    """Where the derived files of a catalog are."""
    return catalog_path.with_name(catalog_path.name + ".index")


def _is_prefix(held: Int64[np.ndarray, " held"], keys: Int64[np.ndarray, " models"]) -> bool:
    """Keys only grow, so an index is behind, never beside, if it holds the first of them."""
    return len(held) <= len(keys) and bool(np.array_equal(held, keys[: len(held)]))


def _load(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
    """The index in a file and its keys; None if it is missing, damaged or of another kind."""
    nothing = np.zeros(0, dtype=np.int64)
    try:
        note = json.loads(path.with_suffix(".json").read_text("utf-8"))
        keys = np.array(note["keys"], dtype=np.int64)
        data = path.with_suffix(".faiss").read_bytes()
        if zlib.crc32(data) != note["crc32"] or note["dim"] != dim:
            raise ValueError("checksum or dimension")
        index = faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8))
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
    data = faiss.serialize_index(index).tobytes()
    note = {"crc32": zlib.crc32(data), "dim": index.d, "keys": keys.tolist()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.with_suffix(".faiss"), data)
        write_whole(path.with_suffix(".json"), json.dumps(note).encode())
    except (OSError, StoreFull):
        log.info("the search index cannot be kept beside the catalog; it stays in memory")
