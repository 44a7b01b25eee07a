"""LoRA and what grew from it: rsLoRA, DoRA, AdaLoRA, PiSSA, OLoRA."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..delta import Delta, DenseDelta, LowRankDelta
from .config import AdapterConfig
from .scale import Scale, own_alpha, require_parts
from .tensors import Tensors

Factors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraUpdate:
    """ΔW = s·B·A, and what is done with it.

    Attributes:
        a: Name of A, (r, in).
        b: Name of B, (out, r).
        e: Name of AdaLoRA's diagonal, (r, 1).
        magnitude: Name of DoRA's row lengths, (out,).
        start: `pissa` or `olora`: training replaced a part of W that follows from W.
    """

    shape: tuple[int, int]
    a: str
    b: str
    e: str | None
    magnitude: str | None
    scale: Scale
    start: str

    @property
    def names(self) -> tuple[str, ...]:
        optional = tuple(n for n in (self.e, self.magnitude) if n is not None)
        return (self.a, self.b, *optional, *self.scale.names)

    @property
    def needs_base(self) -> bool:
        return self.magnitude is not None or self.start != ""

    def delta(self, tensors: Tensors, base: torch.Tensor | None) -> Delta:
        """s·B·A, less the replaced part of W; with DoRA all rows brought to their length.

        PEFT 0.21, `lora/layer.py: get_delta_weight`, `lora/variants.py: DoraLinearVariant`,
        `adalora/layer.py: SVDLinear`.
        """
        scale = self.scale.value(tensors)
        left, right = tensors.read(self.b) * scale, tensors.read(self.a)
        if self.e is not None:
            right = right * tensors.read(self.e).reshape(-1, 1)
        if base is not None and self.start:
            gone_left, gone_right = _replaced_part(base, self.start, len(right), scale)
            left, right = torch.cat((left, -gone_left), 1), torch.cat((right, gone_right))
        if self.magnitude is None or base is None:
            return LowRankDelta(left, right)
        moved = base + left @ right
        length = torch.linalg.vector_norm(moved, dim=1).clamp(min=torch.finfo(torch.float32).tiny)
        factor = tensors.read(self.magnitude).reshape(-1) / length
        return DenseDelta(moved.mul_(factor[:, None]).sub_(base))


def _replaced_part(base: torch.Tensor, start: str, rank: int, scale: float) -> Factors:
    """The part of W that training began by taking out, as two factors.

    PiSSA: the first `rank` singular triplets. OLoRA: the first rows and columns of W = QR,
    which span the first columns of W. PEFT 0.21, `lora/layer.py: pissa_init, olora_init`.
    """
    if start == "pissa":
        u, sigma, v = torch.linalg.svd(base, full_matrices=False)
        return u[:, :rank] * sigma[:rank], v[:rank]
    q = torch.linalg.qr(base[:, :rank]).Q
    return q * scale, q.T @ base


def build_lora(
    module: str, kinds: dict[str, str], tensors: Tensors, config: AdapterConfig
) -> LoraUpdate:
    """The module's update, its headers checked.

    Raises:
        ModelError: `missing-tensor`, `shape-mismatch`, `unsupported-dtype`.
    """
    adaptive = "lora_E" in kinds or config.peft_type == "ADALORA"
    wanted = ["lora_A", "lora_B"]
    wanted += ["lora_E"] if adaptive else []
    wanted += ["lora_magnitude_vector"] if config.dora else []
    require_parts(module, kinds, tuple(wanted))
    a, b = kinds["lora_A"], kinds["lora_B"]
    rank, width = tensors.matrix(a, may_be_empty=adaptive)
    out, rank_b = tensors.matrix(b, may_be_empty=adaptive)
    if rank != rank_b or out == 0:
        raise tensors.misfit(b, f"at least one row, and {rank} columns as {a!r} has rows")
    if width == 0:
        raise tensors.misfit(a, "at least one column")
    if adaptive and tensors.vector(kinds["lora_E"]) != rank:
        raise tensors.misfit(kinds["lora_E"], f"{rank} values")
    magnitude = kinds.get("lora_magnitude_vector")
    if magnitude is not None and tensors.vector(magnitude) != out:
        raise tensors.misfit(magnitude, f"{out} values")
    if config.start == "olora" and config.transposed_flag:
        raise ModelError(
            "unsupported-adapter",
            "OLoRA with fan_in_fan_out: PEFT factors such a matrix in the wrong direction",
        )
    return LoraUpdate(
        shape=(out, width),
        a=a,
        b=b,
        e=kinds["lora_E"] if adaptive else None,
        magnitude=magnitude,
        scale=_scale(module, kinds, tensors, config, adaptive=adaptive),
        start=config.start,
    )


def _scale(
    module: str,
    kinds: dict[str, str],
    tensors: Tensors,
    config: AdapterConfig,
    *,
    adaptive: bool,
) -> Scale:
    """AdaLoRA divides by the rank before pruning, and reads alpha ≤ 0 as the rank."""
    rank = tensors.shape(kinds["lora_A"])[0]
    alpha = config.alpha if adaptive else config.alpha_of(module)
    if adaptive:
        if alpha is not None and alpha <= 0:
            alpha = float(rank)
        return Scale(alpha, (config.init_rank or float(rank)) + 1e-5)
    own = own_alpha(kinds, tensors)
    if alpha is not None and ".lora_down" not in kinds["lora_A"]:
        own = None  # PEFT's names: PEFT reads alpha from the config alone
    return Scale(alpha, math.sqrt(rank) if config.rslora else float(rank), own)
