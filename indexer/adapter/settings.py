"""What adapter_config.json says, as far as ΔW depends on it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ModelError

MODIFIED_BASE = ("pissa", "olora", "corda", "loftq")
"""Initialisations after which the adapter is relative to a base that PEFT has changed, so
that B @ A is mostly the base's own leading directions and not what training did."""

REFUSED_TYPES = {
    "ADAPTION_PROMPT": "it trains prompts, not weights",
    "BOFT": "its update multiplies the base's weights by a rotation",
    "BONE": "its update is a function of the base's weights",
    "C3A": "its update is a circulant product",
    "CPT": "it trains prompts, not weights",
    "FOURIERFT": "its update is a spectrum at seeded places",
    "HIRA": "its update multiplies the base's weights",
    "HRA": "its update multiplies the base's weights by reflections",
    "IA3": "it rescales the base's weights",
    "LN_TUNING": "it trains normalisation layers only",
    "MISS": "its update is a function of the base's weights",
    "MULTITASK_PROMPT_TUNING": "it trains prompts, not weights",
    "OFT": "its update multiplies the base's weights by a rotation",
    "P_TUNING": "it trains prompts, not weights",
    "PREFIX_TUNING": "it trains prefixes, not weights",
    "PROMPT_TUNING": "it trains prompts, not weights",
    "RANDLORA": "its bases are made from a seed and not saved",
    "TRAINABLE_TOKENS": "it trains embeddings only",
    "VERA": "its shared matrices are made from a seed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The scale-relevant fields of a PEFT config.

    Attributes:
        peft_type: Upper case; "" where the config does not say.
        alpha: None where the config does not say.
        rank: The config's own r; tensors are trusted before it.
        patterns: rank_pattern and alpha_pattern as PEFT matches them.
    """

    peft_type: str
    alpha: float | None
    rank: int | None
    init_rank: int | None
    rank_stabilised: bool
    rank_pattern: Mapping[str, Any]
    alpha_pattern: Mapping[str, Any]

    def alpha_for(self, module: str) -> float | None:
        """lora_alpha of one module, its own pattern first."""
        own = _match(self.alpha_pattern, module)
        return self.alpha if own is None else _number("alpha_pattern", own)

    def rank_for(self, module: str) -> int | None:
        """r of one module by the config."""
        own = _match(self.rank_pattern, module)
        return self.rank if own is None else int(_number("rank_pattern", own))


def read_settings(config: Mapping[str, Any] | None) -> Settings:
    """The settings in a config; a missing config has none.

    Raises:
        ModelError: `bad-config`, or `unsupported-adapter` with the reason.
    """
    config = config or {}
    peft_type = str(config.get("peft_type") or "").upper().replace("-", "_")
    if peft_type in REFUSED_TYPES:
        raise ModelError("unsupported-adapter", f"{peft_type}: {REFUSED_TYPES[peft_type]}")
    start = str(config.get("init_lora_weights", "")).lower()
    if start.startswith(MODIFIED_BASE):
        raise ModelError(
            "unsupported-adapter",
            f"initialised by {start}: it is relative to a base that PEFT changed; "
            "save it with path_initial_model_for_weight_conversion",
        )
    if config.get("target_parameters"):
        raise ModelError("unsupported-adapter", "target_parameters: which expert is meant is ambiguous")
    alpha = config.get("lora_alpha", config.get("alpha"))
    return Settings(
        peft_type=peft_type,
        alpha=None if alpha is None else _number("lora_alpha", alpha),
        rank=_size(config.get("r")),
        init_rank=_size(config.get("init_r")),
        rank_stabilised=config.get("use_rslora") is True,
        rank_pattern=_pattern(config.get("rank_pattern")),
        alpha_pattern=_pattern(config.get("alpha_pattern")),
    )


def _match(pattern: Mapping[str, Any], module: str) -> Any | None:
    """The value whose key PEFT would apply: the first that ends the module's path."""
    for key, value in pattern.items():
        try:
            if re.match(rf"(.*\.)?({key})$", module):
                return value
        except re.error:
            continue
    return None


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as err:
        raise ModelError("bad-config", f"{name} is {value!r}, not a number") from err
    if not math.isfinite(number):
        raise ModelError("bad-config", f"{name} is {value!r}")
    return number


def _size(value: object) -> int | None:
    """A positive whole number; None for anything else (a list of ranks, a missing field)."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _pattern(value: object) -> Mapping[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}
