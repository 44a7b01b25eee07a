"""Memory that workers use again for every matrix: fresh pages cost more than the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from .checkpoint import Memory


@dataclass(slots=True)
class Scratch:
    """One worker's buffers by purpose; each holds what was put there last.

    Attributes:
        base_tensor: Name and value of the base's tensor in the buffer for it.
    """

    base_tensor: tuple[str, torch.Tensor] | None = None
    _buffers: dict[str, np.ndarray] = field(default_factory=dict)

    def bytes(self, purpose: str, size: int) -> np.ndarray:
        """That many bytes (uint8); their content is left from the last use."""
        buffer = self._buffers.get(purpose)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[purpose] = np.empty(size, np.uint8)
        return buffer[:size]

    def memory(self, purpose: str) -> Memory:
        """The buffer for `purpose`, as readers ask for it."""
        return partial(self.bytes, purpose)

    def float32(self, purpose: str, shape: tuple[int, ...]) -> torch.Tensor:
        """A float32 tensor of unset values."""
        values = self.bytes(purpose, 4 * math.prod(shape)).view(np.float32)
        return torch.from_numpy(values).reshape(shape)


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
