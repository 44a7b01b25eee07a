"""A base's name without what differs between spellings of it."""

from __future__ import annotations

import re
from pathlib import Path

_QUANTISED_TWIN = re.compile(
    r"[-_.](unsloth[-_.])?(bnb[-_.])?(4|8)[-_.]?bit$|[-_.](gptq|awq|gguf|fp8|int4|int8|nf4)$",
    re.IGNORECASE,
)
_CACHE_FOLDER = re.compile(r"models--(?P<name>[^/\\]+)", re.IGNORECASE)
_SHA = re.compile(r"^[0-9a-f]{40}$")
_STEP = re.compile(r"^(checkpoint|step|epoch)[-_]?\d+$", re.IGNORECASE)
_FILLER = {"", ".", "..", "snapshots", "resolve", "main", "tree", "blob"}


def is_model_path(model: str) -> bool:
    """Whether a model that is not in the catalog may be a folder or a Hub id."""
    return Path(model).is_dir() or "/" in model


def base_key(name: str) -> str:
    """What is left of a base's name without owner, path, separators and quantised twins.

    `google-bert/bert-base-uncased`, `/models/bert-base-uncased/`, `D:\\nets\\bert_base_uncased`,
    a cache folder, a URL and `unsloth/bert-base-uncased-bnb-4bit` all give `bertbaseuncased`.
    """
    cached = _CACHE_FOLDER.search(name)
    if cached:
        name = cached["name"].replace("--", "/")
    parts = [p for p in re.split(r"[/\\]+", name.strip().strip("\"'")) if p not in _FILLER]
    while len(parts) > 1 and (_SHA.match(parts[-1]) or _STEP.match(parts[-1])):
        parts.pop()
    last = parts[-1] if parts else ""
    while (stripped := _QUANTISED_TWIN.sub("", last)) != last:
        last = stripped
    return re.sub(r"[^0-9a-z]", "", last.lower())
