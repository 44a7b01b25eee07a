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
    file it is; `dtype`: of what `compute` gives, as safetensors spells it."""

    of: str
    shape: tuple[int, ...]
    compute: Callable[[Checkpoint], torch.Tensor]
    dtype: str = "F32"


class DerivedCheckpoint:
    """A checkpoint of which some tensors have another name, and others are computed. `rounding`:
    |error| / |W| of what is computed, and `note` says what it is. Peak: two computed tensors for
    each thread."""

    def __init__(
        self,
        stored: Checkpoint,
        names: Mapping[str, str],
        derived: Mapping[str, Derived],
        *,
        note: str,
        rounding: float = 0.0,
    ) -> None:
        """`names`: the stored name of every tensor that is left as it is, by its new one."""
        self.stored, self.note, self.rounding = stored, note, rounding
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
                flat = self.read(block.tensor).flatten(0, -2)
                yield block, block.cut(flat[block.start : block.stop])

    def verify(self) -> Verification | None:
        return self.stored.verify()

    def close(self) -> None:
        self.stored.close()
