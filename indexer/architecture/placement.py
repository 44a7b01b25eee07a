"""Where in a stored tensor a slot's matrix is, fused ones by layout; whether slots are the base's.

Every layout is a pattern of runs that repeats: once for contiguous matrices, once a head or
a group of heads for interleaved ones. All were measured on transformers' own modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch

from ...errors import ModelError
from ...records import ROLES, Slot
from ..untrusted_text import name_some

NESTED = ("text_config", "language_config", "llm_config")
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "encoder_attention_heads",
)
KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")

Rows = slice | tuple[int, ...]
Runs = tuple[tuple[str, int], ...]

CODEGEN_BLOCKS = 4
"""CodeGen's weights were trained on four devices, and are stored in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """The attention settings of a config; None for those without a usable value.

    Attributes:
        model_type: Of the whole model.
        text_model_type: Of the language model inside it, or of the whole.
        multi_query: One key and value head for all.
        grouped_decoder: Falcon's `new_decoder_architecture`.
        nope_dim: Rows of a latent-attention key head that are not rotated.
        value_dim: Rows of a latent-attention value head.
        inner_group: ALBERT's layers in one shared group.
    """

    model_type: str | None = None
    text_model_type: str | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    multi_query: bool | None = None
    grouped_decoder: bool | None = None
    nope_dim: int | None = None
    value_dim: int | None = None
    inner_group: int | None = None


def read_attention_config(config: Mapping[str, object] | None) -> AttentionConfig:
    """The settings, under whichever of their names; values of odd types count as none."""
    scopes = list(_scopes(config or {}))
    return AttentionConfig(
        model_type=_text(scopes[:1], "model_type"),
        text_model_type=_text(scopes[::-1], "model_type"),
        n_heads=_count(scopes, *HEADS),
        n_kv_heads=_count(scopes, *KEY_VALUE_HEADS),
        multi_query=_flag(scopes, "multi_query"),
        grouped_decoder=_flag(scopes, "new_decoder_architecture"),
        nope_dim=_count(scopes, "qk_nope_head_dim"),
        value_dim=_count(scopes, "v_head_dim"),
        inner_group=_count(scopes, "inner_group_num"),
    )


def _scopes(config: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield config
    for name in NESTED:
        nested = config.get(name)
        if isinstance(nested, Mapping):
            yield nested


def _values(scopes: list[Mapping[str, object]], *names: str) -> Iterator[object]:
    return (scope[name] for scope in scopes for name in names if name in scope)


def _count(scopes: list[Mapping[str, object]], *names: str) -> int | None:
    for value in _values(scopes, *names):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _flag(scopes: list[Mapping[str, object]], name: str) -> bool | None:
    return next((v for v in _values(scopes, name) if isinstance(v, bool)), None)


def _text(scopes: list[Mapping[str, object]], name: str) -> str | None:
    return next((v for v in _values(scopes, name) if isinstance(v, str) and v), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One fused matrix and what is known of its model.

    Attributes:
        out: Rows, as (out, in).
        width: Columns.
        head_rows: Query rows, where the output projection beside it shows them.
        maybe_conv1d: Whether it may come from a Conv1D, in which q, k and v are contiguous.
    """

    out: int
    width: int
    config: AttentionConfig
    head_rows: int | None = None
    maybe_conv1d: bool = True


def split_rows(split: str | Mapping[str, str], fused: Fused) -> Mapping[str, Rows] | None:
    """Rows of each role, or None where the layout cannot be known.

    Args:
        split: A layout's name, or one for each model type.
    """
    if not isinstance(split, str):
        split = split.get(fused.config.text_model_type or "", "")
    pattern = _pattern(split, fused)
    return None if pattern is None else _deal(fused.out, *pattern)


def _pattern(split: str, fused: Fused) -> tuple[int, Runs] | None:
    """(repeats, runs) of a layout; None where a setting it needs is missing."""
    out, config = fused.out, fused.config
    match split:
        case "thirds":
            return 1, (("q", out // 3), ("k", out // 3), ("v", out // 3))
        case "gate-up":
            return 1, (("gate", out // 2), ("up", out // 2))
        case "gate-up-interleaved":
            return out // 2, (("gate", 1), ("up", 1))
        case "cross-halves":
            return 1, (("cross_k", out // 2), ("cross_v", out // 2))
        case "codegen":
            run = out // (3 * CODEGEN_BLOCKS)
            return CODEGEN_BLOCKS, (("q", run), ("v", run), ("k", run))
        case "falcon" if config.grouped_decoder:
            return _grouped(fused, config.n_kv_heads)
        case "falcon" if config.multi_query is False:
            return _grouped(fused, config.n_heads)
        case "falcon" | "multi-query":
            return _shared_head(fused)
        case "per-head":
            return _grouped(fused, config.n_heads)
        case "per-group":
            return _grouped(fused, config.n_kv_heads)
        case "c-attn":
            return _c_attn(fused)
        case "grouped":
            return _grouped_runs(fused)
        case "latent-kv" if config.n_heads and config.nope_dim and config.value_dim:
            return config.n_heads, (("k", config.nope_dim), ("v", config.value_dim))
    return None


def _grouped(fused: Fused, n_kv: int | None) -> tuple[int, Runs] | None:
    """A run of query heads, then their key and value head, once for each of `n_kv`."""
    n_heads = fused.config.n_heads
    if not n_heads or not n_kv or n_heads % n_kv or fused.width % n_heads:
        return None
    head = fused.width // n_heads
    return n_kv, (("q", n_heads // n_kv * head), ("k", head), ("v", head))


def _shared_head(fused: Fused) -> tuple[int, Runs]:
    """All query heads, as wide as the input, then one key head and one value head."""
    head = (fused.out - fused.width) // 2
    return 1, (("q", fused.width), ("k", head), ("v", head))


def _c_attn(fused: Fused) -> tuple[int, Runs] | None:
    """GPT-2's contiguous thirds, or either form of GPT-BigCode, which is never a Conv1D."""
    bigcode = fused.config.text_model_type == "gpt_bigcode"
    if fused.out < 3 * fused.width:
        return _shared_head(fused)
    if bigcode and fused.config.multi_query is False:
        return _grouped(fused, fused.config.n_heads)
    if bigcode or not fused.maybe_conv1d:
        return None
    return _pattern("thirds", fused)


def _grouped_runs(fused: Fused) -> tuple[int, Runs] | None:
    """All query heads, all key heads, all value heads."""
    n_heads, n_kv = fused.config.n_heads, fused.config.n_kv_heads
    query = fused.head_rows
    if query is None and n_heads and n_kv and fused.out % (n_heads + 2 * n_kv) == 0:
        query = fused.out // (n_heads + 2 * n_kv) * n_heads
    if query is None:
        return None
    other = (fused.out - query) // 2
    return 1, (("q", query), ("k", other), ("v", other))


@lru_cache(maxsize=256)
def _deal(out: int, repeats: int, runs: Runs) -> Mapping[str, Rows] | None:
    """Rows of each run's role; None if the pattern does not fill the matrix exactly."""
    period = sum(size for _, size in runs)
    if repeats * period != out or min(size for _, size in runs) < 1:
        return None
    rows: dict[str, Rows] = {}
    start = 0
    for role, size in runs:
        if repeats == 1:
            rows[role] = slice(start, start + size)
        elif size == 1:
            rows[role] = slice(start, out, period)
        else:
            starts = range(start, out, period)
            rows[role] = tuple(row for first in starts for row in range(first, first + size))
        start += size
    return rows


Key = tuple[Slot, str]
"""A slot and the part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slot's matrix, or one part of it, inside a stored tensor.

    Attributes:
        slot: The position it fills.
        part: "" for the usual single matrix; else names the piece ("expert.3",
            "shared", "q_a", …): parts of one slot are blocks of one update.
        module: Canonical name without prefix, as in the base's own file.
        tensor: The stored tensor's full name in the checkpoint at hand.
        index: Leading index where experts are stacked in one tensor.
        transposed: Stored in × out (GPT-2's Conv1D, gpt_oss experts).
        rows: Output rows (after transposing) that belong here; None = all.
        shape: (out, in) of the resulting matrix.
    """

    slot: Slot
    part: str
    module: str
    tensor: str
    index: int | None = None
    transposed: bool = False
    rows: slice | tuple[int, ...] | None = None
    shape: tuple[int, int]

    @property
    def key(self) -> Key:
        """The slot and the part of it."""
        return self.slot, self.part

    @property
    def first_row(self) -> int:
        if self.rows is None:
            return 0
        return (self.rows.start or 0) if isinstance(self.rows, slice) else self.rows[0]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This placement's (out, in) matrix as a view where possible, dtype kept."""
        return self.cut_matrix(tensor if self.index is None else tensor[self.index])

    def cut_matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        """The same from the stored matrix at its index."""
        return self.cut_rows(matrix.T if self.transposed else matrix)

    def cut_rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """The rows of an (out, …) matrix that belong here: a fused ΔW, or its left factor."""
        if self.rows is None:
            return matrix
        if isinstance(self.rows, slice):
            return matrix[self.rows]
        return matrix[torch.tensor(self.rows)]


@dataclass(frozen=True, kw_only=True)
class PlacedModel:
    """Where every tensor of a checkpoint, or every module of an adapter, belongs.

    Attributes:
        placements: By stack, layer, role and part; no two fill the same part of a slot.
        ignored: Known to be no slot: embeddings, heads, norms, routers, convolutions, ….
        unknown: Matrices inside numbered layers that no rule places.
    """

    placements: tuple[Placement, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]

    def require_known(self) -> None:
        """Raise `unknown-architecture`, naming them, if some layer matrices are unknown."""
        if self.unknown:
            raise ModelError(
                "unknown-architecture",
                f"cannot place {name_some(self.unknown)}: expected layer matrices named as "
                "transformers names them; such an architecture is not supported yet",
            )

    def by_tensor(self) -> dict[str, list[Placement]]:
        """The placements by stored tensor, or by module of an adapter, in order."""
        placements: dict[str, list[Placement]] = {}
        for placement in self.placements:
            placements.setdefault(placement.tensor, []).append(placement)
        return placements

    @cached_property
    def by_key(self) -> Mapping[Key, Placement]:
        """The placements by slot and part, in order."""
        return {placement.key: placement for placement in self.placements}

    @cached_property
    def by_module(self) -> Mapping[str, Placement]:
        """The first placement of every module."""
        return {placement.module: placement for placement in reversed(self.placements)}

    @cached_property
    def longest_module(self) -> int:
        """Characters of the longest module path."""
        return max(map(len, self.by_module), default=0)


def sort_key(placement: Placement) -> tuple[str, int, int, str, int]:
    """Order of placements: stack, layer, role as printed, part with its number."""
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, ROLES.index(slot.role), part, number


def require_same_layers(child: PlacedModel, base: PlacedModel) -> None:
    """Pass if both fill the same parts of the same slots with matrices of equal shape.

    Embeddings, heads and prefixes are free to differ.
    """
    ours, theirs = child.by_key, base.by_key
    missing = [placement for key, placement in theirs.items() if key not in ours]
    added = [placement for key, placement in ours.items() if key not in theirs]
    if missing or added:
        raise ModelError("layer-mismatch", _differences(missing, added, len(theirs)))
    _require_equal_shapes(child, base)


def require_within_base(adapter: PlacedModel, base: PlacedModel) -> None:
    """Pass if every matrix that the adapter changes is in the base, with equal shape."""
    absent = [p for p in adapter.placements if p.key not in base.by_key]
    if absent:
        modules = name_some(list(dict.fromkeys(p.tensor for p in absent)))
        raise ModelError(
            "unknown-targets",
            f"the base has no {_slots(absent)} (modules {modules}); "
            "index the adapter with the base that it was trained on",
        )
    _require_equal_shapes(adapter, base)


def _require_equal_shapes(child: PlacedModel, base: PlacedModel) -> None:
    unequal = [p for p in child.placements if p.shape != base.by_key[p.key].shape]
    if unequal:
        first, expected = unequal[0], base.by_key[unequal[0].key]
        more = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
        raise ModelError(
            "shape-mismatch",
            f"tensor {first.tensor!r} gives {_label(first)} the shape {first.shape}, the base "
            f"has {expected.shape}{more}; index it with its own base",
        )


def _differences(missing: Sequence[Placement], added: Sequence[Placement], n: int) -> str:
    differences = []
    if missing:
        lost = f"{len(missing)} of the base's {n} layer matrices"
        differences.append(f"lacks {lost}: {_slots(missing)}")
    if added:
        differences.append(f"has {len(added)} that the base lacks: {_slots(added)}")
    if any(p.slot.role == "qkv" for p in (*missing, *added)):
        differences.append("one config.json does not say how a fused q/k/v matrix is laid out")
    return "; ".join(differences) + "; index it with its own base"


def _slots(placements: Sequence[Placement]) -> str:
    return name_some([_label(p) for p in placements]).replace("'", "")


def _label(placement: Placement) -> str:
    return f"{placement.slot}.{placement.part}" if placement.part else str(placement.slot)
