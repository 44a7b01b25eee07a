"""The base under a budget: the parts of its matrices, read once and kept."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..errors import BaseError, ModelError
from .base import Base, Key
from .budget import Part, choose_parts, read_parts
from .fingerprint.factors import frobenius


@dataclass(slots=True)
class BaseParts:
    """Which part of every matrix is read, and the base's own. Safe between threads.

    Peak: that share of the base's layers.
    """

    base: Base
    share: float
    _parts: Mapping[Key, Part] | None = None
    _matrices: dict[Key, tuple[torch.Tensor, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def parts(self) -> Mapping[Key, Part]:
        """The part of every slot.

        Raises:
            BaseError: the base cannot be opened, which alone knows its shapes.
        """
        if self._parts is None:
            self._parts = choose_parts(self.base.weights().placed, self.share)
        return self._parts

    def matrix(self, key: Key) -> tuple[torch.Tensor, float]:
        """The base's part in its stored type, and its Frobenius norm.

        Raises:
            BaseError: it cannot be read, or holds NaN or infinity.
        """
        with self._lock:
            if not self._matrices:
                self._read()
        return self._matrices[key]

    def _read(self) -> None:
        weights = self.base.weights()
        try:
            for placement, matrix in read_parts(
                weights.checkpoint, weights.placed.placements, self.parts
            ):
                norm = frobenius(matrix)
                if not math.isfinite(norm):
                    line = f"tensor {placement.tensor!r} holds NaN or infinity"
                    raise BaseError(f"base {self.base.name}: {line}")
                self._matrices[placement.slot, placement.part] = (matrix, norm)
        except ModelError as err:
            self._matrices.clear()
            raise BaseError(f"base {self.base.name}: {err.reason}") from err
