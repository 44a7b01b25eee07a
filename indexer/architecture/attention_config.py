"""The few settings of config.json that tell how fused matrices are laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """What a config says about attention; None wherever it says nothing usable.

    Attributes:
        model_type: Of the whole model.
        text_model_type: Of the language model inside it, or of the whole.
        n_heads: Query heads.
        n_kv_heads: Key and value heads.
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
