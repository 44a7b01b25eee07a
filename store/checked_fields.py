"""Fields of JSON by unknown writers; each is checked before it is used.

Every function raises `ValueError` with the field's name where the value is not what it has to be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..records import Recipe

MOST_SETTINGS = 64
MOST_BLOCKS = 10_000

_RECIPE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def checked_count(value: object, field: str, most: int, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(field)
    return value


def checked_number(value: object, field: str, least: float = -1e6, most: float = 1e6) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(field)
    if not least <= value <= most:  # NaN too
        raise ValueError(field)
    return float(value)


def checked_text(value: object, field: str, most: int) -> str:
    """A text that is not empty, of characters that a terminal shows."""
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise ValueError(field)
    return value


def checked_match(value: object, field: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(field)
    return value


def checked_list(value: object, field: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(field)
    return value


def checked_layout(value: object, longest_text: int) -> tuple[tuple[str, str, int], ...]:
    """(stack, role, rows) of the blocks of a recipe that depends on them."""
    blocks = [checked_list(b, "layout", 3) for b in checked_list(value, "layout", MOST_BLOCKS)]
    if any(len(block) != 3 for block in blocks):
        raise ValueError("layout")
    return tuple(
        (
            checked_text(stack, "layout", longest_text),
            checked_text(role, "layout", longest_text),
            checked_count(rows, "layout", 1 << 40),
        )
        for stack, role, rows in blocks
    )


def checked_recipe(raw: Mapping[str, Any], longest_text: int, largest_dim: int) -> Recipe:
    params = [
        checked_list(p, "params", 2) for p in checked_list(raw["params"], "params", MOST_SETTINGS)
    ]
    if any(len(pair) != 2 for pair in params):
        raise ValueError("params")
    return Recipe(
        name=checked_match(raw["name"], "name", _RECIPE_NAME),
        rank=checked_count(raw["rank"], "rank", 1 << 16),
        dim=checked_count(raw["dim"], "dim", largest_dim, least=1),
        seed=checked_count(raw["seed"], "seed", 1 << 62),
        version=checked_count(raw["version"], "version", 1 << 16),
        params=tuple(
            (checked_text(key, "params", longest_text), checked_text(value, "params", longest_text))
            for key, value in params
        ),
    )
