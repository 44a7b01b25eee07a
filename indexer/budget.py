"""How much of a model is read: which rows of every matrix, chosen by the base alone, so that all
agree; and how many bytes that is.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch

from ..errors import BaseError, ModelError, RequestError
from .architecture import Key, PlacedModel, Placement
from .base import Base, BaseWeights
from .checkpoint import Checkpoint, RowBlock, TensorRef
from .delta import Delta, DenseDelta, LowRankDelta, flaw_of, frobenius

FOR_CONTENT = 0.92
"""Share of a budget that is spent on matrices: headers and requests take the rest."""

LEAST_SHARE, MOST_SHARE = 1e-4, 0.5
"""Below, there is hardly a row to read; above, reading everything costs little more."""

_SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[kmg]i?b)\s*", re.IGNORECASE)


def parse_budget(text: str, layer_bytes: int) -> float:
    """The share of the layer matrices' bytes that `2%` or `20MB` allows, to two digits.

    Raises:
        RequestError: not understood, or out of range.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise RequestError(f"budget {text!r}: expected a share such as 2% or a size such as 20MB")
    number, unit = float(match[1]), match[2].lower()
    share = number / 100 if unit == "%" else number * _SIZES[unit] / layer_bytes
    if share > MOST_SHARE:
        raise RequestError(
            f"budget {text}: that is {share:.0%} of the layers' {layer_bytes / 1e6:.0f} MB; at "
            f"most {MOST_SHARE:.0%} is read by rows: leave --budget out to read all"
        )
    if share < LEAST_SHARE:
        raise RequestError(f"budget {text}: less than {LEAST_SHARE:.2%} of the layers says nothing")
    digits = 1 - math.floor(math.log10(share))
    scale = 10.0**digits
    return math.floor(share * scale + 1e-9) / scale


def layer_bytes(base: BaseWeights) -> int:
    """Bytes of the base's layer matrices as they are stored."""
    total = 0
    for placement in base.placed.placements:
        ref = base.checkpoint.tensors[placement.tensor]
        value_bytes = (ref.stop - ref.start) // max(1, math.prod(ref.shape))
        total += math.prod(placement.shape) * value_bytes
    return total


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Some rows (`axis` 0) or columns (1) of one slot's (out, in) matrix."""

    axis: int
    start: int
    stop: int

    def cut(self, delta: Delta) -> Delta:
        """ΔW restricted to the part."""
        if isinstance(delta, DenseDelta):
            return DenseDelta(delta.matrix.narrow(self.axis, self.start, self.stop - self.start))
        if self.axis == 0:
            return LowRankDelta(delta.left[self.start : self.stop], delta.right)
        return LowRankDelta(delta.left, delta.right[:, self.start : self.stop])


def choose_parts(placed: PlacedModel, share: float) -> dict[Key, ReadPart]:
    """The part of every slot of a base: one block of stored rows, at a matrix's end or start.

    Ends and starts alternate in the order of the modules' names, which is that of most
    files: a matrix's last rows and the next one's first are one request.
    """
    parts: dict[Key, ReadPart] = {}
    in_order = sorted(placed.placements, key=lambda p: (p.module, p.index or 0, p.first_row))
    places: dict[object, int] = {}
    for placement in in_order:
        # Parts that share stored rows, as columns of one in × out matrix, share the block.
        block = (placement.module, placement.index) if placement.transposed else placement.key
        number = places.setdefault(block, len(places))
        axis = 1 if placement.transposed else 0
        size = placement.shape[axis]
        rows = max(1, math.floor(size * share * FOR_CONTENT))
        start = 0 if number % 2 else size - rows
        parts[placement.key] = ReadPart(axis, start, start + rows)
    return parts


def read_parts(
    checkpoint: Checkpoint, placements: Sequence[Placement], parts: Mapping[Key, ReadPart]
) -> Iterator[tuple[Placement, torch.Tensor]]:
    """Each placement's part as a matrix in its stored type, (out, in), as the bytes come in."""
    blocks_of = {
        p.key: list(_blocks(p, parts[p.key], checkpoint.tensors[p.tensor])) for p in placements
    }
    users: dict[RowBlock, list[Placement]] = {}
    for placement in placements:
        for block in blocks_of[placement.key]:
            users.setdefault(block, []).append(placement)
    held: dict[RowBlock, torch.Tensor] = {}
    for arrived, rows in checkpoint.stream_rows(list(users)):
        held[arrived] = rows
        for placement in list(users[arrived]):
            blocks = blocks_of[placement.key]
            if not held.keys() >= set(blocks):
                continue
            stored = torch.cat([held[block] for block in blocks])
            yield placement, placement.cut_rows(stored.T) if placement.transposed else stored
            for block in blocks:
                users[block].remove(placement)
                if not users[block]:
                    del held[block]


@dataclass(slots=True)
class BaseParts:
    """Which part of every matrix is read, and the base's own. Safe between threads.

    Peak: that share of the base's layers.
    """

    base: Base
    share: float
    _parts: Mapping[Key, ReadPart] | None = None
    _matrices: dict[Key, tuple[torch.Tensor, float]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def parts(self) -> Mapping[Key, ReadPart]:
        """The part of every slot; a `BaseError` where the base, which has its shape, is closed."""
        if self._parts is None:
            self._parts = choose_parts(self.base.weights().placed, self.share)
        return self._parts

    def matrix(self, key: Key) -> tuple[torch.Tensor, float]:
        """The base's part in its stored type, and its Frobenius norm; or a `BaseError`."""
        with self._lock:
            if self._matrices is None:
                self._matrices = self._read_all()
                self.base.say_what_was_kept()
            return self._matrices[key]

    def _read_all(self) -> dict[Key, tuple[torch.Tensor, float]]:
        """Every slot's part; once more where kept ranges may be what is wrong."""
        try:
            try:
                return dict(self._read(self.base.weights()))
            except (BaseError, ModelError):
                if not self.base.kept.forget():
                    raise
                return dict(self._read(self.base.weights()))
        except ModelError as err:
            raise BaseError(f"base {self.base.name}: {err.reason}") from err

    def _read(self, base: BaseWeights) -> Iterator[tuple[Key, tuple[torch.Tensor, float]]]:
        for placement, matrix in read_parts(base.checkpoint, base.placed.placements, self.parts):
            norm = frobenius(matrix)
            if flaw := flaw_of(norm, matrix):
                raise BaseError(f"base {self.base.name}: tensor {placement.tensor!r} {flaw}")
            yield placement.key, (matrix, norm)


def _blocks(placement: Placement, part: ReadPart, ref: TensorRef) -> Iterator[RowBlock]:
    """The stored rows of a part, as runs without a gap."""
    if placement.transposed != (part.axis == 1):
        line = f"tensor {placement.tensor!r} is stored the other way round than the base's"
        raise ModelError("layer-mismatch", f"{line}: index it without a budget")
    first = (placement.index or 0) * (ref.shape[-2] if len(ref.shape) > 2 else 0)
    if placement.transposed:
        yield RowBlock(placement.tensor, first + part.start, first + part.stop)
        return
    rows = placement.rows
    if rows is None:
        rows = slice(0, placement.shape[0])
    if isinstance(rows, slice):
        start = first + (rows.start or 0)
        yield RowBlock(placement.tensor, start + part.start, start + part.stop)
        return
    chosen = rows[part.start : part.stop]
    for _, run in groupby(enumerate(chosen), key=lambda pair: pair[1] - pair[0]):
        members = [row for _, row in run]
        yield RowBlock(placement.tensor, first + members[0], first + members[-1] + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What of a model's files is read, by the base's own.

    Attributes:
        base_bytes: Of the base's weight files; 0 where it is not open.
        layer_bytes: Of the base's layer matrices.
        row_bytes: Of the rows that are read of them under a budget.
        header_bytes: Of the base's weight files beside its tensors.
    """

    share: float = 1.0
    base_bytes: int = 0
    layer_bytes: int = 0
    row_bytes: int = 0
    header_bytes: int = 0

    @classmethod
    def by(cls, base: BaseWeights | None, share: float) -> WantedBytes:
        """By a base, as far as it is open."""
        if base is None:
            return cls(share=share)
        tensors = sum(ref.stop - ref.start for ref in base.checkpoint.tensors.values())
        total = base.checkpoint.bytes_total
        return cls(
            share=share,
            base_bytes=total,
            layer_bytes=layer_bytes(base),
            row_bytes=_row_bytes(base, share) if share < 1 else 0,
            header_bytes=max(0, total - tensors),
        )

    @property
    def of_base(self) -> int:
        """Bytes that are read of the base, once."""
        return self.of_full(self.base_bytes)

    def of(self, kind: str, file_bytes: int) -> int:
        """Bytes that are read of a model of this kind, an adapter or a full checkpoint.

        A full checkpoint whose size is not known (0) is taken to be as large as the base.
        """
        if kind == "adapter":
            return file_bytes
        return self.of_full(file_bytes or self.base_bytes)

    def of_full(self, file_bytes: int) -> int:
        """Bytes that are read of a full checkpoint, whose layers are the same share of it as the
        base's."""
        if self.share == 1 or not self.base_bytes:
            return round(self.share * file_bytes)
        rows = self.row_bytes * file_bytes / self.base_bytes
        return min(file_bytes, round(self.header_bytes + rows))


def _row_bytes(base: BaseWeights, share: float) -> int:
    total = 0
    for key, part in choose_parts(base.placed, share).items():
        placement = base.placed.by_key[key]
        ref = base.checkpoint.tensors[placement.tensor]
        value_bytes = (ref.stop - ref.start) // max(1, math.prod(ref.shape))
        total += (part.stop - part.start) * placement.shape[1 - part.axis] * value_bytes
    return total


ALL_BYTES = WantedBytes()
