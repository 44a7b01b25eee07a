"""Lines and tables on the screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.text import Text

from ...results import Document
from .console import NAMES, print_table, screen
from .text import cell_text, plain


def say(line: str | Text, style: str | None = None) -> None:
    screen().print(line, style=style)


def say_plain(line: str) -> None:
    """A line in which brackets are no markup."""
    screen().print(Text(line))


def say_rows(
    heads: Sequence[str],
    rows: Sequence[Sequence[object] | Document],
    *,
    names: Collection[str] = NAMES,
) -> None:
    """A table of cells in the order of the heads, or of documents that have them as keys."""
    cells = ([row[head] for head in heads] if isinstance(row, Mapping) else row for row in rows)
    print_table(heads, _texts(cells), names=names)


def _texts(rows: Iterable[Sequence[object]]) -> list[list[str]]:
    return [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False
) -> None:
    """One line per row, shortened to the width of the terminal unless `wide`."""
    lines = [[cell_text(value) for value in row] for row in rows]
    print_table(columns, lines, wide=wide, names=columns)
