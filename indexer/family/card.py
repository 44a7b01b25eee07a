"""A model card's front matter and text, whatever state it is in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ..words import shown
from .base_name import base_key

MAX_CARD_CHARS = 400_000
MAX_PARENTS = 64

MAX_DEPTH = 50
"""Lists and mappings within one another; real cards have some six."""

MAX_SCALAR = 10_000
"""Characters of a value that YAML may take for a number: base-60 digits cost their square."""

_CLOSING = re.compile(r"^---[ \t\r]*$", re.MULTILINE)


class _CardLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without merge keys, of which a few lines expand to any size."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave `<<` where it is: as a key it has no meaning, and is refused."""


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """(front matter, body); an unreadable front matter counts as empty."""
    text = text[:MAX_CARD_CHARS]
    first, _, rest = text.removeprefix("\ufeff").lstrip().partition("\n")
    closing = _CLOSING.search(rest) if first.rstrip() == "---" else None
    if closing is None:
        return {}, text
    front = _read_yaml(rest[: closing.start()])
    return (dict(front) if isinstance(front, Mapping) else {}), rest[closing.end() + 1 :]


def card_bases(front: Mapping[str, Any]) -> tuple[str, ...]:
    """Every base_model that a card names, in its order: a merge has several."""
    value = front.get("base_model")
    values = value[:MAX_PARENTS] if isinstance(value, list) else [value]
    names = (name.strip() for name in values if isinstance(name, str))
    return tuple(dict.fromkeys(name for name in names if name))


def parents_note(parents: Sequence[str]) -> tuple[str, ...]:
    """What a model's notes say of several parents; nothing of spellings of one."""
    distinct = {base_key(parent): parent for parent in reversed(parents)}
    if len(distinct) < 2:
        return ()
    listed = ", ".join(shown(parent) for parent in parents if parent in distinct.values())
    return (f"its card names the parents {listed}",)


def _read_yaml(text: str) -> object:
    """The document; None where it cannot be read, or would take too much."""
    try:
        return yaml.load(text, _CardLoader) if _is_modest(text) else None
    # PyYAML's constructors fail in any way on values that are not of their tag.
    except Exception:
        return None


def _is_modest(text: str) -> bool:
    """Whether neither nesting nor a number could take long, by its events alone."""
    depth = 0
    for event in yaml.parse(text, _CardLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            may_be_number = event.tag or event.implicit[0]
            if may_be_number and len(event.value) > MAX_SCALAR:
                return False
    return True
