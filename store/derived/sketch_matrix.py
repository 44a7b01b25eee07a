"""Some models' sketches side by side, half precision, multiplied as they are."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import faiss
import numpy as np
import pyarrow as pa

from ...arrays import Float, Float16, Float32, Float64, Int64
from ...records import Slot
from ..session import Session
from ..tables.slots import select_sketch_rows
from .shortlist import threads_for

NO_LENGTH = -1.0
"""The length of an empty row; zeros divided by it stay zeros."""

_ROWS_AT = 8
"""Where a FAISS index file says how many rows it has: after its kind and their width."""

_SIZE = struct.Struct("<Q")
"""How it ends what comes before the codes: with how many bytes they are."""


@dataclass(frozen=True, slots=True, eq=False)
class SketchColumns:
    """The columns of each slot, which together are all columns."""

    of_slot: Mapping[Slot, slice] = field(default_factory=dict)
    width: int = 0

    @classmethod
    def of(cls, widths: Mapping[Slot, int]) -> SketchColumns:
        """Slots of these widths, in slot order."""
        return cls().with_slots({slot: widths[slot] for slot in sorted(widths)})

    def with_slots(self, widths: Mapping[Slot, int]) -> SketchColumns:
        """The same columns, and further ones for the slots that have none yet."""
        of_slot, stop = dict(self.of_slot), self.width
        for slot, width in widths.items():
            if slot not in of_slot:
                of_slot[slot] = slice(stop, stop + width)
                stop += width
        return SketchColumns(of_slot, stop) if stop > self.width else self

    def covering(self, other: SketchColumns) -> SketchColumns:
        """The same columns, and further ones for the slots that only the other has."""
        return self if other is self else self.with_slots(other.widths)

    @property
    def widths(self) -> dict[Slot, int]:
        """Features of each slot."""
        return {slot: part.stop - part.start for slot, part in self.of_slot.items()}

    def spread(
        self, values: Float[np.ndarray, "rows columns"], columns: SketchColumns
    ) -> Float64[np.ndarray, "rows width"]:
        """Rows with other columns in these, which cover them."""
        if columns is self:
            return values.astype(np.float64)
        spread = np.zeros((len(values), self.width))
        for slot, part in columns.of_slot.items():
            spread[:, self.of_slot[slot]] = values[:, part]
        return spread


class SketchMatrix:
    """A row of features a model; zeros for a slot that it lacks.

    FAISS holds the numbers: it multiplies float16 without making float32 of them first, which
    takes a third of NumPy's time. Rows are given out as copies, for its memory is its own.

    Attributes:
        lengths: Of every row; `NO_LENGTH` where there is nothing.
        whole: The index that the rows are some of.
        places: Where they are in it.
    """

    def __init__(
        self,
        columns: SketchColumns,
        index: faiss.IndexScalarQuantizer,
        lengths: Float64[np.ndarray, " models"],
        places: Int64[np.ndarray, " models"],
    ) -> None:
        """The rows of `index` at some places, each another."""
        self.columns, self.lengths = columns, lengths
        self.whole, self.places = index, places
        width, n_rows = index.d, index.ntotal
        memory = faiss.rev_swig_ptr(index.codes.data(), 2 * width * n_rows)
        self._halves = memory.view("<f2").reshape(n_rows, width)

    @classmethod
    def of(
        cls, rows: pa.Table, keys: Sequence[int], columns: SketchColumns | None = None
    ) -> SketchMatrix:
        """Of the models with these keys, in their order, each but once.

        Args:
            rows: `model`, `stack`, `layer`, `role` and `sketch`, which is float16 numbers, in any
                order; those of other models are passed over.
            columns: By default those that the rows need.
        """
        place = {key: row for row, key in enumerate(keys)}
        starts, numbers = _numbers(rows.column("sketch"))
        widths: dict[Slot, int] = {}
        of_slot: dict[Slot, list[tuple[int, int]]] = {}
        names = ("model", "stack", "layer", "role")
        listed = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        spans = pairwise(starts.tolist())
        for (start, end), (key, stack, layer, role) in zip(spans, listed, strict=True):
            if key in place:
                slot = Slot(stack, layer, role)
                widths[slot] = end - start
                of_slot.setdefault(slot, []).append((place[key], start))
        matrix = cls._empty(columns or SketchColumns.of(widths), len(keys))
        for slot, width in widths.items():
            models, own_starts = np.array(of_slot[slot], dtype=np.int64).T
            values = numbers[own_starts[:, None] + np.arange(width)]
            matrix._halves[models, matrix.columns.of_slot[slot]] = values
        return matrix._measured()

    @classmethod
    def of_model(cls, sketches: Mapping[Slot, Float[np.ndarray, " features"]]) -> SketchMatrix:
        """One model's sketches."""
        columns = SketchColumns.of({slot: len(sketch) for slot, sketch in sketches.items()})
        matrix = cls._empty(columns, 1)
        for slot, sketch in sketches.items():
            matrix._halves[0, columns.of_slot[slot]] = sketch
        return matrix._measured()

    @classmethod
    def _empty(cls, columns: SketchColumns, n_models: int) -> SketchMatrix:
        index = empty_index(columns.width)
        index.codes.resize(n_models * index.code_size)
        index.ntotal = n_models
        return cls(columns, index, np.full(n_models, NO_LENGTH), np.arange(n_models))

    def _measured(self) -> SketchMatrix:
        """The same, once its rows are there and their lengths are known."""
        for row in range(len(self)):
            values = self.row(row)
            self.lengths[row] = np.sqrt(values @ values) or NO_LENGTH
        return self

    def __len__(self) -> int:
        return len(self.places)

    def dots(
        self, vectors: Float32[np.ndarray, "vectors features"]
    ) -> Float32[np.ndarray, "models vectors"]:
        """Inner products of every row with some vectors, to about 1e-5 of their size."""
        products = np.zeros((len(self), len(vectors)), dtype=np.float32)
        if len(self) and self.columns.width:
            wanted = np.zeros(self.whole.ntotal, dtype=bool)
            wanted[self.places] = True
            bits = np.packbits(wanted, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg, arg-type]
            with threads_for(len(self) * vectors.size):
                scores, places = self.whole.search(
                    np.ascontiguousarray(vectors),
                    len(self),
                    params=faiss.SearchParameters(sel=selector),  # type: ignore[call-arg]
                )
            order = np.argsort(self.places)
            rows = order[np.searchsorted(self.places[order], places)]
            np.put_along_axis(products.T, rows, scores, axis=1)
        return products

    def take(self, rows: Int64[np.ndarray, " rows"]) -> SketchMatrix:
        """Some of the rows, in that order."""
        return SketchMatrix(self.columns, self.whole, self.lengths[rows], self.places[rows])

    def row(self, row: int) -> Float64[np.ndarray, " columns"]:
        """One row."""
        # FAISS makes float32 of float16 several times as fast as NumPy
        values = np.asarray(self.whole.reconstruct(int(self.places[row])))
        return values[: self.columns.width].astype(np.float64)

    def halves(self, row: int) -> bytes:
        """One row as it is stored."""
        return self._halves[self.places[row], : self.columns.width].tobytes()

    def weighted_sum(
        self, weights: Float64[np.ndarray, " models"]
    ) -> Float64[np.ndarray, " columns"]:
        """Σ weight × row. Peak: one slot of all rows."""
        total = np.zeros(self.columns.width)
        for part in self.columns.of_slot.values():
            total[part] = weights @ self._halves[self.places, part].astype(np.float64)
        return total


def empty_index(width: int) -> faiss.IndexScalarQuantizer:
    """An index for rows of so many float16 numbers; of one, where there are none."""
    return faiss.IndexScalarQuantizer(
        max(width, 1), faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )


def index_header(width: int, n_rows: int) -> bytes:
    """How the file of an index of so many rows begins; the rows follow."""
    index = empty_index(width)
    index.add(np.zeros((1, index.d), dtype=np.float32))
    header = bytearray(faiss.serialize_index(index).tobytes()[: -index.code_size])
    struct.pack_into("<q", header, _ROWS_AT, n_rows)
    _SIZE.pack_into(header, len(header) - _SIZE.size, n_rows * index.code_size)
    return bytes(header)


def index_bytes(width: int, n_rows: int) -> int:
    """Bytes of the file of an index of so many rows."""
    return len(index_header(width, 0)) + n_rows * int(empty_index(width).code_size)


def fetch_matrix(session: Session, keys: Sequence[int], recipe: str) -> SketchMatrix:
    """The sketches of the models with these keys, in their order."""
    condition = "model IN (SELECT unnest(?::BIGINT[]))"
    return SketchMatrix.of(select_sketch_rows(session, condition, recipe, [list(keys)]), keys)


def _numbers(
    column: pa.ChunkedArray,
) -> tuple[Int64[np.ndarray, " starts"], Float16[np.ndarray, " numbers"]]:
    """Of a column of float16 numbers: where each value begins and the last one ends; and all."""
    values = pa.concat_arrays([pa.array([], pa.binary()), *column.chunks])
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, dtype="<i4")[: len(values) + 1].astype(np.int64)
    return starts // 2, np.frombuffer(data or b"", dtype="<f2")
