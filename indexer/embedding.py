"""The matrix of a model's input tokens, found from the headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .checkpoint import Config, TensorRef

_TOKENS = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|embed_in|tok_embeddings|shared|token_embedding"
    r"|tokens_embed|word_emb|embeddings?|emb|embed)\.(weight|emb_layers\.0\.weight)$"
)
_IN_LAYER = re.compile(r"\.\d+\.")
_OTHER = re.compile(r"position|pos_emb|token_type|segment|patch|relative|lm_head|class_emb")


def find_embedding(tensors: Mapping[str, TensorRef], config: Config | None) -> TensorRef | None:
    """The matrix of the input tokens, (rows, width): outside the numbered blocks, by its name; of
    several the one of the config's vocabulary, else of most rows."""
    inner = (config or {}).get("text_config")
    wanted = (inner if isinstance(inner, Mapping) else config or {}).get("vocab_size")
    found = [
        ref
        for name, ref in tensors.items()
        if len(ref.shape) == 2
        and all(ref.shape)
        and _TOKENS.search(name)
        and not _IN_LAYER.search(name)
        and not _OTHER.search(name)
    ]
    return max(
        found,
        key=lambda ref: (ref.shape[0] == wanted, ref.shape[0], -len(ref.name), ref.name),
        default=None,
    )


def is_before_layers(ref: TensorRef, tensors: Mapping[str, TensorRef]) -> bool:
    """Whether it lies before all of the numbered blocks of a file, whose tensors are in order:
    bytes that are hashed are best read in theirs."""
    return next(name for name in tensors if name == ref.name or _IN_LAYER.search(name)) == ref.name
