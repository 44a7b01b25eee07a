"""ΔW of one module by each supported method, from a few named tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..delta import Delta, DenseDelta, LowRankDelta, Scratch, update_against
from ..untrusted_text import shown
from .config import AdapterConfig
from .tensors import UNKNOWN, Scale, Tensors, own_alpha, require_parts

_Factors = tuple[torch.Tensor, torch.Tensor]


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


def _replaced_part(base: torch.Tensor, start: str, rank: int, scale: float) -> _Factors:
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
        scale=_lora_scale(module, kinds, tensors, config, adaptive=adaptive),
        start=config.start,
    )


def _lora_scale(
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
        scale=_product_scale(module, kinds, first[1], tensors, config),
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
        scale=_product_scale(module, kinds, rank_2 or rank_1, tensors, config),
    )


def _product_scale(
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
