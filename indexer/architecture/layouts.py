"""How the rows of a fused matrix are divided into q, k, v, or into gate and up.

Every layout is a pattern of runs that repeats: once for contiguous matrices, once a head or
a group of heads for interleaved ones. All were measured on transformers' own modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

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
