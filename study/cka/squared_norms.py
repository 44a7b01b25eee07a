"""|XᵀY|² of every pair of layers, and the same without each block of rows.

Two forms of one number (|XᵀY|²_F = Σᵢⱼ (XXᵀ)ᵢⱼ (YYᵀ)ᵢⱼ): from the matrices XᵀY, whose cost is
linear in the rows, or from tiles of the kernels XXᵀ, whose cost is linear in the layers. Neither
holds a matrix of rows × rows. Products are float32, of rows of length about 1; sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...arrays import Float32, Float64

Form = Literal["features", "tokens"]
FORMS: tuple[Form, ...] = ("features", "tokens")

LONGEST_SIDE = 512
"""Rows of a tile of a kernel."""

First = Float32[np.ndarray, "layers rows dim"]
Second = Float32[np.ndarray, "others rows width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaredNorms:
    """|XᵀY|²_F over rows; first index: 0 of all rows, then without each block.

    Attributes:
        cross: Of each layer of the first with each of the second.
        first: Of each layer of the first with itself.
        second: Of each layer of the second with itself.
    """

    cross: Float64[np.ndarray, "subsets first_layers second_layers"]
    first: Float64[np.ndarray, "subsets first_layers"]
    second: Float64[np.ndarray, "subsets second_layers"]


def squared_norms(
    first: First, second: Second, blocks: Sequence[slice], form: Form | None = None
) -> SquaredNorms:
    """By the form that takes fewer operations, unless one is given; `blocks` cover the rows."""
    form = form or cheaper_form(first.shape, second.shape)
    return (by_features if form == "features" else by_tokens)(first, second, blocks)


def cheaper_form(first: tuple[int, ...], second: tuple[int, ...]) -> Form:
    """The form with fewer multiplications, by the shapes (layers, rows, dim) of the states."""
    (layers, rows, dim), (others, _, width) = first, second
    features = rows * (layers * others * dim * width + layers * dim**2 + others * width**2)
    tokens = rows**2 * (layers * dim + others * width + layers * others) // 2
    return "features" if features < tokens else "tokens"


def by_features(first: First, second: Second, blocks: Sequence[slice]) -> SquaredNorms:
    """From XᵀY, a pair of layers at a time. Peak: blocks · dim² float32."""
    return SquaredNorms(
        cross=np.stack(
            [np.stack([_norms(x, y, blocks) for y in second], axis=1) for x in first], axis=1
        ),
        first=np.stack([_norms(x, x, blocks) for x in first], axis=1),
        second=np.stack([_norms(y, y, blocks) for y in second], axis=1),
    )


def by_tokens(first: First, second: Second, blocks: Sequence[slice]) -> SquaredNorms:
    """From tiles of XXᵀ, all layers at once. Peak: layers · 512² float32."""
    n = len(blocks)
    cross = np.zeros((n, n, len(first), len(second)))
    own = [np.zeros((n, n, len(first))), np.zeros((n, n, len(second)))]
    for g, one in enumerate(blocks):
        for h, other in enumerate(blocks[: g + 1]):
            for rows, columns, twice in _tiles(one, other):
                tiles = [
                    (states[:, rows] @ states[:, columns].transpose(0, 2, 1)).reshape(
                        len(states), -1
                    )
                    for states in (first, second)
                ]
                cross[g, h] += twice * (tiles[0] @ tiles[1].T).astype(np.float64)
                for sums, tile in zip(own, tiles, strict=True):
                    sums[g, h] += twice * np.einsum("lk,lk->l", tile, tile)
    return SquaredNorms(cross=_subsets(cross), first=_subsets(own[0]), second=_subsets(own[1]))


def _norms(
    x: Float32[np.ndarray, "rows dim"],
    y: Float32[np.ndarray, "rows width"],
    blocks: Sequence[slice],
) -> Float64[np.ndarray, " subsets"]:
    """|C|² and |C − C_g|² = |C|² − 2⟨C, C_g⟩ + |C_g|², where C = Σ C_g over blocks g."""
    parts = np.stack([x[block].T @ y[block] for block in blocks]).reshape(len(blocks), -1)
    whole = parts.sum(axis=0, dtype=np.float64).astype(np.float32)
    total = float(np.einsum("i,i->", whole, whole, dtype=np.float64))
    inner = (parts @ whole).astype(np.float64)
    own = np.einsum("gi,gi->g", parts, parts, dtype=np.float64)
    return np.concatenate([[total], total - 2 * inner + own])


def _tiles(one: slice, other: slice) -> Iterator[tuple[slice, slice, int]]:
    """(rows, columns, how often it counts): tiles of two blocks, or of half of one block."""
    for rows in _cut(one):
        for columns in _cut(other):
            if one == other and columns.start > rows.start:
                continue
            yield rows, columns, 2 if one == other and columns.start < rows.start else 1


def _cut(block: slice) -> list[slice]:
    starts = range(block.start, block.stop, LONGEST_SIDE)
    return [slice(start, min(start + LONGEST_SIDE, block.stop)) for start in starts]


def _subsets(
    sums: Float64[np.ndarray, "blocks blocks *sizes"],
) -> Float64[np.ndarray, " subsets *sizes"]:
    """From sums over pairs of blocks g ≥ h: over all pairs, and over those without each block."""
    diagonal = np.stack([sums[g, g] for g in range(len(sums))])
    below = sums.copy()
    for g in range(len(sums)):
        below[g, g] = 0
    total = 2 * below.sum(axis=(0, 1)) + diagonal.sum(axis=0)
    touching = 2 * (below.sum(axis=0) + below.sum(axis=1)) + diagonal
    return np.concatenate([total[None], total - touching])
