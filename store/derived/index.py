"""The FAISS index of a family: caught up with the catalog, read from its file, or rebuilt."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np

from ...arrays import Float32, Int64
from ...errors import StoreFull
from ..files import atomic_file, write_atomically
from .candidates import CLOSE
from .shortlist import (
    add,
    coarse_search,
    copied,
    fits,
    is_exact,
    make_index,
    remove,
    threads_for,
    training_size,
)

log = logging.getLogger(__name__)

Fetch = Callable[
    [Int64[np.ndarray, " wanted"]],
    tuple[Int64[np.ndarray, " present"], Float32[np.ndarray, "present dim"]],
]
"""Gives the vectors of some models: the keys of those that have one, rising, and the vectors."""

BATCH = 8_192
"""Vectors that are fetched at a time."""

CHECKED_AT_ONCE = 1 << 24
"""Bytes of an index file."""

UNSAVED_SHARE = 0.01
"""Share of an index's vectors that may change before it is saved again."""

PERSIST_FROM = 256
"""Vectors below which reading the catalog is as fast as reading an index file."""


class SearchIndex:
    """Vectors of one family in FAISS, found by key. It is never changed once it is made.

    Attributes:
        keys: Of the models it holds, rising.
        saved: How many of them its file holds.
    """

    def __init__(self, index: faiss.Index, keys: Int64[np.ndarray, " models"], saved: int) -> None:
        self._index, self.keys, self.saved = index, keys, saved

    @classmethod
    def of(
        cls,
        keys: Int64[np.ndarray, " models"],
        dim: int,
        fetch: Fetch,
        path: Path,
        last: SearchIndex | None = None,
    ) -> SearchIndex:
        """The index of some models: the last index or its file, caught up; else a new index.

        Args:
            keys: Of the models, rising; one that `fetch` does not give is left out.
            path: Of its file, without an ending.
        """
        index, held, saved = None, keys[:0], 0
        if last is not None and fits(last._index, len(keys)):
            index, held, saved = copied(last._index), last.keys, last.saved
        elif len(keys) >= PERSIST_FROM:
            index, held = load_index(path, dim)
            if index is not None and not fits(index, len(keys)):
                index = None
            saved = len(held) if index is not None else 0
        if index is None:
            index, held = make_index(dim, len(keys), _sample(fetch, keys)), keys[:0]
        removed = np.setdiff1d(held, keys)
        if len(removed):
            remove(index, held, removed)
            held = np.setdiff1d(held, removed)
        if len(held) and len(held) != np.searchsorted(keys, held[-1], side="right"):
            # every change comes with a new key: the file is of another catalog, or of a later one
            # than this, which was put back
            index, held = make_index(dim, len(keys), _sample(fetch, keys)), keys[:0]
        new = keys[len(held) :]
        for start in range(0, len(new), BATCH):
            present, vectors = fetch(new[start : start + BATCH])
            add(index, present, vectors)
            held = np.concatenate([held, present])
        unsaved = len(removed) + abs(len(held) - saved)
        if len(held) >= PERSIST_FROM and unsaved > saved * UNSAVED_SHARE:
            _save(path, index, held)
            saved = len(held)
        return cls(index, held, saved)

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared with a query; else likely ones are."""
        return is_exact(self._index)

    def vectors(
        self, keys: Int64[np.ndarray, " models"]
    ) -> Float32[np.ndarray, "models dim"] | None:
        """The vectors of some models as an exact index holds them; None unless it holds all."""
        if not self.is_exact:
            return None
        positions = np.searchsorted(self.keys, keys)
        is_inside = positions < len(self.keys)
        if not is_inside.all() or not (self.keys[positions] == keys).all():
            return None
        rows: Float32[np.ndarray, "models dim"] = self._index.reconstruct_batch(positions)
        return rows

    def nearest(
        self,
        query: Float32[np.ndarray, " dim"],
        n: int,
        allowed: Int64[np.ndarray, " allowed"] | None = None,
    ) -> Int64[np.ndarray, " candidates"]:
        """Keys of at least the `n` nearest of a family that is compared as a whole, with all that
        single precision cannot tell from the last; of `n` likely ones of a larger family."""
        if not self.is_exact:
            return coarse_search(self._index, query, n, allowed)
        n_allowed = len(self.keys) if allowed is None else len(allowed)
        parameters = None
        if allowed is not None:
            positions = np.searchsorted(self.keys, allowed)
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorArray(positions))  # type: ignore[call-arg]
        n, fetched = min(n, n_allowed), min(2 * n, n_allowed)
        if not fetched:
            return self.keys[:0]
        while True:
            with threads_for(self._index.ntotal * self._index.d):
                scores, positions = self._index.search(query[None, :], fetched, params=parameters)
            as_good = scores[0] >= scores[0][n - 1] - CLOSE
            if fetched == n_allowed or not as_good[-1]:
                keys: Int64[np.ndarray, " candidates"] = self.keys[positions[0][as_good]]
                return keys
            fetched = min(2 * fetched, n_allowed)

    def scan(self, query: Float32[np.ndarray, " dim"], n: int) -> None:
        """Run the FAISS part of a search and return nothing, for benchmarks."""
        if self.is_exact:
            self._index.search(query[None, :], n)
        else:
            coarse_search(self._index, query, n, None)


def _sample(fetch: Fetch, keys: Int64[np.ndarray, " models"]) -> Float32[np.ndarray, "sample dim"]:
    """Vectors that train a coarse index, spread over the family; none for an exact one."""
    size = min(len(keys), training_size(len(keys)))
    places = np.linspace(0, len(keys) - 1, size).astype(np.int64)
    return fetch(keys[np.unique(places)])[1]


def load_index(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
    """The index in a file and its keys; None if it is missing, damaged or of another kind."""
    nothing = np.zeros(0, dtype=np.int64)
    try:
        note = json.loads(path.with_suffix(".json").read_text("utf-8"))
        keys = np.array(note["keys"], dtype=np.int64)
        file = path.with_suffix(".faiss")
        if _crc32(file, dim, keys) != note["crc32"] or note["dim"] != dim:
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
    """Write the index, then its metadata; where the system refuses, it stays in memory."""
    file = path.with_suffix(".faiss")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as temporary:
            faiss.write_index(index, str(temporary))
            crc32 = _crc32(temporary, index.d, keys, file.name)
            note = {"crc32": crc32, "dim": index.d, "keys": keys.tolist()}
        write_atomically(path.with_suffix(".json"), json.dumps(note).encode())
    except (OSError, StoreFull, RuntimeError):
        log.info("cannot write the index beside the catalog; using memory")


def _crc32(path: Path, dim: int, keys: Int64[np.ndarray, " models"], name: str = "") -> int:
    """Checksum of a file, its name, which is of the family and the recipe, and what is noted of
    it."""
    value = zlib.crc32(f"{name or path.name} {dim}\n".encode() + keys.astype("<i8").tobytes())
    with path.open("rb") as file:
        while piece := file.read(CHECKED_AT_ONCE):
            value = zlib.crc32(piece, value)
    return value
