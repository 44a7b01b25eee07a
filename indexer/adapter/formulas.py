"""What the formulas read: tensors in float32, finite, of the right shape, and their scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ..checkpoint import Checkpoint
from ..delta import Delta, DenseDelta, LowRankDelta, Scratch, flaw_of, update_against
from ..untrusted_text import shown
from .config import AdapterConfig

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


UNKNOWN = 0
"""A width that the method does not store: it is the base's."""

MAX_ELEMENTS = 1 << 30
"""The most of a Kronecker product, which squares what a file holds; no layer matrix has more."""

HADAMARD = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")

Kinds = Mapping[str, str]
"""A module's tensor names by factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleUpdate:
    """How one module's ΔW is computed.

    Attributes:
        shape: (out, in), `UNKNOWN` where only the base has it.
        names: The tensors that are read.
        delta: ΔW as a function of W, (out, in) in float32; None will do unless `needs_base`.
        rank: Of the stored factors; None where they do not show what `r` was.
    """

    shape: tuple[int, int]
    names: tuple[str, ...]
    delta: Callable[[torch.Tensor | None], Delta]
    needs_base: bool = False
    rank: int | None = None


def build_lora(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·B·A of LoRA and its derivatives: rsLoRA, DoRA, AdaLoRA, PiSSA, OLoRA.

    A is (r, in), B (out, r), AdaLoRA's diagonal E (r, 1), DoRA's row lengths (out,).
    """
    adaptive = "lora_E" in kinds or config.peft_type == "ADALORA"
    expected = ["lora_A", "lora_B"]
    expected += ["lora_E"] if adaptive else []
    expected += ["lora_magnitude_vector"] if config.dora else []
    _require_parts(module, kinds, expected)
    a, b = kinds["lora_A"], kinds["lora_B"]
    rank, width = tensors.matrix(a, may_be_empty=adaptive)
    out, rank_b = tensors.matrix(b, may_be_empty=adaptive)
    if rank != rank_b or out == 0:
        raise tensors.misfit(b, f"at least one row, and {rank} columns as {a!r} has rows")
    if width == 0:
        raise tensors.misfit(a, "at least one column")
    diagonal = kinds["lora_E"] if adaptive else None
    if diagonal is not None and tensors.vector(diagonal) != rank:
        raise tensors.misfit(diagonal, f"{rank} values")
    magnitude = kinds.get("lora_magnitude_vector")
    if magnitude is not None and tensors.vector(magnitude) != out:
        raise tensors.misfit(magnitude, f"{out} values")
    if config.start == "olora" and config.transposed_flag:
        raise ModelError(
            "unsupported-adapter",
            "OLoRA with fan_in_fan_out: PEFT factors such a matrix in the wrong direction",
        )
    scale = _lora_scale(module, kinds, tensors, config, adaptive=adaptive)

    def delta(base: torch.Tensor | None) -> Delta:
        """s·B·A, less the replaced part of W; with DoRA all rows brought to their length."""
        factor = scale.value(tensors)
        left, right = tensors.read(b) * factor, tensors.read(a)
        if diagonal is not None:
            right = right * tensors.read(diagonal).reshape(-1, 1)
        if base is not None and config.start:
            gone_left, gone_right = _replaced_part(base, config.start, len(right), factor)
            left, right = torch.cat((left, -gone_left), 1), torch.cat((right, gone_right))
        if magnitude is None or base is None:
            return LowRankDelta(left, right)
        moved = base + left @ right
        length = torch.linalg.vector_norm(moved, dim=1).clamp(min=torch.finfo(torch.float32).tiny)
        stretch = tensors.read(magnitude).reshape(-1) / length
        return DenseDelta(moved.mul_(stretch[:, None]).sub_(base))

    optional = tuple(name for name in (diagonal, magnitude) if name is not None)
    return ModuleUpdate(
        shape=(out, width),
        names=(a, b, *optional, *scale.names),
        delta=delta,
        needs_base=magnitude is not None or config.start != "",
        rank=None if adaptive else rank,
    )


def _replaced_part(
    base: torch.Tensor, start: str, rank: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of W that training began by taking out, as two factors.

    PiSSA: the first `rank` singular triplets. OLoRA: the first rows and columns of W = QR,
    which span the first columns of W. `lora/layer.py: pissa_init, olora_init`.
    """
    if start == "pissa":
        u, sigma, v = torch.linalg.svd(base, full_matrices=False)
        return u[:, :rank] * sigma[:rank], v[:rank]
    q = torch.linalg.qr(base[:, :rank]).Q
    return q * scale, q.T @ base


def _lora_scale(
    module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig, *, adaptive: bool
) -> Scale:
    """AdaLoRA divides by the rank before pruning, and reads alpha ≤ 0 as the rank."""
    rank = tensors.shape(kinds["lora_A"])[0]
    alpha = config.alpha if adaptive else config.alpha_of(module)
    if adaptive:
        if alpha is not None and alpha <= 0:
            alpha = float(rank)
        return Scale(alpha, (config.init_rank or float(rank)) + 1e-5)
    own = _own_alpha(kinds, tensors)
    if alpha is not None and ".lora_down" not in kinds["lora_A"]:
        own = None  # PEFT's names: PEFT reads alpha from the config alone
    return Scale(alpha, math.sqrt(rank) if config.rslora else float(rank), own)


def build_loha(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·(A₁·B₁) ∘ (A₂·B₂), low-rank while that is smaller: ∑ᵢⱼ (a₁ᵢ∘a₂ⱼ)(b₁ᵢ∘b₂ⱼ)ᵀ."""
    _require_parts(module, kinds, HADAMARD)
    names = tuple(kinds[kind] for kind in HADAMARD)
    out, rank, width = tensors.product(*names[:2])
    out_2, rank_2, width_2 = tensors.product(*names[2:])
    if (out, width) != (out_2, width_2):
        raise tensors.misfit(names[2], f"a product of shape {(out, width)}")
    scale = _product_scale(module, kinds, rank, tensors, config)

    def delta(base: torch.Tensor | None) -> Delta:
        factor = scale.value(tensors)
        a1, b1, a2, b2 = map(tensors.read, names)
        if rank * rank_2 >= min(out, width):
            return DenseDelta((a1 @ b1).mul_(a2 @ b2).mul_(factor))
        left = (a1[:, :, None] * a2[:, None, :]).flatten(1)  # (out, r·r)
        right = (b1[:, None, :] * b2[None, :, :]).flatten(0, 1)  # (r·r, in)
        return LowRankDelta(left * factor, right)

    return ModuleUpdate(shape=(out, width), names=(*names, *scale.names), delta=delta, rank=rank)


def build_lokr(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·(W₁ ⊗ W₂), where each side is stored whole or as two factors."""
    first, shape_1, rank_1 = _kronecker_side(module, kinds, tensors, "lokr_w1")
    second, shape_2, rank_2 = _kronecker_side(module, kinds, tensors, "lokr_w2")
    shape = (shape_1[0] * shape_2[0], shape_1[1] * shape_2[1])
    if shape[0] * shape[1] > MAX_ELEMENTS:
        line = f"ΔW has shape {shape}, more than {MAX_ELEMENTS} elements"
        raise ModelError("shape-mismatch", f"module {shown(module)}: {line}")
    scale = _product_scale(module, kinds, rank_2 or rank_1, tensors, config)

    def side(names: tuple[str, ...]) -> torch.Tensor:
        whole, *rest = map(tensors.read, names)
        return whole @ rest[0] if rest else whole

    def delta(base: torch.Tensor | None) -> Delta:
        left, right = side(first), side(second)
        return DenseDelta(torch.kron(left * scale.value(tensors), right))

    names = (*first, *second, *scale.names)
    return ModuleUpdate(shape=shape, names=names, delta=delta, rank=rank_2 or rank_1)


def _product_scale(
    module: str, kinds: Kinds, rank: int | None, tensors: Tensors, config: AdapterConfig
) -> Scale:
    """alpha / r; where both of LoKr's sides are whole, only the config knows r."""
    alpha, own = config.alpha_of(module), _own_alpha(kinds, tensors)
    if alpha is not None:
        own = None
    divisor = float(rank) if rank else config.rank_of(module)
    if divisor is None or (rank is None and own is not None):
        return Scale(None, 1.0)
    return Scale(alpha, divisor, own)


def _kronecker_side(
    module: str, kinds: Kinds, tensors: Tensors, side: str
) -> tuple[tuple[str, ...], tuple[int, int], int | None]:
    """(names, shape, rank) of one side; no rank where it is stored whole."""
    if side in kinds:
        return (kinds[side],), tensors.matrix(kinds[side]), None
    _require_parts(module, kinds, (f"{side}_a", f"{side}_b"))
    a, b = kinds[f"{side}_a"], kinds[f"{side}_b"]
    rows, rank, columns = tensors.product(a, b)
    return (a, b), (rows, columns), rank


def build_vera(module: str, kinds: Kinds, shared: Kinds, tensors: Tensors) -> ModuleUpdate:
    """ΔW = diag(b)·B·diag(d)·A, with A and B cut from matrices that all modules share.

    How many columns of A are this module's is not stored, so the base is needed.
    """
    if not {"vera_A", "vera_B"} <= shared.keys():
        raise ModelError(
            "unsupported-adapter",
            "VeRA without its shared matrices, which follow from a seed and from shapes of "
            "the whole base; save it with save_projection=True",
        )
    _require_parts(module, kinds, ("vera_lambda_b", "vera_lambda_d"))
    b, d = kinds["vera_lambda_b"], kinds["vera_lambda_d"]
    shared_a, shared_b = shared["vera_A"], shared["vera_B"]
    rank, _ = tensors.matrix(shared_a)
    widest, rank_b = tensors.matrix(shared_b)
    out = tensors.vector(b)
    if rank != rank_b or tensors.vector(d) != rank:
        raise tensors.misfit(d, f"{rank} values, the rank of the shared matrices")
    if out > widest:
        raise tensors.misfit(b, f"at most {widest} values, the rows of the shared B")

    def delta(base: torch.Tensor | None) -> Delta:
        assert base is not None
        rows, width = base.shape
        right, left = tensors.read(shared_a), tensors.read(shared_b)
        if width > right.shape[1]:
            raise tensors.misfit(shared_a, f"{width} columns, as the base's matrix has")
        left = tensors.read(b).reshape(-1, 1) * left[:rows]
        return LowRankDelta(left, tensors.read(d).reshape(-1, 1) * right[:, :width])

    names = (b, d, shared_a, shared_b)
    return ModuleUpdate(shape=(out, UNKNOWN), names=names, delta=delta, needs_base=True, rank=rank)


def build_ia3(kinds: Kinds, tensors: Tensors) -> ModuleUpdate:
    """ΔW = W∘l − W: every row, or in feed-forward layers every column, is scaled."""
    vector = kinds["ia3_l"]
    rows, columns = tensors.matrix(vector)
    if 1 not in (rows, columns):
        raise tensors.misfit(vector, "(out, 1) or (1, in)")

    def delta(base: torch.Tensor | None) -> Delta:
        assert base is not None
        return DenseDelta(base * (tensors.read(vector) - 1.0))

    shape = (rows, UNKNOWN) if columns == 1 else (UNKNOWN, columns)
    return ModuleUpdate(shape=shape, names=(vector,), delta=delta, needs_base=True)


def build_full_value(name: str, shape: tuple[int, int], tensors: Tensors) -> ModuleUpdate:
    """ΔW = stored − W, of a whole weight as `modules_to_save` leaves it.

    `shape` is as stored: in × out, if the base's module is GPT-2's Conv1D.
    """

    def delta(base: torch.Tensor | None) -> Delta:
        """The difference in the orientation that fits; of two that fit, the smaller."""
        assert base is not None
        tensors.read(name)
        stored = tensors.checkpoint.read(name)
        options = [m for m in (stored, stored.T) if m.shape == base.shape]
        if not options:
            raise tensors.misfit(name, f"{tuple(base.shape)}, as the base's matrix has")
        differences = [update_against(option, base, Scratch()) for option in options]
        return min(differences, key=lambda delta: delta.norm)

    return ModuleUpdate(shape=shape, names=(name,), delta=delta, needs_base=True)


def _own_alpha(kinds: Kinds, tensors: Tensors) -> str | None:
    name = kinds.get("alpha")
    if name is not None and tensors.vector(name) != 1:
        raise tensors.misfit(name, "a single number")
    return name


def _require_parts(module: str, kinds: Kinds, expected: Iterable[str]) -> None:
    missing = [kind for kind in expected if kind not in kinds]
    if missing:
        line = f"module {module!r} has {', '.join(sorted(kinds))} but no {', '.join(missing)}"
        raise ModelError("missing-tensor", line)
