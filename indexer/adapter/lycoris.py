"""LoHa and LoKr: Hadamard and Kronecker products of small matrices."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..delta import Delta, DenseDelta, LowRankDelta
from ..words import shown
from .config import AdapterConfig
from .scale import Scale, own_alpha, require_parts
from .tensors import Tensors

MAX_ELEMENTS = 1 << 30
"""Of a Kronecker product, which squares what a file holds; no layer matrix has more."""

HADAMARD = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")


@dataclass(frozen=True, slots=True, kw_only=True)
class LohaUpdate:
    """ΔW = s·(A₁·B₁) ∘ (A₂·B₂).

    Attributes:
        factors: Names of A₁ (out, r), B₁ (r, in), A₂, B₂.
        rank: Upper bound of ΔW's rank: the product of the two ranks.
    """

    shape: tuple[int, int]
    factors: tuple[str, str, str, str]
    rank: int
    scale: Scale
    needs_base: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.factors, *self.scale.names)

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """A low-rank form while that is smaller: ∑ᵢⱼ (a₁ᵢ∘a₂ⱼ)(b₁ᵢ∘b₂ⱼ)ᵀ.

        PEFT 0.21, `loha/layer.py: get_delta_weight`.
        """
        scale = self.scale.value(tensors)
        a1, b1, a2, b2 = map(tensors.read, self.factors)
        if self.rank >= min(self.shape):
            return DenseDelta((a1 @ b1).mul_(a2 @ b2).mul_(scale))
        left = (a1[:, :, None] * a2[:, None, :]).flatten(1)  # (out, r·r)
        right = (b1[:, None, :] * b2[None, :, :]).flatten(0, 1)  # (r·r, in)
        return LowRankDelta(left * scale, right)


def build_loha(
    module: str, kinds: dict[str, str], tensors: Tensors, config: AdapterConfig
) -> LohaUpdate:
    """The module's update, its headers checked.

    Raises:
        ModelError: `missing-tensor`, `shape-mismatch`, `unsupported-dtype`.
    """
    require_parts(module, kinds, HADAMARD)
    first = _product(kinds["hada_w1_a"], kinds["hada_w1_b"], tensors)
    second = _product(kinds["hada_w2_a"], kinds["hada_w2_b"], tensors)
    if first[::2] != second[::2]:
        raise tensors.misfit(kinds["hada_w2_a"], f"a product of shape {first[::2]}")
    a1, b1, a2, b2 = (kinds[kind] for kind in HADAMARD)
    return LohaUpdate(
        shape=(first[0], first[2]),
        factors=(a1, b1, a2, b2),
        rank=first[1] * second[1],
        scale=_scale(module, kinds, first[1], tensors, config),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LokrUpdate:
    """ΔW = s·(W₁ ⊗ W₂).

    Attributes:
        first: Name of W₁, or names of its two factors.
        second: The same of W₂.
    """

    shape: tuple[int, int]
    first: tuple[str, ...]
    second: tuple[str, ...]
    scale: Scale
    needs_base: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.first, *self.second, *self.scale.names)

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """The whole product. PEFT 0.21, `lokr/layer.py: get_delta_weight`."""
        first, second = _whole(self.first, tensors), _whole(self.second, tensors)
        return DenseDelta(torch.kron(first * self.scale.value(tensors), second))


def build_lokr(
    module: str, kinds: dict[str, str], tensors: Tensors, config: AdapterConfig
) -> LokrUpdate:
    """The module's update, its headers checked.

    Raises:
        ModelError: `missing-tensor`, `shape-mismatch`, `unsupported-dtype`, and
            `bad-config` where the scale hangs on a rank that is 0 or not stated.
    """
    first, shape_1, rank_1 = _kronecker_side(module, kinds, tensors, "lokr_w1")
    second, shape_2, rank_2 = _kronecker_side(module, kinds, tensors, "lokr_w2")
    shape = (shape_1[0] * shape_2[0], shape_1[1] * shape_2[1])
    if shape[0] * shape[1] > MAX_ELEMENTS:
        line = f"ΔW has shape {shape}, more than {MAX_ELEMENTS} elements"
        raise ModelError("shape-mismatch", f"module {shown(module)}: {line}")
    return LokrUpdate(
        shape=shape,
        first=first,
        second=second,
        scale=_scale(module, kinds, rank_2 or rank_1, tensors, config),
    )


def _scale(
    module: str,
    kinds: dict[str, str],
    rank: int | None,
    tensors: Tensors,
    config: AdapterConfig,
) -> Scale:
    """alpha / r; where both of LoKr's sides are whole, only the config knows r."""
    alpha, own = config.alpha_of(module), own_alpha(kinds, tensors)
    if alpha is not None:
        own = None
    divisor = float(rank) if rank else config.rank_of(module)
    if divisor is None or (rank is None and own is not None):
        return Scale(None, 1.0)
    if divisor <= 0:
        raise ModelError("bad-config", f"r of module {module!r} is {divisor:g}, expected ≥ 1")
    return Scale(alpha, divisor, own)


def _kronecker_side(
    module: str, kinds: dict[str, str], tensors: Tensors, side: str
) -> tuple[tuple[str, ...], tuple[int, int], int | None]:
    """(names, shape, rank) of one side; no rank where it is stored whole."""
    if side in kinds:
        return (kinds[side],), tensors.matrix(kinds[side]), None
    require_parts(module, kinds, (f"{side}_a", f"{side}_b"))
    a, b = kinds[f"{side}_a"], kinds[f"{side}_b"]
    rows, rank, columns = _product(a, b, tensors)
    return (a, b), (rows, columns), rank


def _product(a: str, b: str, tensors: Tensors) -> tuple[int, int, int]:
    """(rows, rank, columns) of a·b.

    Raises:
        ModelError: `shape-mismatch` if they cannot be multiplied.
    """
    (rows, rank), (rank_b, columns) = tensors.matrix(a), tensors.matrix(b)
    if rank != rank_b:
        raise tensors.misfit(b, f"{rank} rows, as many as {a!r} has columns")
    return rows, rank, columns


def _whole(names: tuple[str, ...], tensors: Tensors) -> torch.Tensor:
    if len(names) == 1:
        return tensors.read(names[0])
    return tensors.read(names[0]) @ tensors.read(names[1])
