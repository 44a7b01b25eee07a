"""Text from models' files and from the Hub, shortened to be stored and shown."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence

from ..records import LONGEST_TEXT

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
