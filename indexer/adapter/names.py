"""Tensor names of adapters taken apart: which module, what of it, whose adapter."""

from __future__ import annotations

import re
from dataclasses import dataclass

WRAPPER_PREFIX = re.compile(
    r"^(?:(?:module\.|_orig_mod\.|_fsdp_wrapped_module\.)*base_model\.model\.)+"
)
WRAPPERS = ("base_layer", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
FACTORS = (
    "lora_A",
    "lora_B",
    "lora_E",
    "lora_magnitude_vector",
    "alpha",
    "hada_w1_a",
    "hada_w1_b",
    "hada_w2_a",
    "hada_w2_b",
    "hada_t1",
    "hada_t2",
    "lokr_w1",
    "lokr_w1_a",
    "lokr_w1_b",
    "lokr_w2",
    "lokr_w2_a",
    "lokr_w2_b",
    "lokr_t2",
    "ia3_l",
    "vera_lambda_b",
    "vera_lambda_d",
    "vera_A",
    "vera_B",
)
"""Parts of a name that say which factor the tensor is."""

SPELLINGS = {"lora_down": "lora_A", "lora_up": "lora_B"}
"""The same factors as kohya's scripts call them."""

SHARED = ("vera_A", "vera_B")
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


@dataclass(frozen=True, slots=True)
class TensorName:
    """What a name says.

    Attributes:
        module: Path in the model that the user wrapped, without any wrapper's parts.
        kind: One of `FACTORS`, or a value of `SET_ASIDE`; else `value` (a full `.weight`),
            `bias`, `variant` (a LoRA tensor of unknown use) or `other`.
        adapter: The adapter's own name where it was left in, else "".
        wrapped: Whether it stands inside `base_layer`, which PEFT freezes.
    """

    module: str
    kind: str
    adapter: str
    wrapped: bool


def parse_name(name: str) -> TensorName:
    """The parts of one tensor's name; never fails."""
    parts = WRAPPER_PREFIX.sub("", name).split(".")
    wrapped = "base_layer" in parts
    for index in reversed(range(len(parts))):
        part, tail = parts[index], [p for p in parts[index + 1 :] if p != "weight"]
        if part in SET_ASIDE:
            return TensorName(_module(parts[:index]), SET_ASIDE[part], "", wrapped)
        kind = SPELLINGS.get(part, part)
        if kind not in FACTORS or (kind == "alpha" and index + 1 < len(parts)):
            continue
        if parts[-1] == "bias":
            kind = "bias"
        module = "" if kind in SHARED else _module(parts[:index])
        return TensorName(module, kind, ".".join(tail), wrapped)
    return TensorName(_module(parts[:-1]), _plain_kind(parts), "", wrapped)


def _plain_kind(parts: list[str]) -> str:
    if any(part.startswith("lora_") for part in parts):
        return "variant"
    return {"weight": "value", "bias": "bias"}.get(parts[-1], "other")


def _module(parts: list[str]) -> str:
    """The path without wrappers; after `modules_to_save` comes an adapter's name."""
    kept, skip = [], False
    for part in parts:
        if not skip and part not in WRAPPERS and part != "modules_to_save":
            kept.append(part)
        skip = part == "modules_to_save"
    return ".".join(kept)
