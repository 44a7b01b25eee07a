"""What one look at a catalog found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "note", "repaired", "problem"]

SHOWN = 3
"""Names that stand for all of a kind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        check: What was looked at.
        advice: What to do about it; empty where nothing is to be done.
    """

    check: str
    state: State
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


Part = tuple[str, int, int]
"""A table, and the first and the last number of some of its rows."""

Track = Callable[[Sequence[Part], str], Iterator[Part]]
"""Gives the same parts, and shows how far it is with what."""


def untracked(parts: Sequence[Part], what: str) -> Iterator[Part]:
    """The same parts."""
    yield from parts


def some(names: Sequence[str], n_all: int | None = None) -> str:
    """`a, b, c and 5 more`."""
    more = (n_all if n_all is not None else len(names)) - min(SHOWN, len(names))
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(n: int, what: str) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
