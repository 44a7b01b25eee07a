"""Labels as they stand in a file: names of classes, or numbers of a regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

LabelKind = Literal["classes", "numbers", "names"]

MOST_FRACTIONS = 20
"""Half stars make ten classes; more numbers with fractions than this are a measure."""

MOST_WHOLE_NUMBERS = 100
"""More of them are classes only if none is left out from 0 or 1 on."""

MOST_COUNTED = 1000
"""Different labels: as many are no classes, and further ones are not counted."""

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
    if isinstance(value, str | int | Decimal) or (
        isinstance(value, float) and math.isfinite(value)
    ):
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
    """What labels with these counts, of the whole file, are.

    Numbers of a regression, if all are numbers and, with fractions among them, more than
    `MOST_FRACTIONS` or half the rows differ, without fractions more than `MOST_WHOLE_NUMBERS`
    differ and they are no numbers of classes; names, if they number the rows, or more than half
    the rows differ, and so no class could be learned; classes otherwise.
    """
    numbers = [number for name in counts if (number := as_number(name)) is not None]
    rows, n = sum(counts.values()), len(counts)
    if len(numbers) < n:
        return "names" if n >= MOST_COUNTED or n > max(rows // 2, 20) else "classes"
    if not all(map(float.is_integer, numbers)):
        return "numbers" if n > min(MOST_FRACTIONS, rows // 2) else "classes"
    if n <= MOST_WHOLE_NUMBERS:
        return "classes"
    is_count = min(numbers) in (0, 1) and max(numbers) - min(numbers) + 1 == n
    if is_count and rows == n:
        return "names"
    is_percentage = is_count and min(numbers) == 0 and n == 101
    return "classes" if is_count and not is_percentage and 2 * n <= rows else "numbers"
