"""Vectors as bytes: half-precision numbers, or eight bits a number where those take too many."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...arrays import Float32, UInt8
from ...errors import BadIndex

Form = Literal["float16", "int8"]

LARGEST_HALVES = 2_560
"""Numbers up to which a vector is stored in half precision: 5 KiB."""

BLOCK = 64
"""Numbers that share a scale where eight bits are kept of each."""

LENGTH_TOLERANCE = 0.02
"""By which a stored vector's length may differ from 1."""


def form_for(dim: int) -> Form:
    """How vectors of that length are stored."""
    return "float16" if dim <= LARGEST_HALVES else "int8"


def vector_bytes(dim: int, form: Form) -> int:
    """Bytes of one stored vector."""
    if form == "float16":
        return 2 * dim
    n_blocks = -(-dim // BLOCK)
    return n_blocks * (2 + BLOCK)


def encode_vectors(
    vectors: Float32[np.ndarray, "models dim"], form: Form
) -> UInt8[np.ndarray, "models bytes"]:
    """The bytes of unit vectors.

    In half precision a number x differs by at most 2⁻¹¹ |x| + 2⁻²⁵; with eight bits by at most
    1/250 of the largest of its `BLOCK` numbers, + 2⁻¹⁷.
    """
    if form == "float16":
        return vectors.astype("<f2").view(np.uint8)
    n, dim = vectors.shape
    blocks = np.zeros((n, -(-dim // BLOCK) * BLOCK), dtype=np.float32)
    blocks[:, :dim] = vectors
    blocks = blocks.reshape(n, -1, BLOCK)
    scales = (np.abs(blocks).max(axis=2) / 127).astype("<f2")
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)[:, :, None]
    codes = np.clip(np.rint(blocks / divisors), -127, 127).astype(np.int8)
    rows: UInt8[np.ndarray, "models bytes"] = np.concatenate(
        [scales.view(np.uint8), codes.reshape(n, -1).view(np.uint8)], axis=1
    )
    return rows


def decode_vectors(
    rows: UInt8[np.ndarray, "models bytes"], dim: int, form: Form
) -> Float32[np.ndarray, "models dim"]:
    """The vectors of some rows of bytes, of unit length.

    Raises:
        BadIndex: a number is not finite, or a vector's length is not 1.
    """
    if form == "float16":
        vectors = np.ascontiguousarray(rows).view("<f2").astype(np.float32)
    else:
        n_blocks = -(-dim // BLOCK)
        scales = np.ascontiguousarray(rows[:, : 2 * n_blocks]).view("<f2").astype(np.float32)
        codes = np.ascontiguousarray(rows[:, 2 * n_blocks :]).view(np.int8)
        with np.errstate(invalid="ignore"):
            blocks = codes.reshape(len(rows), n_blocks, BLOCK) * scales[:, :, None]
        vectors = np.ascontiguousarray(blocks.reshape(len(rows), -1)[:, :dim])
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.vecdot(vectors, vectors))
        is_unit = np.abs(lengths - 1.0) <= LENGTH_TOLERANCE
    if not is_unit.all():
        raise BadIndex(f"{int((~is_unit).sum())} vectors are not finite, or not of length 1")
    vectors /= lengths[:, None]
    return vectors
