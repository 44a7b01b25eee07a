"""The factor between an adapter's product and ΔW."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ModelError
from .tensors import Tensors


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
