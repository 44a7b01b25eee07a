"""Tensors that are computed of stored ones, in a checkpoint like any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from ...records import Verification
from .files import Checkpoint, RowBlock, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A tensor as a function of a stored checkpoint. `of`: the stored tensor in whose place in the
    file it is; `dtype`: of what `compute` gives, as safetensors spells it; `rows`: some of it,
    where that costs less; `error`: |rounding| / |W| of a part."""

    of: str
    shape: tuple[int, ...]
    compute: Callable[[Checkpoint], torch.Tensor]
    dtype: str = "F32"
    rows: Callable[[Checkpoint, RowBlock], torch.Tensor] | None = None
    error: Callable[[torch.Tensor], float] | None = None


def turned(ref: TensorRef) -> Derived:
    """The matrix with its rows as columns."""
    return Derived(
        of=ref.name,
        shape=ref.shape[::-1],
        compute=lambda stored: stored.read(ref.name).T.contiguous(),
        dtype=ref.dtype,
    )


class DerivedCheckpoint:
    """A checkpoint of which some tensors have another name, and others are computed, as `note`
    says. Peak: two computed tensors for each thread."""

    def __init__(
        self,
        stored: Checkpoint,
        names: Mapping[str, str],
        derived: Mapping[str, Derived],
        *,
        note: str,
    ) -> None:
        """`names`: the stored name of every tensor that is left as it is, by its new one."""
        self.stored, self.note = stored, note
        if isinstance(stored, DerivedCheckpoint):
            self.note = f"{stored.note}; {note}"
        self._names, self._derived = names, derived
        self.tensors: Mapping[str, TensorRef] = {
            name: replace(stored.tensors[old], name=name) for name, old in names.items()
        } | {
            name: replace(stored.tensors[d.of], name=name, shape=d.shape, dtype=d.dtype)
            for name, d in derived.items()
        }
        self.bytes_total, self.concurrent = stored.bytes_total, stored.concurrent
        self._last = threading.local()

    @property
    def bytes_read(self) -> int:
        return self.stored.bytes_read

    def read(self, name: str) -> torch.Tensor:
        derived = self._derived.get(name)
        if derived is None:
            return self.stored.read(self._names.get(name, name))
        if getattr(self._last, "name", None) != name:
            self._last.name, self._last.tensor = None, None
            self._last.tensor = derived.compute(self.stored)
            self._last.name = name
        tensor: torch.Tensor = self._last.tensor
        return tensor

    @contextmanager
    def view(self, name: str) -> Iterator[torch.Tensor]:
        if name in self._names:
            with self.stored.view(self._names[name]) as tensor:
                yield tensor
        else:
            yield self.read(name)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        wanted = dict.fromkeys(names)
        renamed = {self._names[name]: name for name in wanted if name in self._names}
        for old, tensor in self.stored.stream(renamed):
            yield renamed[old], tensor
        for name in wanted:
            if name not in self._names:
                yield name, self.read(name)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        wanted, names = list(blocks), self._names
        plain = {replace(b, tensor=names[b.tensor]): b for b in wanted if b.tensor in names}
        for old, rows in self.stored.stream_rows(plain):
            yield plain[old], rows
        for block in sorted(wanted, key=lambda b: (b.tensor, b.start)):
            if block.tensor not in names:
                yield block, self._rows(block)

    def relative_error(self, name: str, part: torch.Tensor) -> float:
        """|rounding| / |W| of a part of a tensor, beside that of its type."""
        derived = self._derived.get(name)
        if derived is not None and derived.error is not None:
            return derived.error(part)
        if isinstance(self.stored, DerivedCheckpoint):
            old = derived.of if derived is not None else self._names.get(name, name)
            return self.stored.relative_error(old, part)
        return 0.0

    @property
    def is_rounded(self) -> bool:
        below = isinstance(self.stored, DerivedCheckpoint) and self.stored.is_rounded
        return below or any(derived.error is not None for derived in self._derived.values())

    def _rows(self, block: RowBlock) -> torch.Tensor:
        rows = self._derived[block.tensor].rows
        if rows is not None:
            return rows(self.stored, block)
        return block.cut(self.read(block.tensor).flatten(0, -2)[block.start : block.stop])

    def verify(self) -> Verification | None:
        return self.stored.verify()

    def close(self) -> None:
        self.stored.close()
