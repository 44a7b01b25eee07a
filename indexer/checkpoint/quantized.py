"""Whether weights are stored quantised, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .base import TensorRef

_NAME_ENDINGS = (
    (".quant_state.bitsandbytes__nf4", "bitsandbytes NF4"),
    (".quant_state.bitsandbytes__fp4", "bitsandbytes FP4"),
    (".absmax", "bitsandbytes"),
    (".SCB", "bitsandbytes INT8"),
    (".g_idx", "GPTQ"),
    (".qzeros", "GPTQ or AWQ"),
    (".qweight", "GPTQ or AWQ"),
    (".weight_packed", "compressed-tensors"),
    (".weight_scale_inv", "FP8"),
    (".weight_scale", "FP8"),
    ("_blocks", "MXFP4"),
)
_CONFIG_NAMES = {
    "awq": "AWQ",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "fp8": "FP8",
    "gptq": "GPTQ",
    "mxfp4": "MXFP4",
}


def quantization(
    config: Mapping[str, Any] | None, tensors: Iterable[TensorRef], files: Iterable[str]
) -> str | None:
    """The scheme by which a model's weights are quantised; None where they are not.

    By its config first, then its tensors' names and types, then its files' names.
    """
    declared = (config or {}).get("quantization_config")
    if isinstance(declared, Mapping):
        return _declared_scheme(declared)
    for ref in tensors:
        for ending, scheme in _NAME_ENDINGS:
            if ref.name.endswith(ending):
                return scheme
        if ref.dtype.startswith("F8_") and len(ref.shape) == 2:
            return "FP8"
        if ref.dtype in ("F4", "F6_E2M3", "F6_E3M2"):
            return ref.dtype
    names = list(files)
    others = [n for n in names if n.endswith((".safetensors", ".bin"))]
    return "GGUF" if not others and any(n.endswith(".gguf") for n in names) else None


def _declared_scheme(declared: Mapping[str, Any]) -> str:
    method = str(declared.get("quant_method", "")).lower()
    if not method and (declared.get("load_in_4bit") or declared.get("load_in_8bit")):
        method = "bitsandbytes"
    return _CONFIG_NAMES.get(method, method or "an unnamed quantisation")
