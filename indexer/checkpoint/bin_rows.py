"""Rows of tensors in a torch archive: which bytes they are, and how few reads bring them.

Where an entry's content begins is known only from its local header, or, counted from its end, from
the descriptor behind it. One of the two is read beside the rows; nothing is taken to be where it
likely is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import torch

from .byte_source import Buffer, ByteSource
from .tensor_file import RowBlock, TensorRef, read_together
from .zip_entries import LOCAL_HEADER, Entry


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of one tensor, in one entry.

    Attributes:
        start: First byte within the entry's content.
        stop: One past the last; what lies between rows that are apart is included.
        shape: (rows, columns).
        steps: Elements from a row to the next, and from a column to the next.
    """

    block: RowBlock
    entry: Entry
    start: int
    stop: int
    dtype: torch.dtype
    shape: tuple[int, int]
    steps: tuple[int, int]

    @property
    def order(self) -> tuple[int, int, int, str, int]:
        """What rows are read by: their place in the file, then the tensor's name."""
        return self.entry.begin, self.start, self.stop, self.block.tensor, self.block.start

    def decode(self, stored: Buffer, *, swapped: bool) -> torch.Tensor:
        """The rows, contiguous and in memory of their own, from the bytes `start` to `stop`."""
        if not len(stored):
            return torch.empty(self.shape, dtype=self.dtype)
        content = torch.frombuffer(stored, dtype=torch.uint8).clone()
        if swapped:
            content = content.view(-1, self.dtype.itemsize).flip(1).reshape(-1)
        return content.view(self.dtype).as_strided(self.shape, self.steps).contiguous()


def stored_rows(
    block: RowBlock, ref: TensorRef, tensor: torch.Tensor, entry: Entry
) -> StoredRows | None:
    """Where a block's rows are; None where they are not one after the other in the storage.

    That is so in transposed and repeated tensors: any row is all over their storage.

    Args:
        tensor: On the meta device, with its place in its storage.
    """
    shape, steps = tuple(tensor.shape), tensor.stride()
    if len(shape) < 2 or not ref.stop:
        return None
    for size, step, outer in zip(shape[1:-1], steps[1:-1], steps[:-2], strict=True):
        if outer != size * step:
            return None
    columns, row_step, column_step = shape[-1], steps[-2], steps[-1]
    row_length = (columns - 1) * column_step + 1
    if row_step < row_length or column_step < 1:
        return None
    n_rows, width = block.stop - block.start, tensor.itemsize
    first = int(tensor.storage_offset()) + block.start * row_step
    length = (n_rows - 1) * row_step + row_length if n_rows else 0
    return StoredRows(
        block=block,
        entry=entry,
        start=first * width,
        stop=(first + length) * width,
        dtype=tensor.dtype,
        shape=(n_rows, columns),
        steps=(row_step, column_step),
    )


def local_rows(
    source: ByteSource, wanted: Iterable[StoredRows], *, swapped: bool
) -> Iterator[tuple[StoredRows, torch.Tensor]]:
    """The rows of a file at hand, in its order."""
    for rows in sorted(wanted, key=attrgetter("order")):
        head = source.read(rows.entry.begin, rows.entry.begin + LOCAL_HEADER)
        start = rows.entry.start_by_header(head, source.name)
        with source.view(start + rows.start, start + rows.stop) as stored:
            tensor = rows.decode(stored, swapped=swapped)
        yield rows, tensor


def remote_rows(
    source: ByteSource, wanted: Iterable[StoredRows], *, swapped: bool
) -> Iterator[tuple[StoredRows, torch.Tensor]]:
    """The rows of a file that is read by ranges, in its order."""
    reads = _reads(wanted, source.plan.row_gap)
    starts: dict[Entry, int] = {}
    for run in read_together(reads, source.plan.run, source.plan.row_gap):
        first, last = run[0][0], max(stop for _, stop, _ in run)
        buffer = memoryview(source.read(first, last))
        for start, stop, read in run:
            part = buffer[start - first : stop - first]
            entry = read.entry
            if read.rows is None:
                starts[entry] = entry.start_by_header(part, source.name)
                continue
            if entry not in starts:
                starts[entry] = _start_by_tail(source, entry, part)
            begin = starts[entry] + read.rows.start
            end = starts[entry] + read.rows.stop
            if start <= begin and end <= stop:
                stored: Buffer = part[begin - start : end - start]
            else:
                stored = source.read(begin, end)
            yield read.rows, read.rows.decode(stored, swapped=swapped)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a range is read for: rows, or an entry's header alone."""

    entry: Entry
    rows: StoredRows | None


def _reads(wanted: Iterable[StoredRows], gap: int) -> Iterator[tuple[int, int, _Read]]:
    """The ranges in which rows likely are, and what proves where they are."""
    by_entry: dict[Entry, list[StoredRows]] = {}
    for rows in sorted(wanted, key=attrgetter("order")):
        by_entry.setdefault(rows.entry, []).append(rows)
    for entry, of_entry in by_entry.items():
        start = max(entry.begin + LOCAL_HEADER, entry.likely_start)
        first, last = start + of_entry[0].start, start + of_entry[-1].stop
        is_near_end = entry.descriptor and 0 <= entry.end - last <= gap
        by_tail = len(of_entry) == 1 and is_near_end and first - entry.begin > gap
        if not by_tail:
            yield entry.begin, entry.begin + LOCAL_HEADER, _Read(entry, None)
        for rows in of_entry:
            stop = entry.end if by_tail else start + rows.stop
            yield start + rows.start, stop, _Read(entry, rows)


def _start_by_tail(source: ByteSource, entry: Entry, part: memoryview) -> int:
    """Where the content begins: counted from the descriptor, if that is what the part ends in."""
    if entry.is_described_by(part[len(part) - entry.descriptor :]):
        return entry.likely_start
    head = source.read(entry.begin, entry.begin + LOCAL_HEADER)
    return entry.start_by_header(head, source.name)
