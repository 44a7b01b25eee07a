"""Some models' sketches side by side, half precision, multiplied as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import faiss
import numpy as np
from jaxtyping import Float32, Float64

from ...records import Slot
from ..sharing import Connection

NO_LENGTH = -1.0
"""Instead of the length of a row that holds nothing: what is divided by it stays nothing."""

Layout = Mapping[Slot, slice]
"""The columns of each slot, which together are all columns."""


class SketchMatrix:
    """A row of features a model; zeros for a slot that it lacks.

    FAISS holds the numbers: it multiplies float16 without making float32 of them first, which
    takes a third of NumPy's time. Rows are given out as copies, for its memory is its own.

    Attributes:
        lengths: Of every row; `NO_LENGTH` where there is nothing.
    """

    def __init__(self, layout: Layout, n_models: int) -> None:
        self.layout = layout
        self.width = max((columns.stop for columns in layout.values()), default=0)
        stored = max(self.width, 1)
        self._index = faiss.IndexScalarQuantizer(
            stored, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        n_bytes = n_models * stored * 2
        self._index.codes.resize(n_bytes)
        self._index.ntotal = n_models
        memory = faiss.rev_swig_ptr(self._index.codes.data(), n_bytes)
        self._halves = memory.view("<f2").reshape(n_models, stored)
        self.lengths: Float64[np.ndarray, " models"] = np.full(n_models, NO_LENGTH)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def fill(self, rows: Sequence[tuple[int, Slot, bytes]]) -> None:
        """Set every row from (row, slot, sketch) as the catalog keeps them."""
        self._halves[:] = 0
        for row, slot, sketch in rows:
            self._halves[row, self.layout[slot]] = np.frombuffer(sketch, dtype="<f2")
        for row, halves in enumerate(self._halves):
            values = halves.astype(np.float64)
            self.lengths[row] = np.sqrt(values @ values) or NO_LENGTH

    def memory_of(self, row: int) -> memoryview:
        """The bytes of one row, to be written into."""
        return memoryview(self._halves[row].view(np.uint8))

    def dots(
        self, vectors: Float32[np.ndarray, "vectors features"]
    ) -> Float32[np.ndarray, "models vectors"]:
        """Inner products of every row with some vectors, to about 1e-5 of their size."""
        products = np.zeros((len(self), len(vectors)), dtype=np.float32)
        if len(self) and self.width:
            scores, rows = self._index.search(np.ascontiguousarray(vectors), len(self))
            np.put_along_axis(products.T, rows, scores, axis=1)
        return products

    def rows(self) -> Float64[np.ndarray, "models columns"]:
        """All rows."""
        rows: Float64[np.ndarray, "models columns"] = self._halves[:, : self.width].astype(
            np.float64
        )
        return rows

    def some(self, chosen: Sequence[int]) -> SketchMatrix:
        """Some rows, in that order."""
        few = SketchMatrix(self.layout, len(chosen))
        few._halves[:] = self._halves[list(chosen)]
        few.lengths[:] = self.lengths[list(chosen)]
        return few

    def weighted_sum(
        self, weights: Float64[np.ndarray, " models"]
    ) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """Σ weight × row, slot by slot. Peak: one slot of all rows."""
        return {
            slot: weights @ self._halves[:, columns].astype(np.float64)
            for slot, columns in self.layout.items()
        }

    def of(self, row: int) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """One model's sketches, slot by slot, but for slots of zeros: those it lacks."""
        values = self._halves[row].astype(np.float64)
        return {
            slot: values[columns] for slot, columns in self.layout.items() if values[columns].any()
        }

    def flat(
        self, sketches: Mapping[Slot, Float64[np.ndarray, " columns"]]
    ) -> Float64[np.ndarray, " features"]:
        """One model's sketches in this layout; slots that it does not have are left out."""
        vector = np.zeros(self.width)
        for slot, columns in self.layout.items():
            if slot in sketches:
                vector[columns] = sketches[slot]
        return vector


def lay_out(widths: Mapping[Slot, int]) -> Layout:
    """Columns for slots of these widths, in slot order."""
    layout, start = {}, 0
    for slot in sorted(widths):
        layout[slot] = slice(start, start + widths[slot])
        start += widths[slot]
    return layout


def fetch_matrix(connection: Connection, keys: Sequence[int], recipe: str) -> SketchMatrix:
    """The sketches of the models with these keys, in their order."""
    place = {key: row for row, key in enumerate(keys)}
    found = fetch_rows(connection, "model IN (SELECT unnest(?::BIGINT[]))", recipe, [list(keys)])
    matrix = SketchMatrix(lay_out({slot: len(sketch) // 2 for _, slot, sketch in found}), len(keys))
    matrix.fill([(place[key], slot, sketch) for key, slot, sketch in found])
    return matrix


def fetch_rows(
    connection: Connection, condition: str, recipe: str, values: list[object]
) -> list[tuple[int, Slot, bytes]]:
    """(key, slot, sketch) of the models that meet a condition, in no order."""
    found = connection.execute(
        "SELECT model, stack, layer, role, sketch FROM slots "
        f"WHERE recipe = ? AND sketch IS NOT NULL AND {condition}",
        [recipe, *values],
    )
    return [(key, Slot(*slot), sketch) for key, *slot, sketch in found]
