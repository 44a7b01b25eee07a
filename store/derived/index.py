"""The FAISS index of a family: caught up with the catalog, read from its file, or rebuilt; exact up
to a size, beyond it a shortlist by one bit a dimension.

Above about 50,000 vectors an exact scan takes too long for an interactive query. RaBitQ codes (Gao,
Long 2024, arXiv:2405.12497) in inverted lists take a 32nd of its memory; their first 128 hold the
ten nearest, and are scored exactly (docs/benchmarks.md). What all vectors have in common is taken
out of those stored: it would draw most of them into one list, and queries into none of it.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import faiss
import numpy as np

from ...arrays import Float32, Int64
from ...errors import StoreFull
from ..files import atomic_file, write_atomically
from ..tables.outcomes import CLOSE, Fetch

FLAT_UP_TO = 50_000
"""Vectors that are scanned exactly."""

CODE_BITS = 1
"""Bits of a code for each dimension. One bit needs 128 candidates where four need 28, but is made
23 times as fast; the vectors of candidates come from a mapped file."""

QUERY_BITS = 8
"""Of a query that is compared with codes; 0, FAISS's default, is a hundred times slower."""

PROBED_LISTS = 64
TRAINING_POINTS = 40
"""For each inverted list."""

FOLDED = 256
"""Numbers of the vectors by which many vectors find their lists: an eighth of the work. Lists that
are trained with so few are worse: recall 0.945 instead of 0.987 among a million."""

CLEAR_LEAD = 0.2
"""Lead of the nearest list over the next, in lengths of the vector, from which folded vectors
decide: their inner products err by 0.06 (s.d.), and differences of two by 0.09."""

FOLDED_FROM = 1_000
"""Vectors that are added at a time; fewer find their lists by all numbers."""

RETRAIN_AT = 4
"""Growth since training at which the index is rebuilt."""

OWN_INVERTED_LISTS = True

faiss.cvar.distance_compute_blas_threshold = 2
# several queries at once read the vectors once; FAISS's wheel reads them for each of up to 128,000

SMALL_SEARCH = 1 << 26
"""Products of two numbers up to which OpenMP's threads spin for longer than they work."""


@contextmanager
def threads_for(n_products: int) -> Iterator[None]:
    """One thread for a small search; OpenMP's setting is that of the calling thread alone."""
    before = faiss.omp_get_max_threads()
    if n_products <= SMALL_SEARCH:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def is_exact(index: faiss.Index) -> bool:
    """Whether the index holds the vectors themselves."""
    return isinstance(faiss.downcast_index(index), faiss.IndexFlat)


def fits(index: faiss.Index, n_vectors: int) -> bool:
    """Whether the index is of the kind, and its lists of the size, for so many vectors."""
    if n_vectors <= FLAT_UP_TO:
        return is_exact(index)
    if is_exact(index):
        return False
    return bool(n_lists(n_vectors) <= RETRAIN_AT**0.5 * faiss.extract_index_ivf(index).nlist)


def make_index(dim: int, n_vectors: int, sample: Float32[np.ndarray, "sample dim"]) -> faiss.Index:
    """An empty index for so many vectors; `sample` trains it, where it is to be trained."""
    if n_vectors <= FLAT_UP_TO:
        return faiss.IndexFlatIP(dim)
    lists = n_lists(n_vectors)
    coarse = faiss.IndexFlatIP(dim)
    codes = faiss.IndexIVFRaBitQ(
        coarse, dim, lists, faiss.METRIC_INNER_PRODUCT, OWN_INVERTED_LISTS, CODE_BITS
    )
    codes.own_fields = True
    codes.cp.spherical = True
    codes.cp.niter = 8
    codes.cp.max_points_per_centroid = TRAINING_POINTS
    centring = faiss.CenteringTransform(dim)
    index = faiss.IndexPreTransform(centring, codes)
    index.own_fields = True
    for owned in (coarse, codes, centring):
        owned.this.disown()  # type: ignore[union-attr]
    index.train(sample)
    return index


def _folded(vectors: Float32[np.ndarray, "models dim"]) -> Float32[np.ndarray, "models folded"]:
    """Vectors of `FOLDED` numbers whose inner products are about the same: sums of numbers with
    random signs (Charikar et al. 2002)."""
    dim = vectors.shape[1]
    if dim <= FOLDED or dim % FOLDED:
        return np.ascontiguousarray(vectors)
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), size=dim)
    parts = vectors.reshape(len(vectors), -1, FOLDED)
    return np.asarray(np.einsum("mpf,pf->mf", parts, signs.reshape(-1, FOLDED)))


def n_lists(n_vectors: int) -> int:
    """2√n inverted lists: with √n, one list holds several datasets, and a query's is scattered."""
    return max(1, math.isqrt(4 * n_vectors))


def add(
    index: faiss.Index, keys: Int64[np.ndarray, " added"], vectors: Float32[np.ndarray, "added dim"]
) -> None:
    """Append vectors; an exact index knows them by position, a coarse one by key."""
    vectors = np.ascontiguousarray(vectors)
    if is_exact(index):
        index.add(vectors)
    elif len(keys) < FOLDED_FROM:
        index.add_with_ids(vectors, keys)
    else:
        lists = faiss.extract_index_ivf(index)
        whole = faiss.downcast_index(index)
        assert isinstance(whole, faiss.IndexPreTransform)
        centring = faiss.downcast_VectorTransform(whole.chain.at(0))  # type: ignore[attr-defined]
        centred = centring.apply(vectors)
        arrays = centred, keys.astype(np.int64), _nearest_lists(lists, centred)
        lists.add_core(len(keys), *(faiss.swig_ptr(array) for array in arrays))
        whole.ntotal = lists.ntotal


def _nearest_lists(
    lists: faiss.IndexIVF, centred: Float32[np.ndarray, "added dim"]
) -> Int64[np.ndarray, " added"]:
    """The list of each vector: by folded vectors, or by whole ones where these leave it open."""
    folded = _folded(centred)
    directions = faiss.IndexFlatIP(folded.shape[1])
    directions.add(_folded(lists.quantizer.reconstruct_n(0, lists.nlist)))
    scores, chosen = directions.search(folded, 2)
    nearest = chosen[:, 0].copy()
    lead = scores[:, 0] - scores[:, 1]
    is_open = lead < CLEAR_LEAD * np.sqrt(np.vecdot(centred, centred))
    if is_open.any():
        nearest[is_open] = lists.quantizer.search(centred[is_open], 1)[1][:, 0]
    return nearest


def remove(
    index: faiss.Index, held: Int64[np.ndarray, " models"], removed: Int64[np.ndarray, " removed"]
) -> None:
    """Take vectors out again; positions of an exact index close up."""
    ids = np.flatnonzero(np.isin(held, removed)) if is_exact(index) else removed
    index.remove_ids(faiss.IDSelectorBatch(ids.astype(np.int64)))


def copied(index: faiss.Index) -> faiss.Index:
    """The same index again: one that is searched must not be changed."""
    if is_exact(index):
        return faiss.clone_index(index)
    return faiss.deserialize_index(faiss.serialize_index(index))


def coarse_search(
    index: faiss.Index,
    query: Float32[np.ndarray, " dim"],
    n_candidates: int,
    allowed: Int64[np.ndarray, " allowed"] | None,
) -> Int64[np.ndarray, " candidates"]:
    """Keys of the likely nearest, best first. Of few allowed ones more lists are looked at."""
    ivf = faiss.extract_index_ivf(index)
    probed, selector = PROBED_LISTS, None
    if allowed is not None:
        selector = faiss.IDSelectorBatch(allowed)
        probed = math.ceil(probed * index.ntotal / max(1, len(allowed)))
    parameters = faiss.IVFRaBitQSearchParameters(
        nprobe=min(probed, ivf.nlist),  # type: ignore[call-arg]
        qb=QUERY_BITS,
        sel=selector,
    )
    # the codes alone: the query is not to be centred again
    _, labels = ivf.search(query[None, :], n_candidates, params=parameters)
    return np.asarray(labels[0][labels[0] >= 0])


log = logging.getLogger(__name__)

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
        """The index of some models: the last index or its file, caught up; else a new index. Keys
        rise; one that `fetch` does not give is left out. The path is that without an ending."""
        index, held, saved = None, keys[:0], 0
        if last is not None and fits(last._index, len(keys)):
            index, held, saved = copied(last._index), last.keys, last.saved
        elif len(keys) >= PERSIST_FROM:
            index, held = load_index(path, dim)
            if index is not None and not fits(index, len(keys)):
                index, held = None, keys[:0]
            saved = len(held)
        removed = np.setdiff1d(held, keys)
        kept = np.setdiff1d(held, removed)
        # every change comes with a new key: else the file is of another catalog, or of a later one
        # than this, which was put back
        is_ours = not len(kept) or len(kept) == np.searchsorted(keys, kept[-1], side="right")
        if index is None or not is_ours:
            index, held = make_index(dim, len(keys), _sample(fetch, keys)), keys[:0]
        elif len(removed):
            remove(index, held, removed)
            held = kept
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
        return np.asarray(self._index.reconstruct_batch(positions))

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
                return np.asarray(self.keys[positions[0][as_good]])
            fetched = min(2 * fetched, n_allowed)

    def nearest_each(
        self, queries: Float32[np.ndarray, "queries dim"], n: int
    ) -> list[Int64[np.ndarray, " candidates"]]:
        """The same for several queries, among all: an exact index reads its vectors once."""
        fetched = min(2 * n, len(self.keys))
        if not self.is_exact or len(queries) == 1 or fetched <= n:
            return [self.nearest(query, n) for query in queries]
        with threads_for(self._index.ntotal * self._index.d):
            scores, positions = self._index.search(queries, fetched)
        as_good = scores >= scores[:, n - 1 : n] - CLOSE
        return [
            self.nearest(query, n) if is_good[-1] else np.asarray(self.keys[places[is_good]])
            for query, places, is_good in zip(queries, positions, as_good, strict=True)
        ]


def _sample(fetch: Fetch, keys: Int64[np.ndarray, " models"]) -> Float32[np.ndarray, "sample dim"]:
    """Vectors that train a coarse index, spread over the family; none for an exact one."""
    needed = 0 if len(keys) <= FLAT_UP_TO else TRAINING_POINTS * n_lists(len(keys))
    size = min(len(keys), needed)
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
