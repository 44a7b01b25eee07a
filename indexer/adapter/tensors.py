"""An adapter's tensors as its formulas want them: float32, finite, of the right shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..checkpoint import Checkpoint

FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Tensors:
    """A checkpoint whose headers are checked before, and values after, they are read."""

    checkpoint: Checkpoint

    def shape(self, name: str) -> tuple[int, ...]:
        return self.checkpoint.tensors[name].shape

    def matrix(self, name: str, *, may_be_empty: bool = False) -> tuple[int, int]:
        """A factor's (rows, columns), from its header.

        Raises:
            ModelError: it is no matrix, empty, or not of a floating type.
        """
        self._require_float(name)
        shape = self.shape(name)
        if len(shape) != 2 or (0 in shape and not may_be_empty):
            raise self.misfit(
                name, "a matrix; was a sharded run saved without gathering its parts?"
            )
        return shape[0], shape[1]

    def vector(self, name: str) -> int:
        """How many values a vector holds, whatever its number of dimensions."""
        self._require_float(name)
        return math.prod(self.shape(name))

    def read(self, name: str) -> torch.Tensor:
        """The values in float32.

        Raises:
            ModelError: `non-finite`, or what reading raises.
        """
        values = self.checkpoint.read(name).float()
        if not bool(torch.isfinite(values).all()):
            raise ModelError("non-finite", f"{self.where(name)} holds NaN or infinity")
        return values

    def where(self, name: str) -> str:
        """The file and the name, to begin a reason with."""
        return f"{self.checkpoint.tensors[name].file}: tensor {name!r}"

    def misfit(self, name: str, expected: str) -> ModelError:
        """The error for a tensor of the wrong shape."""
        shape = self.shape(name)
        return ModelError(
            "shape-mismatch", f"{self.where(name)} has shape {shape}, expected {expected}"
        )

    def _require_float(self, name: str) -> None:
        dtype = self.checkpoint.tensors[name].dtype
        if dtype not in FLOATS:
            raise ModelError(
                "unsupported-dtype",
                f"{self.where(name)} is stored as {dtype}, expected {', '.join(FLOATS)}",
            )
