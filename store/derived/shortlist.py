"""The FAISS index inside: exact up to a size, beyond it a shortlist by one bit a dimension.

Measured in docs/benchmarks.md: above about 50,000 vectors of 2,048 numbers an exact scan takes
too long for an interactive query, and its memory is that of the vectors. RaBitQ codes (Gao, Long
2024, arXiv:2405.12497) in inverted lists take a 32nd of it; their first 128 hold the ten nearest,
and are scored exactly.

What all vectors have in common is taken out of those that are stored: it moves every score of a
query alike, but would draw most of them into one list, and queries into none of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import numpy as np

from ...arrays import Float32, Int64

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
    sums: Float32[np.ndarray, "models folded"] = np.einsum(
        "mpf,pf->mf", vectors.reshape(len(vectors), -1, FOLDED), signs.reshape(-1, FOLDED)
    )
    return sums


def n_lists(n_vectors: int) -> int:
    """2√n inverted lists: with √n, one list holds several datasets, and a query's is scattered."""
    return max(1, math.isqrt(4 * n_vectors))


def training_size(n_vectors: int) -> int:
    """How many vectors train an index for so many; 0 where it is exact."""
    return 0 if n_vectors <= FLAT_UP_TO else TRAINING_POINTS * n_lists(n_vectors)


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
    nearest: Int64[np.ndarray, " added"] = chosen[:, 0].copy()
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
    keys: Int64[np.ndarray, " candidates"] = labels[0][labels[0] >= 0]
    return keys
