"""Labels as they stand in a file: names of classes, or numbers of a regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

LabelKind = Literal["classes", "numbers", "names"]

MOST_FRACTIONS = 20
"""Half stars make ten classes; more numbers with fractions than this are a measure."""

MOST_WHOLE_NUMBERS = 100
MOST_COUNTED = 1000
NO_CLASS = "-1"
"""What `datasets` writes in place of a class that is not known."""


def class_name(value: object) -> str | None:
    """A label as text, the same from every format: 1, 1.0, "1" and " 1 " are "1".

    None: no single value, or no number.
    """
    if isinstance(value, str) and value.isalnum() and value not in ("True", "False"):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        text = str(value).strip()
        if text in ("True", "False"):
            return text.lower()
        number = as_number(text) if text[-2:] == ".0" else None
        return text if number is None else str(int(number))
    return None


def as_number(name: str) -> float | None:
    """The finite number that a label is, if it is one."""
    if not name or name[-1] not in "0123456789." or "_" in name:
        return None
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def label_kind(counts: Mapping[str, int]) -> LabelKind:
    """What labels with these counts are.

    Numbers of a regression, if all are numbers and either more than `MOST_WHOLE_NUMBERS` or, with
    fractions among them, more than `MOST_FRACTIONS` or half the rows differ; names, if more than
    half the rows differ, and so no class could be learned; classes otherwise.
    """
    numbers = [as_number(name) for name in counts]
    rows = sum(counts.values())
    if None not in numbers:
        fractions = any(number is not None and not number.is_integer() for number in numbers)
        limit = min(MOST_FRACTIONS, rows // 2) if fractions else MOST_WHOLE_NUMBERS
        return "numbers" if len(counts) > limit else "classes"
    return "names" if len(counts) >= MOST_COUNTED or len(counts) > max(rows // 2, 20) else "classes"
