"""Lines and tables on the screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from .console import print_table, screen
from .text import cell_text


def say(line: str | Text, style: str | None = None) -> None:
    screen().print(line, style=style)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False
) -> None:
    """One line per row, shortened to the width of the terminal unless `wide`."""
    lines = [[cell_text(value) for value in row] for row in rows]
    print_table(columns, lines, wide=wide, names=columns)
