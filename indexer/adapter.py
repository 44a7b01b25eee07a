"""An adapter's tensors and settings to ΔW, module by module.

An adapter of another method, or with the wrong tensors, is a `ModelError` with its code. Below are
other forms than PEFT's files: mlx-lm's, LoRA on stacked experts, a whole state dict of PEFT.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..errors import ModelError
from ..results import agree, count
from .adapter_config import (
    FAMILIES,
    FILE,
    MAX_PARTS,
    MAX_PATTERN,
    PARAMETERS,
    REFUSED,
    AdapterConfig,
    matches,
    read_config,
    refused_by_names,
)
from .adapter_methods import METHODS
from .architecture import has_factor, is_matrix, layer_modules, path_ends
from .checkpoint import Checkpoint, Config, Derived, DerivedCheckpoint, turned
from .delta import Delta, DenseDelta, LowRankDelta, Scratch, dense, flaw_of, update_against
from .untrusted_text import name_some, shown

WRAPPER_PREFIX = re.compile(
    r"^(?:(?:module\.|_orig_mod\.|_fsdp_wrapped_module\.)*base_model\.model\.)+"
)
WRAPPERS = ("base_layer", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
FACTOR = re.compile(
    r"lora_([ABE]|magnitude_vector)|alpha|hada_(w[12]_[ab]|t[12])|lokr_(w[12](_[ab])?|t2)|ia3_l"
    r"|vera_(lambda_[bd]|[AB])|"
    + "|".join(f for m in METHODS.values() for f in (*m.factors, *m.shared, *m.optional))
)
"""A part of a name that says which factor the tensor is."""

_JOINED = re.compile(r"\b(glora_[A-E]|psoft_R)\.(X[du]?|zeros|vector_[ab])$")
"""Factors that are modules of their own."""

SPELLINGS = {"lora_down": "lora_A", "lora_up": "lora_B"}
"""The same factors as kohya's scripts call them."""

VERA = ("vera_A", "vera_B")
SHARED = (*VERA, *(factor for method in METHODS.values() for factor in method.shared))
"""Factors stored once for all modules."""

SET_ASIDE = {
    "lora_embedding_A": "embedding",
    "lora_embedding_B": "embedding",
    "trainable_tokens_delta": "embedding",
    "trainable_tokens_original": "embedding",
    "ranknum": "bookkeeping",
    "original_module": "copy",
}
"""A name's part, and why its tensor is no part of a layer matrix's update."""

KOHYA_PREFIXES = ("lora_", "lycoris_")

_ASIDE = {
    "bias": "saved biases",
    "embedding": "updates of embeddings",
    "copy": "untouched copies of replaced modules",
    "quantised": "quantised weights, taken as the base's",
    "frozen": "frozen base_layer weights, taken as the base's",
    "other": "tensors of unknown use",
}


@dataclass(frozen=True, slots=True)
class TensorName:
    """An adapter tensor's name: the module's path in the model that the user wrapped; a `FACTOR`, a
    value of `SET_ASIDE`, `value` (a full `.weight`), `bias`, `variant` (a LoRA tensor of unknown
    use) or `other`."""

    module: str
    kind: str
    adapter: str
    wrapped: bool


def parse_name(name: str) -> TensorName:
    parts = _JOINED.sub(r"\1_\2", WRAPPER_PREFIX.sub("", name)).split(".")
    wrapped = "base_layer" in parts
    for index in reversed(range(len(parts))):
        part = parts[index]
        if part in SET_ASIDE:
            return TensorName(_module(parts[:index]), SET_ASIDE[part], "", wrapped)
        kind = SPELLINGS.get(part, part)
        if not FACTOR.fullmatch(kind) or (kind == "alpha" and index + 1 < len(parts)):
            continue
        if parts[-1] == "bias":
            kind = "bias"
        module = "" if kind in SHARED else _module(parts[:index])
        tail = [p for p in parts[index + 1 :] if p != "weight"]
        return TensorName(module, kind, ".".join(tail), wrapped)
    kind = {"weight": "value", "bias": "bias"}.get(parts[-1], "other")
    if any(part.startswith("lora_") for part in parts):
        kind = "variant"
    return TensorName(_module(parts[:-1]), kind, "", wrapped)


def _module(parts: list[str]) -> str:
    path, skip = [], False
    for part in parts:
        if not skip and part not in WRAPPERS and part != "modules_to_save":
            path.append(part)
        skip = part == "modules_to_save"
    return ".".join(path)


def is_wrapped(name: str) -> bool:
    """Whether a tensor is an adapter's factor, or of a module that something wraps."""
    return has_factor(name) or not set(WRAPPERS).isdisjoint(name.split("."))


FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Tensors:
    """A checkpoint whose headers (`shape-mismatch`, `unsupported-dtype`) and values (`non-finite`)
    are checked. `shared`: names by factor of what is stored once for all modules."""

    checkpoint: Checkpoint
    shared: dict[str, str] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.checkpoint.tensors[name].shape

    def matrix(self, name: str, *, may_be_empty: bool = False) -> tuple[int, int]:
        self._require_float(name)
        shape = self.shape(name)
        if len(shape) != 2 or (0 in shape and not may_be_empty):
            line = "a matrix; was a sharded run saved without gathering its parts?"
            raise self.misfit(name, line)
        return shape[0], shape[1]

    def vector(self, name: str) -> int:
        """How many values a vector holds, whatever its number of dimensions."""
        self._require_float(name)
        return math.prod(self.shape(name))

    def product(self, a: str, b: str) -> tuple[int, int, int]:
        """(rows, rank, columns) of a·b."""
        (rows, rank), (rank_b, columns) = self.matrix(a), self.matrix(b)
        if rank != rank_b:
            raise self.misfit(b, f"{count(rank, 'row')}, as many as {a!r} has columns")
        return rows, rank, columns

    def read(self, name: str) -> torch.Tensor:
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
        shape: (out, in), `UNKNOWN` where only the base has it; (expert, out, in) where experts are
            stacked, whose factors `delta` gives stacked, too.
        delta: ΔW as a function of W, (out, in) in float32; None will do unless `needs_base`.
        rank: Of the stored factors; None where they do not show what `r` was.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    delta: Callable[[torch.Tensor | None], Delta]
    needs_base: bool = False
    rank: int | None = None


def build_lora(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·B·A of LoRA and its derivatives: A is (r, in), B (out, r), AdaLoRA's diagonal E (r,
    1), DoRA's row lengths (out,)."""
    adaptive = "lora_E" in kinds or config.peft_type == "ADALORA"
    expected = ["lora_A", "lora_B"]
    expected += ["lora_E"] if adaptive else []
    expected += ["lora_magnitude_vector"] if config.dora else []
    _require_parts(module, kinds, expected)
    a, b = kinds["lora_A"], kinds["lora_B"]
    if config.stated.get("target_parameters") and _EXPERTS.search(module):
        return build_expert_lora(module, kinds, tensors, config)
    if len(tensors.shape(b)) > 2:
        return build_merged_lora(module, kinds, tensors, config)
    rank, width = tensors.matrix(a, may_be_empty=adaptive)
    out, rank_b = tensors.matrix(b, may_be_empty=adaptive)
    if rank != rank_b or out == 0:
        raise tensors.misfit(b, f"at least one row, and {count(rank, 'column')} as {a!r} has rows")
    if width == 0:
        raise tensors.misfit(a, "at least one column")
    diagonal = kinds["lora_E"] if adaptive else None
    if diagonal is not None and tensors.vector(diagonal) != rank:
        raise tensors.misfit(diagonal, count(rank, "value"))
    magnitude = kinds.get("lora_magnitude_vector")
    if magnitude is not None and tensors.vector(magnitude) != out:
        raise tensors.misfit(magnitude, count(out, "value"))
    if config.start == "olora" and config.transposed_flag:
        line = "OLoRA with fan_in_fan_out: PEFT factors such a matrix in the wrong direction"
        raise _unsupported(line)
    if not adaptive:
        scale, own = _scale_of(module, kinds, tensors, config, rank)
    else:  # AdaLoRA divides by the rank before pruning, and reads alpha ≤ 0 as the rank
        alpha = config.alpha if config.alpha is None or config.alpha > 0 else float(rank)
        divisor = (config.init_rank or float(rank)) + 1e-5
        scale, own = (lambda: 1.0 if alpha is None else alpha / divisor), ()

    def delta(base: torch.Tensor | None) -> Delta:
        """s·B·A, less the replaced part of W; with DoRA all rows brought to their length."""
        factor = scale()
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
        names=(a, b, *optional, *own),
        delta=delta,
        needs_base=magnitude is not None or config.start != "",
        rank=None if adaptive else rank,
    )


def build_merged_lora(
    module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig
) -> ModuleUpdate:
    """ΔW = s·B·A of PEFT 0.2's `MergedLinear`: the matrix has parts of equal height, of which
    `enable_lora` says which are trained. B (rows, r, 1) is a convolution in groups, each over its
    own rows of A; a part that is not trained has rows of zeros (`tuners/lora.py: zero_pad`)."""
    a, b = kinds["lora_A"], kinds["lora_B"]
    (n_right, width), (rows, n_group, _) = tensors.matrix(a), tensors.shape(b)
    n_parts, n_trained = len(config.enabled), sum(config.enabled)
    n_groups = n_right // n_group if n_group else 0
    if not n_trained:
        line = f"{b!r} is of PEFT 0.2's merged linear, and {FILE} has no enable_lora"
        raise ModelError("not-read", f"module {module!r}: {line}")
    if rows == 0 or rows % n_trained or n_right % n_trained or n_right > MAX_ELEMENTS // rows:
        line = f"{n_trained} of {count(n_parts, 'part')}, as {FILE} says in enable_lora"
        raise tensors.misfit(b, f"as many rows for each of {line}, and rows of {a!r}")
    if not 1 <= n_groups <= MAX_PARTS or n_groups * n_group != n_right or rows % n_groups:
        raise tensors.misfit(b, f"groups of equal size over the {count(n_right, 'row')} of {a!r}")
    if kinds.keys() - {"lora_A", "lora_B", "alpha"} or config.start or config.dora:
        raise _unsupported(f"module {module!r}: enable_lora beside another variant of LoRA")
    height, per_group = rows // n_trained, rows // n_groups
    rank = n_right // n_trained
    scale, own = _scale_of(module, kinds, tensors, config, rank)

    def delta(base: torch.Tensor | None) -> Delta:
        factor = scale()
        blocks = (tensors.read(b) * factor).view(n_groups, per_group, n_group)
        trained = torch.zeros(n_groups, per_group, n_groups, n_group)
        at = torch.arange(n_groups)
        trained[at, :, at] = blocks
        left = torch.zeros(n_parts * height, n_right)
        mask = torch.tensor(config.enabled).repeat_interleave(height)
        left[mask] = trained.view(rows, n_right)
        return LowRankDelta(left, tensors.read(a))

    return ModuleUpdate(shape=(n_parts * height, width), names=(a, b, *own), delta=delta, rank=rank)


_EXPERTS = re.compile(r"\bexperts\.(gate_up_proj|down_proj)$")


def build_expert_lora(
    module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig
) -> ModuleUpdate:
    """ΔW = s·Bₑ·Aₑ for each expert e: A has r rows for each expert after the other, B a column of
    every expert for each rank (`lora/layer.py: ParamWrapper`)."""
    stated = config.rank_of(module)
    if kinds.keys() != {"lora_A", "lora_B"} or config.start or stated is None:
        line = f"module {module!r}: LoRA on experts beside another variant, or without r"
        raise _unsupported(line)
    a, b, rank = kinds["lora_A"], kinds["lora_B"], int(stated)
    out, rows, width = tensors.product(b, a)
    if rows % rank:
        raise tensors.misfit(a, f"r = {rank} rows for each expert")
    scale, _ = _scale_of(module, kinds, tensors, config, rank)

    def delta(base: torch.Tensor | None) -> Delta:
        right = tensors.read(a).view(-1, rank, width)
        left = tensors.read(b).view(out, rank, -1).permute(2, 0, 1) * scale()
        return LowRankDelta(left, right)

    shape = (rows // rank, out, width)
    return ModuleUpdate(shape=shape, names=(a, b), delta=delta, rank=rank)


def _replaced_part(
    base: torch.Tensor, start: str, rank: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of W that training began by subtracting, as two factors.

    PiSSA: the first `rank` singular triplets. OLoRA: the first rows and columns of W = QR,
    which span the first columns of W. `lora/layer.py: pissa_init, olora_init`.
    """
    if start == "pissa":
        u, sigma, v = torch.linalg.svd(base, full_matrices=False)
        return u[:, :rank] * sigma[:rank], v[:rank]
    q = torch.linalg.qr(base[:, :rank]).Q
    return q * scale, q.T @ base


def _scale_of(
    module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig, rank: int | None
) -> tuple[Callable[[], float], tuple[str, ...]]:
    """What gives the scale between an adapter's product and ΔW, and the tensor that it reads, where
    the module stores its own alpha as kohya's scripts do: alpha / r, or alpha / √r of rsLoRA; 1
    where nothing states an alpha. Where both of LoKr's sides are whole, only the config knows r."""
    alpha, own = config.alpha_of(module), kinds.get("alpha")
    if own is not None and tensors.vector(own) != 1:
        raise tensors.misfit(own, "a single number")
    if alpha is not None and ".lora_down" not in kinds.get("lora_A", ""):
        own = None  # PEFT's names: PEFT reads alpha from the config alone
    r = float(rank) if rank else config.rank_of(module)
    if r is None or (rank is None and own is not None):
        return lambda: 1.0, ()
    divisor = math.sqrt(r) if config.rslora and "lora_A" in kinds else r

    def scale() -> float:
        stated = alpha if own is None else float(tensors.read(own))
        return 1.0 if stated is None else stated / divisor

    return scale, () if own is None else (own,)


def build_loha(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·(A₁·B₁) ∘ (A₂·B₂), low-rank while that is smaller: ∑ᵢⱼ (a₁ᵢ∘a₂ⱼ)(b₁ᵢ∘b₂ⱼ)ᵀ."""
    _require_parts(module, kinds, HADAMARD)
    names = tuple(kinds[kind] for kind in HADAMARD)
    out, rank, width = tensors.product(*names[:2])
    out_2, rank_2, width_2 = tensors.product(*names[2:])
    if (out, width) != (out_2, width_2):
        raise tensors.misfit(names[2], f"a product of shape {(out, width)}")
    scale, own = _scale_of(module, kinds, tensors, config, rank)

    def delta(base: torch.Tensor | None) -> Delta:
        factor = scale()
        a1, b1, a2, b2 = map(tensors.read, names)
        if rank * rank_2 >= min(out, width):
            return DenseDelta((a1 @ b1).mul_(a2 @ b2).mul_(factor))
        left = (a1[:, :, None] * a2[:, None, :]).flatten(1)  # (out, r·r)
        right = (b1[:, None, :] * b2[None, :, :]).flatten(0, 1)  # (r·r, in)
        return LowRankDelta(left * factor, right)

    return ModuleUpdate(shape=(out, width), names=(*names, *own), delta=delta, rank=rank)


def build_lokr(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = s·(W₁ ⊗ W₂), where each side is stored whole or as two factors."""
    first, shape_1, rank_1 = _kronecker_side(module, kinds, tensors, "lokr_w1")
    second, shape_2, rank_2 = _kronecker_side(module, kinds, tensors, "lokr_w2")
    shape = (shape_1[0] * shape_2[0], shape_1[1] * shape_2[1])
    if shape[0] * shape[1] > MAX_ELEMENTS:
        line = f"ΔW has shape {shape}, more than {MAX_ELEMENTS} elements"
        raise ModelError("shape-mismatch", f"module {shown(module)}: {line}")
    scale, own = _scale_of(module, kinds, tensors, config, rank_2 or rank_1)

    def side(names: tuple[str, ...]) -> torch.Tensor:
        whole, *rest = map(tensors.read, names)
        return whole @ rest[0] if rest else whole

    def delta(base: torch.Tensor | None) -> Delta:
        left, right = side(first), side(second)
        return DenseDelta(torch.kron(left * scale(), right))

    names = (*first, *second, *own)
    return ModuleUpdate(shape=shape, names=names, delta=delta, rank=rank_2 or rank_1)


def _kronecker_side(
    module: str, kinds: Kinds, tensors: Tensors, side: str
) -> tuple[tuple[str, ...], tuple[int, int], int | None]:
    if side in kinds:
        return (kinds[side],), tensors.matrix(kinds[side]), None
    _require_parts(module, kinds, (f"{side}_a", f"{side}_b"))
    a, b = kinds[f"{side}_a"], kinds[f"{side}_b"]
    rows, rank, columns = tensors.product(a, b)
    return (a, b), (rows, columns), rank


def build_vera(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW = diag(b)·B·diag(d)·A, with A and B cut from matrices that all modules share.

    How many columns of A are this module's is not stored, so the base is needed.
    """
    if not tensors.shared.keys() >= set(VERA):
        raise _unsupported(
            "VeRA without its shared matrices, which follow from a seed and from shapes of "
            "the whole base; save it with save_projection=True"
        )
    _require_parts(module, kinds, ("vera_lambda_b", "vera_lambda_d"))
    b, d = kinds["vera_lambda_b"], kinds["vera_lambda_d"]
    shared_a, shared_b = (tensors.shared[name] for name in VERA)
    rank, _ = tensors.matrix(shared_a)
    widest, rank_b = tensors.matrix(shared_b)
    out = tensors.vector(b)
    if rank != rank_b or tensors.vector(d) != rank:
        raise tensors.misfit(d, f"{count(rank, 'value')}, the rank of the shared matrices")
    if out > widest:
        raise tensors.misfit(b, f"at most {count(widest, 'value')}, the rows of the shared B")

    def delta(base: torch.Tensor | None) -> Delta:
        assert base is not None
        rows, width = base.shape
        right, left = tensors.read(shared_a), tensors.read(shared_b)
        if width > right.shape[1]:
            raise tensors.misfit(shared_a, f"{count(width, 'column')}, as the base's matrix has")
        left = tensors.read(b).reshape(-1, 1) * left[:rows]
        return LowRankDelta(left, tensors.read(d).reshape(-1, 1) * right[:, :width])

    names = (b, d, shared_a, shared_b)
    return ModuleUpdate(shape=(out, UNKNOWN), names=names, delta=delta, needs_base=True, rank=rank)


def build_ia3(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
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


def build_other(module: str, kinds: Kinds, tensors: Tensors, config: AdapterConfig) -> ModuleUpdate:
    """ΔW by the formulas of `adapter_methods`, whose shapes only W can tell."""
    family = _family_of(kinds)
    method = METHODS[family]
    _require_parts(module, kinds, method.factors)
    if missing := [name for name in method.shared if name not in tensors.shared]:
        line = f"{family} without {name_some(missing)}, which all modules share"
        raise _unsupported(f"{line}; save it with save_projection=True")
    names = {kind: kinds[kind] for kind in (*method.factors, *method.optional) if kind in kinds}
    names |= {name: tensors.shared[name] for name in method.shared}

    def delta(base: torch.Tensor | None) -> Delta:
        assert base is not None
        parts = {kind: tensors.read(name) for kind, name in names.items()}
        try:
            change = method.change(base, parts, config.stated)
        except (RuntimeError, IndexError, ValueError, KeyError) as err:
            line = f"module {module!r}: its {family} tensors do not fit one another, or the base's"
            raise ModelError("shape-mismatch", f"{line} {tuple(base.shape)}") from err
        if change.shape != base.shape:
            line = f"module {module!r}: ΔW has shape {tuple(change.shape)}"
            raise ModelError("shape-mismatch", f"{line}, the base's matrix {tuple(base.shape)}")
        return DenseDelta(change.contiguous())

    return ModuleUpdate(
        shape=(UNKNOWN, UNKNOWN), names=tuple(names.values()), delta=delta, needs_base=True
    )


FORMULAS = {
    "lora": build_lora,
    "loha": build_loha,
    "lokr": build_lokr,
    "vera": build_vera,
    "ia3": build_ia3,
} | dict.fromkeys(METHODS, build_other)


def build_full_value(name: str, shape: tuple[int, int], tensors: Tensors) -> ModuleUpdate:
    """ΔW = stored − W of a whole weight, as `modules_to_save` leaves it; `shape` is as stored: in ×
    out, if the base's module is GPT-2's Conv1D."""

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


def _require_parts(module: str, kinds: Kinds, expected: Iterable[str]) -> None:
    missing = [kind for kind in expected if kind not in kinds]
    if missing:
        line = f"module {module!r} has {', '.join(sorted(kinds))} but no {', '.join(missing)}"
        raise ModelError("missing-tensor", line)


LORAS = ("lora", "rslora", "dora", "pissa", "olora")
"""Methods that adapter_config.json may call LoRA."""

SCALED = (*LORAS, "adalora", "loha", "lokr")
"""Methods whose ΔW is multiplied by alpha over a rank."""


def _family_of(kinds: Iterable[str]) -> str:
    return next((FAMILIES[kind.split("_")[0]] for kind in kinds if kind != "alpha"), "")


def _is_convolution(kinds: Kinds, tensors: Tensors) -> bool:
    """Whether a module's factors have more than two dimensions, and are no merged linear's."""
    if _family_of(kinds) in METHODS:
        return False
    dims = {kind: len(tensors.shape(name)) for kind, name in kinds.items()}
    if dims.get("lora_A") == 2 and dims.get("lora_B") == 3:
        return tensors.shape(kinds["lora_B"])[2] != 1
    return max(dims.values()) > 2


def _unsupported(line: str) -> ModelError:
    return ModelError("unsupported-adapter", line)


@dataclass(slots=True)
class Contents:
    """What an adapter's file holds, by module. `values`: the name of a full weight; `unclear`: why
    the names of its tensors have no certain meaning; `others`: names of unknown use with their
    modules; `layers`: the modules that are matrices of layers, which alone count."""

    tensors: Tensors
    settings: AdapterConfig
    layers: frozenset[str] = frozenset()
    factors: dict[str, dict[str, str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, ModelError] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    set_aside: Counter[str] = field(default_factory=Counter)
    _owners: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: Mapping[str, object] | None) -> Contents:
        contents = cls(Tensors(checkpoint), read_config(config))
        for name in sorted(checkpoint.tensors, key=lambda n: (parse_name(n).kind == "value", n)):
            contents.add(name)
        for module in [m for m, kinds in contents.factors.items() if kinds.keys() == {"alpha"}]:
            del contents.factors[module]
            contents.set_aside["other"] += 1
        contents.layers = layer_modules(
            {*contents.factors, *contents.unclear, *contents.values, *contents.others.values()}
        )
        for module, problem in contents.unclear.items():
            contents.leave_out(module, problem)
        contents.settings.require_matchable(len(contents.factors))
        return contents

    def add(self, name: str) -> None:
        """Add a tensor; its module becomes unclear where its place is taken."""
        parsed = parse_name(name)
        module, kind = parsed.module, parsed.kind
        if kind == "variant":
            line = f"tensor {name!r} is of a LoRA variant not known here"
            self.unclear.setdefault(module, _unsupported(line))
        elif kind == "value":
            if module in self.factors and "modules_to_save" not in name:
                self.set_aside["frozen"] += 1
            elif "modules_to_save" in name or module not in self.values:
                self.values[module] = name
        elif kind in _ASIDE or kind == "bookkeeping":
            self.set_aside[kind] += 1
            if kind == "other" and not parsed.wrapped:
                self.others[name] = f"{module}.{name.rpartition('.')[2]}"
        elif kind in SHARED:
            self.tensors.shared.setdefault(kind, name)
        else:
            self._add_factor(name, parsed)

    def _add_factor(self, name: str, parsed: TensorName) -> None:
        module = parsed.module
        if "." not in module and module.startswith(KOHYA_PREFIXES):
            raise _unsupported(
                f"module name {module!r} has lost its dots, so its place in the model is "
                "not certain; convert it to PEFT's format"
            )
        taken = self.factors.setdefault(module, {}).setdefault(parsed.kind, name)
        owner = self._owners.setdefault(module, parsed.adapter)
        if owner != parsed.adapter:
            line = f"holds two adapters, {owner!r} and {parsed.adapter!r}; save each apart"
        elif module.split(".")[-1] == "experts":
            line = f"tensor {name!r}: LoRA on expert parameters has ambiguous names"
        elif taken != name:
            line = f"tensors {taken!r} and {name!r} are the same factor of one module"
        else:
            return
        self.unclear.setdefault(module, _unsupported(line))

    def leave_out(self, module: str, problem: ModelError) -> None:
        """Leave out a module, or raise the problem of one of the layers."""
        if module in self.layers:
            raise problem
        self.factors.pop(module, None)
        self.left_out.append(module)

    def family(self) -> str:
        """The formula of the layers' tensors; "" if no module is left that has factors."""
        families = {
            module: {FAMILIES[kind.split("_")[0]] for kind in kinds if kind != "alpha"}
            for module, kinds in self.factors.items()
        }
        of_layers = set().union(*(families[module] for module in families if module in self.layers))
        of_all = of_layers or set().union(*families.values())
        for module, own in families.items():
            if len(of_all) > 1 or own != of_all:
                line = f"holds tensors of {' and '.join(sorted(of_all))}, expected one method"
                self.leave_out(module, _unsupported(line))
        if self.factors:
            return of_all.pop()
        names = self.tensors.checkpoint.tensors
        refused = refused_by_names(
            part for name in names for part in WRAPPER_PREFIX.sub("", name).split(".")
        )
        if refused is not None:
            raise _unsupported(f"tensor names are those of {refused}: {REFUSED[refused]}")
        if not names:
            raise ModelError("no-weights", "the adapter's weight file holds no tensor")
        if not self.values and not self.left_out:
            line = "no tensor name is of a known adapter method; the first is"
            raise _unsupported(f"{line} {next(iter(names))!r}")
        return ""

    def updates(self, family: str) -> dict[str, ModuleUpdate]:
        """Those of all modules that have factors, but for convolutions."""
        settings, tensors = self.settings, self.tensors
        if settings.init_rank is None:  # AdaLoRA's first rank is that of the largest A
            shapes = [tensors.shape(k["lora_A"]) for k in self.factors.values() if "lora_A" in k]
            largest = max((shape[0] for shape in shapes if shape), default=0)
            settings = replace(settings, init_rank=float(largest) or None)
        updates: dict[str, ModuleUpdate] = {}
        for module, kinds in list(self.factors.items()):
            if not _is_convolution(kinds, tensors):
                try:
                    updates[module] = FORMULAS[family](module, kinds, tensors, settings)
                except ModelError as err:
                    self.leave_out(module, err)
        return updates

    def full_updates(self) -> dict[str, ModuleUpdate]:
        """Those of whole matrices; what is stored as integers, no training changed."""
        updates = {}
        for module, name in list(self.values.items()):
            ref = self.tensors.checkpoint.tensors[name]
            if ref.dtype not in FLOATS:
                del self.values[module]
                self.set_aside["quantised"] += 1
            elif len(ref.shape) == 2:
                updates[module] = build_full_value(name, (ref.shape[0], ref.shape[1]), self.tensors)
        return updates

    def require_all_read(self, read: Collection[str]) -> None:
        """Pass if every matrix of the layers is read, else `not-read`; kernels of convolutions,
        which have four dimensions, are none."""
        shape = self.tensors.shape
        unread = {
            name: module
            for module, kinds in self.factors.items()
            if module not in read and max(len(shape(n)) for n in kinds.values()) == 3
            for name in kinds.values()
        }
        unread |= {name: module for module, name in self.values.items() if module not in read}
        unread |= self.others
        lost = {m: n for n, m in unread.items() if m in self.layers and is_matrix(shape(n))}
        if lost:
            changed = count(len(lost) + len(self.layers.intersection(read)), "layer matrix")
            raise ModelError(
                "not-read",
                f"{len(lost)} of {changed} that it changes {agree(len(lost), 'is')} stored in a "
                f"form that is not read: {name_some(list(lost.values()))}",
            )

    def method(self, family: str) -> str:
        kinds = {kind for module in self.factors.values() for kind in module}
        if family != "lora":
            return family or (self.settings.peft_type or "lora").lower()
        if "lora_E" in kinds:
            return "adalora"
        if "lora_magnitude_vector" in kinds:
            return "dora"
        return self.settings.start or ("rslora" if self.settings.rslora else "lora")

    def unused_targets(self, updates: Mapping[str, ModuleUpdate]) -> list[str]:
        """Of `target_modules`, those that no module has; a `ModelError` if that is all of them."""
        unused = set(self.settings.targets)
        for module in (*updates, *self.factors, *self.values, *self.left_out):
            unused.difference_update(path_ends(module, MAX_PATTERN))
        if updates and unused and len(unused) == len(set(self.settings.targets)):
            line = f"{FILE} and the tensors are of two models: target_modules"
            raise ModelError(
                "other-base",
                f"{line} {name_some(sorted(unused))} fit no module, the tensors are of "
                f"{name_some(list(updates))}",
            )
        return sorted(unused)

    def notes(
        self, method: str, updates: Mapping[str, ModuleUpdate], unused: Sequence[str]
    ) -> tuple[str, ...]:
        settings, aside = self.settings, sorted(self.set_aside.items())
        notes = [*settings.notes]
        notes += [f"not read: {_ASIDE[kind]} ({n})" for kind, n in aside if kind in _ASIDE]
        stated = settings.peft_type or ""
        fitting = {method, "lora"} if method in LORAS else {method}
        if stated and stated.lower() not in fitting:
            notes.append(f"{FILE} says {name_some([stated])}, the tensors are {method}'s")
        if convolutions := len(self.factors) - len(updates):
            notes.append(f"{count(convolutions, 'convolution')} not read")
        if self.left_out:
            notes.append(f"not read: {name_some(self.left_out)}, outside the layers")
        pairs = [(settings.rank_of(module), update.rank) for module, update in updates.items()]
        known = [
            (stated_r, stored) for stated_r, stored in pairs if stated_r is not None and stored
        ]
        if unequal := sorted(pair for pair in known if pair[0] != pair[1]):
            differ = f"in {len(unequal)} of {count(len(known), 'module')}"
            r, stored_r = unequal[0]
            notes.append(f"{FILE} says r = {r:.0f}, the tensors have {stored_r} ({differ})")
        own = any("alpha" in kinds for kinds in self.factors.values())
        if updates and settings.alpha is None and not own and method in SCALED:
            notes.append("no alpha is stated: scale 1 was taken, so norms are not comparable")
        patterns = {pattern for pattern, _ in settings.alphas + settings.ranks}
        unmatched = {p for p in patterns if not any(matches(p, module) for module in updates)}
        for what, names in (("patterns", unmatched), ("target_modules", unused)):
            if names:
                notes.append(f"{what} that fit no module: {name_some(sorted(names))}")
        return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an adapter changes. Only headers are read before `delta` is called.

    Attributes:
        method: `lora`, `rslora`, `dora`, `adalora`, `pissa`, `olora`, `loha`, `lokr`,
            `vera`, `ia3`, or one of `adapter_methods.METHODS`.
        modules: (out, in) of ΔW by module path, or (expert, out, in); 0 for a width that only the
            base has (VeRA's in, either side for IA³): such modules are in `needs_base`.
        full_values: Modules of which a whole 2-D weight is stored, and that tensor's name.
        needs_base: Modules whose ΔW needs W, those of `full_values` among them.
        outside: Modules outside layers that were left out, as their tensors are not in order.
    """

    method: str
    modules: Mapping[str, tuple[int, ...]]
    full_values: Mapping[str, str]
    needs_base: frozenset[str]
    outside: tuple[str, ...]
    notes: tuple[str, ...]
    _updates: Mapping[str, ModuleUpdate] = field(repr=False)

    def tensors_of(self, module: str) -> tuple[str, ...]:
        return self._updates[module].names

    def delta(self, module: str, base_weight: torch.Tensor | None) -> Delta:
        """ΔW of a module of `modules` or `full_values`, in float32; only those in `needs_base` look
        at `base_weight`, W as (out, in), float32."""
        update = self._updates[module]
        if not update.needs_base:
            base_weight = None
        elif base_weight is None:
            line = f"module {module!r}: ΔW of {self.method} needs the base's weights"
            raise ModelError("needs-base", line)
        else:
            expected = tuple(base_weight.shape)
            known = self.modules.get(module, (UNKNOWN, UNKNOWN))
            if any(k not in (UNKNOWN, e) for k, e in zip(known, expected, strict=True)):
                line = f"module {module!r} has shape {known}, the base's matrix {expected}"
                raise ModelError("shape-mismatch", line)
        return update.delta(base_weight)


def read_adapter(checkpoint: Checkpoint, config: Mapping[str, object] | None) -> Adapter:
    """What the adapter changes, from its headers and its adapter_config.json.

    PiSSA and OLoRA begin at W less a part that follows from W; their ΔW here counts that
    part in, as PEFT does when it loads them, and so needs W. CorDA, LoftQ, LoRA-GA and
    PiSSA's randomised form take out a part that cannot be computed again: they are refused,
    as s·B·A alone would be another update than the one that was trained.

    Only the matrices of layers count. Others, as heads, are left out where their tensors have no
    certain meaning, and never refuse an adapter.
    """
    contents = Contents.of(checkpoint, config)
    family = contents.family()
    updates = contents.updates(family)
    unused = contents.unused_targets(updates)
    values = contents.full_updates()
    contents.require_all_read({**updates, **values})
    method = contents.method(family)
    return Adapter(
        method=method,
        modules={module: update.shape for module, update in updates.items()},
        full_values={module: value.names[0] for module, value in values.items()},
        needs_base=frozenset(m for m, u in {**updates, **values}.items() if u.needs_base),
        outside=tuple(contents.left_out),
        notes=contents.notes(method, updates, unused),
        _updates={**values, **updates},
    )


_MLX_FACTOR = re.compile(r"\.(lora_[ab]|m)$")
_PEFT = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight", "m": "lora_magnitude_vector.weight"}


def with_peft_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with factors as PEFT has them: mlx-lm's are (in, r) and (r, out)."""
    found = {name: _MLX_FACTOR.search(name) for name in checkpoint.tensors}
    if not any(match is not None and match[1] != "m" for match in found.values()):
        return checkpoint
    names: dict[str, str] = {}
    derived: dict[str, Derived] = {}
    for name, match in found.items():
        ref = checkpoint.tensors[name]
        peft_name = name if match is None else f"{name[: match.start()]}.{_PEFT[match[1]]}"
        if match is None or match[1] == "m" or len(ref.shape) != 2:
            names[peft_name] = name
        else:
            derived[peft_name] = turned(ref)
    return DerivedCheckpoint(checkpoint, names, derived, note="an adapter of mlx-lm")


_OF_EXPERTS = re.compile(
    r"(?P<experts>.*\bexperts)\.(?P<inner>base_layer\.)?(?P<factor>lora_[AB]\b.*)"
)


def name_experts(checkpoint: Checkpoint, config: Config | None) -> Checkpoint:
    """The checkpoint with each factor of stacked experts under its parameter's name. PEFT wraps a
    module once for each of `target_parameters`, in the order of the module's own: what is
    innermost, `experts.base_layer.lora_A`, is of `gate_up_proj`, and `experts.lora_A` of
    `down_proj` then."""
    stated = (config or {}).get("target_parameters")
    last = {str(n).rpartition(".")[2] for n in stated} if isinstance(stated, list) else set()
    targets = [name for name in PARAMETERS if name in last]  # in the order of the module
    found = {name: _OF_EXPERTS.fullmatch(name) for name in checkpoint.tensors}
    if not targets or not any(found.values()):
        return checkpoint
    names = {}
    for name, match in found.items():
        if match is None:
            names[name] = name
        else:
            target = targets[0] if match["inner"] or len(targets) == 1 else targets[1]
            names[f"{match['experts']}.{target}.{match['factor']}"] = name
    _require_order(checkpoint, names)
    return DerivedCheckpoint(checkpoint, names, {}, note="LoRA on stacked experts")


def _require_order(checkpoint: Checkpoint, names: dict[str, str]) -> None:
    """Pass if gate_up reads what down writes, and down reads half of what gate_up writes."""
    shapes = {name: checkpoint.tensors[old].shape for name, old in names.items()}
    for name, shape in shapes.items():
        stem, found, rest = name.rpartition(".gate_up_proj.lora_A")
        others = [f"{stem}.{end}{rest}" for end in (
            "gate_up_proj.lora_B", "down_proj.lora_A", "down_proj.lora_B"
        )]  # fmt: skip
        if not found or any(len(shapes.get(other, ())) != 2 for other in others):
            continue
        gate_b, down_a, down_b = (shapes[other] for other in others)
        if shape[1] != down_b[0] or gate_b[0] != 2 * down_a[1]:
            line = f"{names[name]!r} and its neighbours are not gate_up_proj's and down_proj's"
            raise ModelError("unsupported-adapter", f"LoRA on expert parameters: {line}")


def merge_adapter(checkpoint: Checkpoint, config: Mapping[str, object]) -> DerivedCheckpoint:
    """The checkpoint that `merge_and_unload` would give, under the names of the base; `config`: the
    adapter_config.json beside it. A `ModelError` where some ΔW is not computed. Embeddings that an
    adapter changes are left out, so that nothing takes them as the base's."""
    adapter = read_adapter(checkpoint, config)
    parsed = {name: parse_name(name) for name in checkpoint.tensors}
    replaced = {p.module for n, p in parsed.items() if "modules_to_save" in n}
    lost = {p.module for p in parsed.values() if p.kind == "embedding"}
    kept = {
        ".".join(filter(None, (parts.module, name.rpartition(".")[2]))): name
        for name, parts in parsed.items()
        if parts.kind in ("value", "bias", "other")
        and parts.module not in lost
        and ("modules_to_save" in name or parts.module not in replaced)
    }
    derived = {}
    for module in adapter.modules:
        name = f"{module}.weight"
        derived[name] = _merged(adapter, module, kept.pop(name, name), checkpoint, config)
    note = f"an adapter ({adapter.method}) beside the weights, merged into them"
    return DerivedCheckpoint(checkpoint, kept, derived, note=note)


def _merged(
    adapter: Adapter, module: str, stored: str, checkpoint: Checkpoint, config: Mapping[str, object]
) -> Derived:
    ref = checkpoint.tensors.get(stored)
    if ref is None:
        raise ModelError("not-read", f"no weight beside the adapter's factors of {module!r}")
    if ref.dtype not in FLOATS:
        raise ModelError("quantized", f"{stored!r} is stored as {ref.dtype}")
    flat = config.get("fan_in_fan_out") is True

    def compute(weight: torch.Tensor, _: int) -> torch.Tensor:
        weight = weight.float()
        oriented = weight.T.contiguous() if flat else weight
        change = dense(adapter.delta(module, oriented))
        return weight + (change.T if flat else change)

    return Derived(of=stored, shape=ref.shape, compute=compute)
