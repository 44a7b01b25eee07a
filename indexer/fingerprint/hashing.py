"""Fixed random hashes: the same for every model, slot by slot, from a seed alone."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch


@lru_cache(maxsize=4096)
def hash_rows(seed: int, key: str, n_rows: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A count-sketch hash of `n_rows` coordinates: buckets (int64) and signs (float32).

    Depends on its arguments only, on every machine: Philox keyed by a SHA-256 of them.
    """
    digest = hashlib.sha256(f"{seed}/{key}/{n_rows}/{dim}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    buckets = generator.integers(0, dim, size=n_rows, dtype=np.int64)
    signs = generator.integers(0, 2, size=n_rows, dtype=np.int8)
    return torch.from_numpy(buckets), torch.from_numpy(signs * 2.0 - 1.0).float()


def count_sketch(matrix: torch.Tensor, seed: int, key: str, dim: int) -> torch.Tensor:
    """Count sketch of every column: (n_rows, rank) → (rank, dim), float32.

    Charikar, Chen, Farach-Colton 2002: inner products are kept in expectation.
    """
    buckets, signs = hash_rows(seed, key, matrix.shape[0], dim)
    sketch = torch.zeros(dim, matrix.shape[1])
    return sketch.index_add_(0, buckets, matrix * signs[:, None]).T.contiguous()
