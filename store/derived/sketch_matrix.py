"""Some models' sketches side by side, two bits a number, and the cosines between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from ...arrays import Bool, Float32, Float64, Int64, UInt8
from ...errors import StoreDamaged
from ...records import Recipe, Slot
from ..model_rows import block_dims
from ..session import Session, not_finite
from ..sketch_codes import (
    WEIGHT,
    bit_products,
    code_bytes,
    coded,
    decode,
    sketch_bytes,
    squared_lengths,
)
from ..tables.outcomes import select_sketch_rows

FEW = 4
"""Models that are compared bit by bit; with more, codes become numbers and are multiplied."""

ROWS_AT_ONCE = 512
"""Models whose codes become numbers at a time: one block takes 2 MB."""


class SketchMatrix:
    """The sketches of some models, which may lack slots.

    Attributes:
        dims: Numbers of each block of a slot.
        slots: What the second axis is.
        weights: What each block of a slot counts, 0…1; 0 where a model lacks it.
        codes: As `sketch_codes` defines them; may be a mapped file.
    """

    def __init__(
        self,
        dims: Mapping[str, int],
        slots: Sequence[Slot],
        weights: Float32[np.ndarray, "models slots blocks"],
        codes: UInt8[np.ndarray, "models slots bytes"],
    ) -> None:
        self.dims, self.slots = dict(dims), tuple(slots)
        self.weights, self.codes = weights, codes

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        keys: Sequence[int],
        recipe: Recipe,
        slots: Sequence[Slot] | None = None,
    ) -> SketchMatrix:
        """Of the models with these keys, in their order, each but once.

        Args:
            rows: `model`, `stack`, `layer`, `role` and `sketch`, in any order; those of other
                models are skipped.
            slots: By default those that the rows need.
        """
        place = {key: row for row, key in enumerate(keys)}
        names = ("model", "stack", "layer", "role", "sketch")
        listed = [
            (place[key], Slot(stack, layer, role), sketch)
            for key, stack, layer, role, sketch in zip(
                *(rows.column(name).to_pylist() for name in names), strict=True
            )
            if key in place
        ]
        if slots is None:
            slots = sorted({slot for _, slot, _ in listed})
        matrix = cls.empty(block_dims(recipe), slots, len(keys))
        column = {slot: i for i, slot in enumerate(slots)}
        for row, slot, sketch in listed:
            matrix._put(row, column[slot], sketch)
        return matrix

    @classmethod
    def of_model(cls, sketches: Mapping[Slot, bytes], recipe: Recipe) -> SketchMatrix:
        """One model's sketches."""
        return cls.of_rows([sketches], recipe)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[Slot, bytes]], recipe: Recipe) -> SketchMatrix:
        """Sketches that no catalog has as models, a row each."""
        slots = sorted({slot for row in rows for slot in row})
        matrix = cls.empty(block_dims(recipe), slots, len(rows))
        column = {slot: i for i, slot in enumerate(slots)}
        for place, row in enumerate(rows):
            for slot, sketch in row.items():
                matrix._put(place, column[slot], sketch)
        return matrix

    @classmethod
    def empty(cls, dims: Mapping[str, int], slots: Sequence[Slot], n_models: int) -> SketchMatrix:
        """Of models that have nothing yet."""
        weights = np.zeros((n_models, len(slots), len(dims)), dtype=np.float32)
        codes = np.zeros((n_models, len(slots), code_bytes(dims)), dtype=np.uint8)
        return cls(dims, slots, weights, codes)

    def _put(self, row: int, column: int, sketch: bytes) -> None:
        if len(sketch) == 2 * sum(self.dims.values()):
            if not np.isfinite(np.frombuffer(sketch, dtype=WEIGHT)).all():
                self.weights[row, column] = np.nan
                return
            sketch = coded(sketch, self.dims)
        if len(sketch) != sketch_bytes(self.dims):
            raise ValueError(f"a sketch of {len(sketch)} bytes, not {sketch_bytes(self.dims)}")
        at = len(self.dims) * WEIGHT.itemsize
        self.weights[row, column] = np.frombuffer(sketch[:at], dtype=WEIGHT)
        self.codes[row, column] = np.frombuffer(sketch[at:], dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, rows: Int64[np.ndarray, " rows"]) -> SketchMatrix:
        """Some of the rows, in that order."""
        return SketchMatrix(self.dims, self.slots, self.weights[rows], self.codes[rows])

    @property
    def has_sketches(self) -> Bool[np.ndarray, " models"]:
        """Whether a model has a sketch of any slot."""
        present: Bool[np.ndarray, " models"] = np.asarray(self.weights.any(axis=(1, 2)))
        return present

    def cosines(self, other: SketchMatrix) -> Float64[np.ndarray, "blocks models others"]:
        """The cosine of every pair of models over all slots, block by block.

        The mean over slots of each slot's cosine, by the slots' weights; a slot that one of two
        lacks counts as 0. Exact for the codes: equal sketches have equal cosines.
        Peak: the cosines, and one block of `ROWS_AT_ONCE` models as numbers.
        """
        cosines = np.zeros((len(self.dims), len(self), len(other)))
        for _, block, shares in self.shares(other):
            cosines[block] += shares
        return cosines

    def shares(
        self, other: SketchMatrix
    ) -> Iterator[tuple[Slot, int, Float64[np.ndarray, "models others"]]]:
        """What each slot and block adds to the cosines, for the slots that both have."""
        columns = {slot: column for column, slot in enumerate(other.slots)}
        own, others = self._scales, other._scales
        for column, slot in enumerate(self.slots):
            if slot not in columns:
                continue
            left, right = self.codes[:, column], other.codes[:, columns[slot]]
            start = 0
            for block, dim in enumerate(self.dims.values()):
                scales = np.multiply.outer(own[:, column, block], others[:, columns[slot], block])
                yield slot, block, scales * _products(left, right, start, dim)
                start += dim // 4

    @cached_property
    def _scales(self) -> Float64[np.ndarray, "models slots blocks"]:
        """What a slot's codes are multiplied by, so that inner products add up to cosines."""
        weights = self.weights.astype(np.float64)
        lengths = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
        scales = weights / np.where(lengths > 0, lengths, 1.0)
        start = 0
        for block, dim in enumerate(self.dims.values()):
            for column in range(len(self.slots)):
                squares = squared_lengths(self.codes[:, column], start, dim)
                scales[:, column, block] /= np.sqrt(squares)
            start += dim // 4
        return scales


def _products(
    left: UInt8[np.ndarray, "models bytes"],
    right: UInt8[np.ndarray, "others bytes"],
    start: int,
    dim: int,
) -> Float64[np.ndarray, "models others"]:
    """Inner products of one block's numbers: integers."""
    products = np.empty((len(left), len(right)))
    if len(right) <= FEW:
        for column in range(len(right)):
            products[:, column] = bit_products(left, right[column], start, dim)
        return products
    if len(left) <= FEW:
        return np.ascontiguousarray(_products(right, left, start, dim).T)
    numbers = decode(right, start, dim).T
    for row in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(row, row + ROWS_AT_ONCE)
        products[rows] = decode(left[rows], start, dim) @ numbers
    return products


def fetch_matrix(session: Session, keys: Sequence[int], recipe: Recipe) -> SketchMatrix:
    """The sketches of the models with these keys, in their order.

    Raises:
        StoreDamaged: a weight is not finite, or a sketch is of another size.
    """
    condition = "model IN (SELECT unnest(?::BIGINT[]))"
    rows = select_sketch_rows(session, condition, recipe.id, [list(keys)])
    return stored_matrix(session, rows, keys, recipe)


def stored_matrix(
    session: Session,
    rows: pa.Table,
    keys: Sequence[int],
    recipe: Recipe,
    slots: Sequence[Slot] | None = None,
) -> SketchMatrix:
    """`SketchMatrix.of` rows that the catalog has.

    Raises:
        StoreDamaged: a weight is not finite, or a sketch is of another size.
    """
    try:
        matrix = SketchMatrix.of(rows, keys, recipe, slots)
    except ValueError as err:
        raise StoreDamaged(f"{session.path}: damaged: {err}; index its family again") from err
    is_finite = np.isfinite(matrix.weights).all(axis=(1, 2))
    if not is_finite.all():
        n_models = int((~is_finite).sum())
        raise StoreDamaged(not_finite(session.path, f"sketches of {n_models} models"))
    return matrix
