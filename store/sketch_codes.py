"""A slot's sketch in two bits a number: encoded once, and multiplied as the codes are.

A block of a slot's sketch is D numbers that are Gaussian but for a scale: each is a sum of hundreds
of products with random signs. With its length divided out, a number is one of −3, −1, 1, 3 times a
step. For a Gaussian these four levels lose 12 % of the squares, 0.1 % more than the best four
(Max 1960). Codes are integers, so that their inner products are exact: in any order of addition
and on any processor.

A code x is 2a + b with a and b of ±1, and is stored as two planes of bits: inner products are
counts of equal bits.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Float, Float32, Float64, Int8, Int64, Shaped, UInt8, UInt64

THRESHOLD = 0.9957
"""Standard deviations from which a number is ±3 and not ±1 (Max 1960, four uniform levels)."""

CODED_COSINES = {
    0.0: 0.0, 0.2: 0.17647, 0.4: 0.35442, 0.6: 0.53536, 0.7: 0.62750, 0.8: 0.72124,
    0.85: 0.76905, 0.9: 0.81841, 0.93: 0.85025, 0.95: 0.87403, 0.97: 0.90259, 0.98: 0.92049,
    0.99: 0.94380, 0.995: 0.96027, 0.998: 0.97488, 0.999: 0.98223, 0.9999: 0.99438, 1.0: 1.0,
}  # fmt: skip
"""Cosine of two vectors of Gaussian numbers, and of their codes in the mean."""

MANY_NUMBERS = 8 * 10**10
"""Products of two numbers, two seconds of a processor, from which loading torch pays."""

FAST_WITH_BYTES = ("AVX2", "AVX512")
"""Capabilities of processors with which torch multiplies bytes faster than NumPy float32."""

WEIGHT = np.dtype("<f2")
"""How the weight of each block is stored, before the codes."""

Products = Callable[[np.ndarray, np.ndarray], np.ndarray]


def sketch_bytes(dims: Mapping[str, int]) -> int:
    """Bytes of a slot's sketch with blocks of these lengths, each a multiple of 8."""
    return len(dims) * WEIGHT.itemsize + code_bytes(dims)


def code_bytes(dims: Mapping[str, int]) -> int:
    """The same without the weights."""
    return sum(dims.values()) // 4


def row_type(
    dims: Mapping[str, int], slots: tuple[int, ...], **numbers: np.dtype[Any]
) -> np.dtype[Any]:
    """What sketches are in bytes, of one slot or of so many: numbers of each block by name, in
    bytes `weights` alone, then the codes."""
    numbers = numbers or {"weights": WEIGHT}
    fields = [(name, dtype, (*slots, len(dims))) for name, dtype in numbers.items()]
    return np.dtype([*fields, ("codes", np.dtype(np.uint8), (*slots, code_bytes(dims)))])


def encode_sketch(blocks: Sequence[Float[np.ndarray, " _"]], weights: Sequence[float]) -> bytes:
    """The bytes of a slot's sketch: a weight a block, 0…1, then each block's two planes of bits.

    A block of zeros has no direction: its weight is stored as 0.
    """
    lengths = [float(np.linalg.norm(block.astype(np.float64))) for block in blocks]
    stored = [w if length > 0 else 0.0 for w, length in zip(weights, lengths, strict=True)]
    parts = [np.array(stored, dtype=WEIGHT).tobytes()]
    for block, length in zip(blocks, lengths, strict=True):
        is_high = block > 0
        is_large = np.abs(block) > THRESHOLD * (length or 1.0) / np.sqrt(len(block))
        parts += [np.packbits(is_high).tobytes(), np.packbits(is_high == is_large).tobytes()]
    return b"".join(parts)


def decode(
    codes: UInt8[np.ndarray, "rows bytes"], start: int, dim: int
) -> Int8[np.ndarray, "rows dim"]:
    """The numbers of one block, −3 to 3, from rows of codes that have it at this byte."""
    middle = start + dim // 8
    pairs = codes[:, start:middle].astype(np.uint16) << 8
    pairs |= codes[:, middle : middle + dim // 8]
    values: Int8[np.ndarray, "rows dim"] = _numbers_of_pairs().take(pairs).view(np.int8)
    return values


@cache
def _numbers_of_pairs() -> UInt64[np.ndarray, " pairs"]:
    """The eight numbers of each pair of bytes, one of either plane."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).view(np.int8)
    return np.asarray(4 * bits[:, None] + 2 * bits - np.int8(3)).view(np.uint64).ravel()


def load_multiplier(n_numbers: int) -> None:
    """Load what multiplies numbers of a byte, where so many products are to come that it pays."""
    if n_numbers >= MANY_NUMBERS:
        importlib.import_module("torch")


def inner_products() -> Products:
    """What multiplies rows of decoded numbers with rows of others, exactly: as float32, or as
    bytes, two to four times as fast, which torch alone can do, where it is loaded."""
    # imported again, since another thread may have it half loaded
    torch = importlib.import_module("torch") if "torch" in sys.modules else None
    if torch is None or torch.backends.cpu.get_cpu_capability() not in FAST_WITH_BYTES:
        return lambda rows, others: rows.astype(np.float32) @ others.astype(np.float32).T
    return lambda rows, others: torch._int_mm(
        torch.from_numpy(rows), torch.from_numpy(others).T
    ).numpy()


def squared_lengths(
    codes: UInt8[np.ndarray, "rows slots bytes"], dims: Mapping[str, int]
) -> Float64[np.ndarray, "rows slots blocks"]:
    """The sum of squares of each block's numbers: 9 where both bits are equal, else 1."""
    words, planes = _words(codes, dims), _planes(tuple(dims.values()))
    crossed = _taken(words, words.take(planes.other, axis=2), planes.crossed)
    return np.asarray(planes.most - crossed)


def bit_products(
    rows: UInt8[np.ndarray, "rows slots bytes"],
    one: UInt8[np.ndarray, "slots bytes"],
    dims: Mapping[str, int],
) -> Float64[np.ndarray, "rows slots blocks"]:
    """Inner products of every slot's blocks of every row with those of one, from their bits alone.

    (2a + b)(2c + d) = 4ac + 2(ad + bc) + bd, and the sum of products of D signs is D less twice
    the number of those that differ.
    """
    words, own, planes = _words(rows, dims), _words(one[None], dims), _planes(tuple(dims.values()))
    straight = _taken(words, own, planes.straight)
    crossed = _taken(words, own.take(planes.other, axis=2), planes.crossed)
    return np.asarray(planes.most - straight - crossed)


def _word_bytes(dims: Collection[int]) -> int:
    return 8 if all(dim % 64 == 0 for dim in dims) else 1


def _words(
    codes: UInt8[np.ndarray, "rows slots bytes"], dims: Mapping[str, int]
) -> Shaped[np.ndarray, "rows slots words"]:
    """Codes as words, each of one plane of bits."""
    rows = codes if codes.strides[-1] == 1 else np.ascontiguousarray(codes)
    return rows.view(f"u{_word_bytes(dims.values())}")


class _Planes(NamedTuple):
    """Of blocks: the largest product of two; where each word of one plane has that of the other;
    and what a bit that differs takes from a product, from that of the same plane and from that of
    the other. All small integers, so exact."""

    most: Float64[np.ndarray, " blocks"]
    other: Int64[np.ndarray, " words"]
    straight: Float32[np.ndarray, "words blocks"]
    crossed: Float32[np.ndarray, "words blocks"]


@cache
def _planes(dims: tuple[int, ...]) -> _Planes:
    size = _word_bytes(dims)
    n_words, first = sum(dims) // 4 // size, 0
    other, straight = np.arange(n_words), np.zeros((n_words, len(dims)), np.float32)
    for block, dim in enumerate(dims):
        middle = first + dim // 8 // size
        high, low = slice(first, middle), slice(middle, first := 2 * middle - first)
        other[high], other[low] = other[low], other[high].copy()
        straight[high, block], straight[low, block] = 8.0, 2.0
    crossed = np.where(straight > 0, np.float32(4), straight)
    return _Planes(9.0 * np.array(dims), other, straight, crossed)


def _taken(
    left: Shaped[np.ndarray, "rows slots words"],
    right: Shaped[np.ndarray, "others slots words"],
    of_words: Float32[np.ndarray, "words blocks"],
) -> Float32[np.ndarray, "rows slots blocks"]:
    """What bits take that differ between every row and the same row of the right, or its one."""
    n_rows, n_slots, n_words = left.shape
    one, other = (side.reshape(len(side), n_slots * n_words) for side in (left, right))
    taken = np.empty((n_rows * n_slots, of_words.shape[1]), np.float32)
    with np.errstate():  # gives the buffer's size back
        # with room for more than one row, NumPy copies rows side by side before it works
        np.setbufsize(max(16, n_slots * n_words // 16 * 16))
        for start in range(0, n_rows, ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            counts = np.bitwise_count(one[some] ^ (other if len(other) == 1 else other[some]))
            numbers = counts.astype(np.float32).reshape(-1, n_words)
            # several times as fast as a sum
            taken[start * n_slots : (start + ROWS_AT_ONCE) * n_slots] = numbers @ of_words
    return taken.reshape(n_rows, n_slots, of_words.shape[1])


ROWS_AT_ONCE = 64
"""Rows whose words are compared at a time: they stay in the processor's cache."""


def true_cosines(coded: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """The cosines of sketches, from those of their codes: two bits make vectors less alike.

    As for Gaussian numbers with one cosine in all slots; copies stay at 1.
    """
    sizes = np.interp(np.abs(coded), list(CODED_COSINES.values()), list(CODED_COSINES))
    cosines: Float64[np.ndarray, "*shape"] = np.copysign(sizes, coded)
    return cosines
