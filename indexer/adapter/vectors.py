"""VeRA and (IA)³: a vector or two a module, the rest shared or the base's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..delta import Delta, DenseDelta, LowRankDelta
from .scale import require_parts
from .tensors import Tensors
from .update import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class VeraUpdate:
    """ΔW = diag(b)·B·diag(d)·A, with A and B cut from matrices that all modules share.

    How many columns of A are this module's is not stored, so the base is asked.

    Attributes:
        b: Name of the out values.
        d: Name of the r values.
        shared_a: Name of the shared A, (r, widest in).
        shared_b: Name of the shared B, (widest out, r).
    """

    shape: tuple[int, int]
    b: str
    d: str
    shared_a: str
    shared_b: str
    needs_base: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return self.b, self.d, self.shared_a, self.shared_b

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """Its two factors. PEFT 0.21, `vera/layer.py: get_delta_weight`."""
        assert base is not None
        out, width = base.shape
        a, b = tensors.read(self.shared_a), tensors.read(self.shared_b)
        if width > a.shape[1]:
            raise tensors.misfit(self.shared_a, f"{width} columns, as the base's matrix has")
        left = tensors.read(self.b).reshape(-1, 1) * b[:out]
        return LowRankDelta(left, tensors.read(self.d).reshape(-1, 1) * a[:, :width])


def build_vera(
    module: str, kinds: dict[str, str], shared: dict[str, str], tensors: Tensors
) -> VeraUpdate:
    """The module's update, its headers checked.

    Raises:
        ModelError: `missing-tensor`, `shape-mismatch`, `unsupported-dtype`;
            `unsupported-adapter` if A and B were not saved.
    """
    if not {"vera_A", "vera_B"} <= shared.keys():
        raise ModelError(
            "unsupported-adapter",
            "VeRA without its shared matrices, which follow from a seed and from shapes of "
            "the whole base; save it with save_projection=True",
        )
    require_parts(module, kinds, ("vera_lambda_b", "vera_lambda_d"))
    b, d = kinds["vera_lambda_b"], kinds["vera_lambda_d"]
    rank, _ = tensors.matrix(shared["vera_A"])
    widest, rank_b = tensors.matrix(shared["vera_B"])
    out = tensors.vector(b)
    if rank != rank_b or tensors.vector(d) != rank:
        raise tensors.misfit(d, f"{rank} values, the rank of the shared matrices")
    if out > widest:
        raise tensors.misfit(b, f"at most {widest} values, the rows of the shared B")
    return VeraUpdate(
        shape=(out, UNKNOWN), b=b, d=d, shared_a=shared["vera_A"], shared_b=shared["vera_B"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ia3Update:
    """ΔW = W∘l − W: every row, or in feed-forward layers every column, is scaled.

    Attributes:
        vector: Name of l, (out, 1) or (1, in).
    """

    shape: tuple[int, int]
    vector: str
    needs_base: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.vector,)

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """W∘(l − 1). PEFT 0.21, `ia3/layer.py: merge`."""
        assert base is not None
        return DenseDelta(base * (tensors.read(self.vector) - 1.0))


def build_ia3(module: str, kinds: dict[str, str], tensors: Tensors) -> Ia3Update:
    """The module's update, its header checked.

    Raises:
        ModelError: `shape-mismatch`, `unsupported-dtype`.
    """
    vector = kinds["ia3_l"]
    rows, columns = tensors.matrix(vector)
    if 1 not in (rows, columns):
        raise tensors.misfit(vector, "(out, 1) or (1, in)")
    return Ia3Update(shape=(rows, UNKNOWN) if columns == 1 else (UNKNOWN, columns), vector=vector)
