"""Fixed random hashes: the same for every model, slot by slot, from a seed alone."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch


def hash_rows(seed: int, key: str, n_rows: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A count-sketch hash of `n_rows` coordinates: buckets (int64) and signs (float32).

    Depends on its arguments only, on every machine: Philox keyed by a SHA-256 of them.
    """
    digest = hashlib.sha256(f"{seed}/{key}/{n_rows}/{dim}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    buckets = generator.integers(0, dim, size=n_rows, dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows, dtype=np.int8)
    return torch.from_numpy(buckets), torch.from_numpy(signs * 2.0 - 1.0).float()


def sketch_pair(
    left: torch.Tensor, right: torch.Tensor, seed: int, key: str, dim: int
) -> torch.Tensor:
    """Count sketches of the columns of two matrices, (n, rank) each: (rank, 2, dim), float32.

    Charikar, Chen, Farach-Colton 2002: inner products are kept in expectation. Both sides in
    one pass, under hashes of their own.
    """
    buckets, signs = _pair_hash(seed, key, len(left), len(right), dim)
    rows = torch.cat([left, right]).mul_(signs)
    sketch = torch.zeros(2 * dim, left.shape[1]).index_add_(0, buckets, rows)
    return sketch.T.contiguous().view(-1, 2, dim)


@lru_cache(maxsize=4096)
def _pair_hash(
    seed: int, key: str, n_left: int, n_right: int, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Buckets of both sides, the right's after the left's, and signs as a column."""
    left = hash_rows(seed, key + "/a", n_left, dim)
    right = hash_rows(seed, key + "/b", n_right, dim)
    return torch.cat([left[0], right[0] + dim]), torch.cat([left[1], right[1]])[:, None]
