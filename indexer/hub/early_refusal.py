"""Models that need not be read at all: what the listing alone says against them."""

from __future__ import annotations

import re

from ...errors import ModelError
from ..checkpoint import choose_weights, quantization
from .hub_model import HubModel
from .session import HubSession, default_session

_TAG = re.compile(
    r"gptq|awq|[2348]-bit|bitsandbytes|(mx|nv)?fp[48]|compressed-tensors|exl[23]|hqq|aqlm|eetq"
    r"|quanto|auto-round"
)
_PACKED = ("I32", "U8", "I8", "U32", "F4")
_PACKED_SHARE = 0.25
"""Of the stored elements. GPT-2's boolean masks are below a tenth, packed 4-bit weights
of small models with large embeddings about a third."""


def early_refusal(model: HubModel, *, session: HubSession | None = None) -> ModelError | None:
    """Why a model will not be read, from its description alone; None: it is worth a try.

    A gated model is worth one where there is a token: access may have been granted.
    """
    session = session or default_session()
    if model.disabled:
        return ModelError("disabled", f"{model.id}: the Hub has disabled the repository")
    if model.gated and not session.has_token:
        line = "gated; ask for access on its page and set HF_TOKEN"
        return ModelError("gated", f"{model.id}: {line}")
    scheme = _quantised_as(model)
    if scheme is not None:
        return ModelError("quantized", f"{model.id}: weights are stored as {scheme}")
    top = [name for name in model.files or () if "/" not in name]
    is_adapter = model.kind == "adapter"
    if model.files is not None and choose_weights(top, adapter=is_adapter) is None:
        return ModelError("no-weights", f"{model.id}: no safetensors or .bin weights at its top")
    return None


def _quantised_as(model: HubModel) -> str | None:
    if model.kind == "adapter":
        return None
    scheme = quantization(model.config, (), model.files or ())
    if scheme is not None:
        return scheme
    if model.kind == "quantized":
        return "a quantised copy of its base"
    total = sum(model.dtypes.values())
    packed = {n: c for n, c in model.dtypes.items() if n in _PACKED or n.startswith("F8_")}
    if packed and sum(packed.values()) >= _PACKED_SHARE * total:
        return max(packed, key=packed.__getitem__)
    tag = next((tag for tag in model.tags if _TAG.fullmatch(tag.lower())), None)
    return tag if tag is not None and (packed or not total) else None
