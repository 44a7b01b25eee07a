"""Which adapter methods exist, and why the ΔW of most is not computed."""

from __future__ import annotations

from collections.abc import Iterable

FAMILIES = {"lora": "lora", "hada": "loha", "lokr": "lokr", "ia3": "ia3", "vera": "vera"}
"""How a factor's name begins, and the formula it belongs to."""

SUPPORTED = ("LORA", "ADALORA", "LOHA", "LOKR", "VERA", "IA3")

_INPUTS = "it adds learned inputs or states and leaves the weights alone"
_ROTATION = "it rotates W instead of adding to it"
_PRODUCT = "its update is a product with W that deltadex does not compute"
_SEEDED = "its update is rebuilt from seeds or indices that are not all stored"
_STRUCTURE = "its factors have a structure that deltadex does not compute"
_VECTORS = "it changes norms, biases or activations, not layer matrices"
_ROUTED = "it chooses among several updates for each input, so there is no one ΔW"

REFUSED = {
    "ADAMSS": _STRUCTURE,
    "ADAPTION_PROMPT": _INPUTS,
    "BEFT": _VECTORS,
    "BOFT": _ROTATION,
    "BONE": _PRODUCT,
    "C3A": _STRUCTURE,
    "CARTRIDGE": _INPUTS,
    "CPT": _INPUTS,
    "DEFT": _PRODUCT,
    "DELORA": _STRUCTURE,
    "FOURIERFT": _SEEDED,
    "FROD": _SEEDED,
    "GLORA": _PRODUCT,
    "GRALORA": _STRUCTURE,
    "HIRA": _PRODUCT,
    "HRA": _ROTATION,
    "LILY": _ROUTED,
    "LN_TUNING": _VECTORS,
    "MISS": _PRODUCT,
    "MULTITASK_PROMPT_TUNING": _INPUTS,
    "OFT": _ROTATION,
    "OSF": _PRODUCT,
    "P_TUNING": _INPUTS,
    "PEANUT": _PRODUCT,
    "POLY": _ROUTED,
    "PREFIX_TUNING": _INPUTS,
    "PROMPT_TUNING": _INPUTS,
    "PSOFT": _ROTATION,
    "PVERA": _SEEDED,
    "RANDLORA": _SEEDED,
    "ROAD": _ROTATION,
    "SHADOW": _STRUCTURE,
    "SHIRA": _SEEDED,
    "SUPERTUNING": _STRUCTURE,
    "TINYLORA": _SEEDED,
    "TRAINABLE_TOKENS": "it changes embeddings only",
    "UNILORA": _SEEDED,
    "VBLORA": _SEEDED,
    "WAVEFT": _SEEDED,
    "XLORA": _ROUTED,
}
"""Methods of PEFT whose ΔW is not computed, by `peft_type`."""

_PROMPTS = ("prompt_embeddings", "prompt_encoder", "prompt_task_cols", "prompt_task_rows")


def refused_by_names(parts: Iterable[str]) -> str | None:
    """The refused method that the parts of tensor names point to, if any."""
    for part in parts:
        if part in _PROMPTS:
            return "PROMPT_TUNING"
        for method in REFUSED:
            if part.startswith(f"{method.lower()}_"):
                return method
    return None
