"""Whole weights stored in an adapter, as `modules_to_save` leaves them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..delta import Delta, Scratch, update_against
from .tensors import Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class FullValue:
    """ΔW = stored − W.

    Attributes:
        shape: As stored: in × out, if the base's module is GPT-2's Conv1D.
        name: Of the stored weight.
    """

    shape: tuple[int, int]
    name: str
    needs_base: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """The difference in the orientation that fits; of two that fit, the smaller."""
        assert base is not None
        tensors.read(self.name)
        stored = tensors.checkpoint.read(self.name)
        options = [m for m in (stored, stored.T) if m.shape == base.shape]
        if not options:
            raise tensors.misfit(self.name, f"{tuple(base.shape)}, as the base's matrix has")
        differences = [update_against(option, base, Scratch()) for option in options]
        return min(differences, key=lambda delta: delta.norm)
