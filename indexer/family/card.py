"""A model card's front matter and text, whatever state it is in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

MAX_CARD_CHARS = 400_000
_FRONT = re.compile(r"\A\ufeff?\s*---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """(front matter, body); an unreadable front matter counts as empty."""
    text = text[:MAX_CARD_CHARS]
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    try:
        front = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        front = None
    return (dict(front) if isinstance(front, Mapping) else {}), text[match.end() :]


def card_base(front: Mapping[str, Any]) -> str | None:
    """The first base_model that a card names."""
    value = front.get("base_model")
    first = value[0] if isinstance(value, list) and value else value
    return first.strip() if isinstance(first, str) and first.strip() else None
