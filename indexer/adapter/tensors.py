"""What the formulas read: tensors in float32, finite, of the right shape, and their scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..checkpoint import Checkpoint
from ..delta import flaw_of

FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Tensors:
    """A checkpoint whose headers are checked before, and values after, they are read.

    Headers raise `ModelError` as `shape-mismatch` or `unsupported-dtype`, values as `non-finite`.
    """

    checkpoint: Checkpoint

    def shape(self, name: str) -> tuple[int, ...]:
        return self.checkpoint.tensors[name].shape

    def matrix(self, name: str, *, may_be_empty: bool = False) -> tuple[int, int]:
        """A factor's (rows, columns)."""
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

    def product(self, a: str, b: str) -> tuple[int, int, int]:
        """(rows, rank, columns) of a·b."""
        (rows, rank), (rank_b, columns) = self.matrix(a), self.matrix(b)
        if rank != rank_b:
            raise self.misfit(b, f"{rank} rows, as many as {a!r} has columns")
        return rows, rank, columns

    def read(self, name: str) -> torch.Tensor:
        """The values in float32."""
        stored = self.checkpoint.read(name)
        values = stored.float()
        if not bool(values.isfinite().all()):
            raise ModelError("non-finite", f"{self._where(name)} {flaw_of(math.inf, stored)}")
        return values

    def misfit(self, name: str, expected: str) -> ModelError:
        line = f"{self._where(name)} has shape {self.shape(name)}, expected {expected}"
        return ModelError("shape-mismatch", line)

    def _require_float(self, name: str) -> None:
        dtype = self.checkpoint.tensors[name].dtype
        if dtype not in FLOATS:
            line = f"{self._where(name)} is stored as {dtype}, expected {', '.join(FLOATS)}"
            raise ModelError("unsupported-dtype", line)

    def _where(self, name: str) -> str:
        return f"{self.checkpoint.tensors[name].file}: tensor {name!r}"


@dataclass(frozen=True, slots=True)
class Scale:
    """alpha / divisor, the factor between an adapter's product and ΔW.

    Attributes:
        alpha: None where nothing states it: then the scale is 1.
        divisor: r, √r, or AdaLoRA's first rank.
        tensor: Where the module stores an alpha of its own, as kohya's scripts do.
    """

    alpha: float | None
    divisor: float
    tensor: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.tensor is None else (self.tensor,)

    def value(self, tensors: Tensors) -> float:
        alpha = self.alpha if self.tensor is None else float(tensors.read(self.tensor))
        return 1.0 if alpha is None else alpha / self.divisor
