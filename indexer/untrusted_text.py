"""Text from models' files and from the Hub: shortened to be stored and shown; names of bases."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Sequence

from ..records import LONGEST_TEXT

_QUANTISED = re.compile(
    r"[-_.](unsloth[-_.])?(bnb[-_.])?(4|8)[-_.]?bit$|[-_.](gptq|awq|gguf|fp8|int4|int8|nf4)$",
    re.IGNORECASE,
)
_CACHE_FOLDER = re.compile(r"models--(?P<name>[^/\\]+)", re.IGNORECASE)
_SHA = re.compile(r"^[0-9a-f]{40}$")
_STEP = re.compile(r"^(checkpoint|step|epoch)[-_]?\d+$", re.IGNORECASE)
_FILLER = {"", ".", "..", "snapshots", "resolve", "main", "tree", "blob"}

NAMED = 5
"""Names that a reason gives before it only counts the rest."""

LONGEST_NAME = 120

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST_NAME


def name_some(names: Sequence[str]) -> str:
    """Up to five names, quoted, and how many more there are."""
    short = (n if len(n) <= LONGEST_NAME else n[:LONGEST_NAME] + "…" for n in names[:NAMED])
    return ", ".join(map(repr, short)) + (
        f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    )


def shown(value: object) -> str:
    """The value's repr on one line and not too long, however deep or long it is."""
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def distinct_texts(values: Iterable[object]) -> tuple[str, ...]:
    """The texts among the values, stripped, each once; none that is empty or too long to keep."""
    texts = (text.strip() for text in map(text_or_none, values) if text)
    return tuple(dict.fromkeys(filter(None, texts)))


def text_or_none(value: object) -> str | None:
    """A text of a length that can be kept; None for an empty one and for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT else None


def is_model_path(model: str) -> bool:
    """Whether a model that is not in the catalog may be a folder or a Hub id."""
    return os.path.isdir(model) or "/" in model


def base_key(name: str) -> str:
    """What is left of a base's name without owner, path, separators and marks of quantisation.

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
    while (stripped := _QUANTISED.sub("", last)) != last:
        last = stripped
    return re.sub(r"[^0-9a-z]", "", last.lower())
