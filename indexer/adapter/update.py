"""One module's update as every method offers it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from ..delta import Delta
from .tensors import Tensors

UNKNOWN = 0
"""A width that the method does not store: it is the base's."""


@runtime_checkable
class ModuleUpdate(Protocol):
    """How one module's ΔW is computed from a few named tensors."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in), `UNKNOWN` where only the base tells."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that are read."""
        ...

    @property
    def needs_base(self) -> bool: ...

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """ΔW; `base` is (out, in), and given wherever it is needed."""
        ...
