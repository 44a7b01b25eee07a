"""Memory that workers use again for every matrix: fresh pages cost more than the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class Scratch:
    """One worker's buffers by purpose; each holds what was put there last."""

    _buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def float32(self, purpose: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A float32 tensor of unset values."""
        size = math.prod(shape)
        buffer = self._buffers.get(purpose)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[purpose] = torch.empty(size)
        return buffer[:size].view(shape)


class ScratchPool:
    """As many `Scratch` as there ever were workers at once. Safe between threads."""

    def __init__(self) -> None:
        self._free: list[Scratch] = []

    @contextmanager
    def borrow(self) -> Iterator[Scratch]:
        """Buffers that are nobody else's until the block ends."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = Scratch()
        try:
            yield scratch
        finally:
            self._free.append(scratch)
