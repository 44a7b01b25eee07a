"""What the formulas read: tensors in float32, finite, of the right shape, and their scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from ...errors import ModelError
from ..checkpoint import Checkpoint
from ..delta import Delta

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


@dataclass(frozen=True, slots=True)
class Scale:
    """alpha / divisor.

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
        """The number to multiply with."""
        alpha = self.alpha if self.tensor is None else float(tensors.read(self.tensor))
        return 1.0 if alpha is None else alpha / self.divisor


def own_alpha(kinds: dict[str, str], tensors: Tensors) -> str | None:
    """The tensor in which a module stores an alpha of its own, if it does.

    Raises:
        ModelError: it is not one number of a floating type.
    """
    name = kinds.get("alpha")
    if name is not None and tensors.vector(name) != 1:
        raise tensors.misfit(name, "a single number")
    return name


def require_parts(module: str, kinds: dict[str, str], wanted: tuple[str, ...]) -> None:
    """Pass if a module has all the factors that its formula takes.

    Raises:
        ModelError: `missing-tensor`, naming what is there.
    """
    missing = [kind for kind in wanted if kind not in kinds]
    if missing:
        raise ModelError(
            "missing-tensor",
            f"module {module!r} has {', '.join(sorted(kinds))} but no {', '.join(missing)}",
        )
