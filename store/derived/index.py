"""The FAISS index of a family: caught up with the catalog, read from its file, or rebuilt; exact up
to a size, beyond it a shortlist by one bit a dimension.

Above about 50,000 vectors an exact scan takes too long for an interactive query. RaBitQ codes (Gao,
Long 2024, arXiv:2405.12497) in inverted lists take a 32nd of its memory; their first 128 hold the
ten nearest, and are scored exactly (docs/benchmarks.md). What all vectors have in common is taken
out of those stored: it would draw most of them into one list, and queries into none of it.
"""

from __future__ import annotations

import io
import logging
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np

from ...arrays import Float32, Int64
from ...errors import StoreFull
from ..files import atomic_file, write_atomically
from ..tables.outcomes import CLOSE, Fetch

log = logging.getLogger(__name__)

VectorsOf = Callable[[Int64[np.ndarray, " some"]], Float32[np.ndarray, "some dim"]]

BATCH = 16_384
"""Vectors that are fetched at a time."""

FLAT_UP_TO = 50_000
"""Vectors that are scanned exactly."""

CODE_BITS = 1
"""Bits of a code for each dimension. One bit needs 128 candidates where four need 28, but is made
23 times as fast; the vectors of candidates come from a file."""

QUERY_BITS = 8
"""Of a query that is compared with codes; 0, FAISS's default, is a hundred times slower."""

PROBED_LISTS = 64
TRAINING_ROUNDS = 64
TRAINING_POINTS = 8
"""For each inverted list and round. Every round draws other ones: of a family whose datasets are
smaller than its lists, whole datasets come to lie in one list (recall .99 instead of .92)."""

MEMORY = 0.96
"""What a list's sum keeps of itself from one round to the next. With as many points in eight
rounds, each from nothing, nine of ten members of a dataset lie in one list; so, 98 of a hundred."""

RETRAIN_AT = 4
"""Growth since training at which the index is rebuilt."""

OWN_INVERTED_LISTS = True

faiss.cvar.distance_compute_blas_threshold = 2
# several queries at once read the vectors once; FAISS's wheel reads them for each of up to 128,000

READ_ONCE = 3
"""Queries from which FAISS's scan of all at once is quicker than one after the other by NumPy: of
one it takes three times as long (24,000 vectors of 2,048 numbers: 16 ms instead of 5)."""

GATHERED = 5
"""To copy a vector takes as long as to multiply so many in their place."""

SMALL_SEARCH = 1 << 26
"""Products of two numbers up to which OpenMP's threads spin for longer than they work."""


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


def make_index(dim: int, keys: Int64[np.ndarray, " models"], fetch: Fetch) -> faiss.Index:
    """An empty index for the models with these keys, trained by some of them if it is coarse."""
    if len(keys) <= FLAT_UP_TO:
        return faiss.IndexFlatIP(dim)
    lists = n_lists(len(keys))
    coarse = faiss.IndexFlatIP(dim)
    codes = faiss.IndexIVFRaBitQ(
        coarse, dim, lists, faiss.METRIC_INNER_PRODUCT, OWN_INVERTED_LISTS, CODE_BITS
    )
    codes.own_fields = True
    centring = faiss.CenteringTransform(dim)
    index = faiss.IndexPreTransform(centring, codes)
    index.own_fields = True
    for owned in (coarse, codes, centring):
        owned.this.disown()  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    centring.train(next(_drawn(keys, BATCH, rng, lambda keys: fetch(keys)[1])))
    coarse.add(_centres(keys, lists, rng, lambda keys: centring.apply(fetch(keys)[1])))
    # the centres are there: this marks index and codes as trained
    index.train(coarse.reconstruct_n(0, 1))
    return index


def _drawn(
    keys: Int64[np.ndarray, " models"], n: int, rng: np.random.Generator, fetch: VectorsOf
) -> Iterator[Float32[np.ndarray, "some dim"]]:
    """Vectors of random models, some at a time."""
    drawn = np.sort(rng.choice(keys, min(n, len(keys)), replace=False))
    for start in range(0, len(drawn), BATCH):
        yield fetch(drawn[start : start + BATCH])


def _centres(
    keys: Int64[np.ndarray, " models"], n_lists: int, rng: np.random.Generator, fetch: VectorsOf
) -> Float32[np.ndarray, "lists dim"]:
    """Unit centres of lists: spherical k-means over mini-batches (Dhillon, Modha 2001; Sculley
    2010), whose older points fade. A list without points begins again at one of the last."""
    centres = np.concatenate(list(_drawn(keys, n_lists, rng, fetch)))
    sums = np.zeros_like(centres)
    for _ in range(TRAINING_ROUNDS):
        nearest = faiss.IndexFlatIP(centres.shape[1])
        nearest.add(centres)
        sums *= MEMORY
        last = centres
        for last in _drawn(keys, TRAINING_POINTS * n_lists, rng, fetch):
            of_list = nearest.search(last, 1)[1][:, 0]
            order = np.argsort(of_list, kind="stable")
            lists, starts = np.unique(of_list[order], return_index=True)
            sums[lists] += np.add.reduceat(last[order], starts, axis=0)
        is_empty = ~sums.any(axis=1)
        sums[is_empty] = last[rng.integers(0, len(last), is_empty.sum())]
        lengths = np.sqrt(np.vecdot(sums, sums))[:, None]
        centres = sums / np.where(lengths > 0, lengths, 1)
    return centres


def n_lists(n_vectors: int) -> int:
    """√(2n) inverted lists: a search reads 64 of them, a hundredth of ten million."""
    return max(1, math.isqrt(2 * n_vectors))


def add(
    index: faiss.Index, keys: Int64[np.ndarray, " added"], vectors: Float32[np.ndarray, "added dim"]
) -> None:
    """Append vectors; an exact index knows them by position, a coarse one by key."""
    vectors = np.ascontiguousarray(vectors)
    if is_exact(index):
        index.add(vectors)
    else:
        index.add_with_ids(vectors, keys)


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
            index, held = make_index(dim, keys, fetch), keys[:0]
        elif len(removed):
            remove(index, held, removed)
            held = kept
        new, added = keys[len(held) :], [held]
        for start in range(0, len(new), BATCH):
            present, vectors = fetch(new[start : start + BATCH])
            add(index, present, vectors)
            added.append(present)
        held = np.concatenate(added)
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
        flat, keys = faiss.downcast_index(self._index), self.keys
        assert isinstance(flat, faiss.IndexFlat)
        # in the index's own memory
        numbers = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
        vectors = np.asarray(numbers.reshape(flat.ntotal, flat.d))
        if allowed is None:
            scores = vectors @ query
        else:
            positions = np.flatnonzero(np.isin(keys, allowed))
            is_few = GATHERED * len(positions) < len(keys)
            scores = vectors[positions] @ query if is_few else (vectors @ query)[positions]
            keys = keys[positions]
        n = min(n, len(keys))
        if not n:
            return keys
        as_good = np.flatnonzero(scores >= np.partition(scores, -n)[-n] - CLOSE)
        return np.asarray(keys[as_good[np.argsort(-scores[as_good], kind="stable")]])

    def nearest_each(
        self, queries: Float32[np.ndarray, "queries dim"], n: int
    ) -> list[Int64[np.ndarray, " candidates"]]:
        """The same for several queries, among all: an exact index reads its vectors once."""
        fetched = min(2 * n, len(self.keys))
        if not self.is_exact or len(queries) < READ_ONCE or fetched <= n:
            return [self.nearest(query, n) for query in queries]
        threads = faiss.omp_get_max_threads()  # of the calling thread alone
        if self._index.ntotal * self._index.d <= SMALL_SEARCH:
            faiss.omp_set_num_threads(1)
        try:
            scores, positions = self._index.search(queries, fetched)
        finally:
            faiss.omp_set_num_threads(threads)
        as_good = scores >= scores[:, n - 1 : n] - CLOSE
        return [
            self.nearest(query, n) if is_good[-1] else np.asarray(self.keys[places[is_good]])
            for query, places, is_good in zip(queries, positions, as_good, strict=True)
        ]


def load_index(path: Path, dim: int) -> tuple[faiss.Index | None, Int64[np.ndarray, " models"]]:
    """The index in a file and its keys; None if it is missing, damaged or of another kind."""
    nothing = np.zeros(0, dtype=np.int64)
    file = path.with_suffix(".faiss")
    try:
        with np.load(path.with_suffix(".npz")) as note:
            keys, crc32 = note["keys"], int(note["crc32"])
        if crc32 != _crc32(file, dim, keys):
            raise ValueError("checksum")
        index = faiss.read_index(str(file))
        if index.ntotal != len(keys) or index.d != dim:
            raise ValueError("count or dimension")
    except FileNotFoundError:
        return None, nothing
    # whatever is wrong with files that can be made again
    except Exception:
        log.info("the search index was damaged; building it again from the catalog")
        return None, nothing
    return index, keys


def _save(path: Path, index: faiss.Index, keys: Int64[np.ndarray, " models"]) -> None:
    """Write the index, then its keys and checksum; where the system refuses, it stays in memory."""
    file, note = path.with_suffix(".faiss"), io.BytesIO()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file) as temporary:
            faiss.write_index(index, str(temporary))
            np.savez(note, keys=keys, crc32=_crc32(temporary, index.d, keys, file.name))
        write_atomically(path.with_suffix(".npz"), note.getvalue())
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
