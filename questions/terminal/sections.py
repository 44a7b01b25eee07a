"""Answers on the screen: lines, and tables that fit the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...results import Section
from .text import cell_text, plain

NUMBERS = ("probability", "z", "±", "fdr", "cosine", "examples", "control", "effect", "95 %", "p")

WHOLE = (*NUMBERS, "rank", "verdict", "slot", "kind", "code")

NAMES = ("model", "base", "family", "dataset", "author", "run", "data", "child", "parent", "source")
"""Columns that are shortened where the terminal is narrow."""

LEAST_NAME, LEAST_SUBJECT, LEAST_SENTENCE = 12, 16, 20
"""Characters that are left of a name, of what a row is about, and of a line of a sentence."""

LEFT_OUT_FIRST = (
    *("rank", "run", "author", "cosine", "±", "examples", "control", "fdr", "z", "loss"),
    *("left out", "silhouette"),
)
"""Columns that a narrow terminal does without, in this order; then those on the right."""

GAP = 2
"""Columns of the screen between those of a table."""

FEWEST_LAYERS = 3
"""Columns of layers that a narrow terminal keeps."""


class Screen(Console):
    """A console of rich, which otherwise ends the process where its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Write no more to standard error; of standard output, the command line hears."""
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError


def screen(*, wide: bool = False) -> Console:
    """A console as wide as its terminal; without a limit if `wide` or without a terminal."""
    console = Screen(highlight=False, emoji=False)
    if wide or not console.is_terminal:
        console.width = 10_000
    return console


def show_answer(parts: Iterable[str | Section], *, wide: bool = False) -> None:
    """Lines and tables in their order, as wide as the terminal or, if `wide`, as what they hold;
    which layers have no room is said once."""
    say = screen().print
    note = ""
    for part in parts:
        if isinstance(part, str):
            if note:
                say(note, style="dim")
            note = ""
            say(Text(plain(part)))
            continue
        shown, left = _as_wide_as_the_screen(part)
        left_out = ""
        if left:
            layers = ", ".join(map(str, left))
            left_out = f"  not shown: {part.noun} {layers} (--json has them)"
        if note and left_out and note != left_out:
            say(note, style="dim")
        if shown.title:
            say(Text(plain(shown.title)), style="bold")
        if shown.rows:
            names = (*NAMES, *map(plain, shown.names))
            print_table(shown.columns, shown.rows, names=names, wide=wide)
        for line in shown.notes:
            say(Text(f"  {plain(line)}"))
        note = left_out or note
    if note:
        say(note, style="dim")


def _as_wide_as_the_screen(section: Section) -> tuple[Section, list[object]]:
    """The section with as many layers as there is room for, and those that are left out."""
    shown, left = section.shortened()
    while (
        section.across
        and min(section.most, len(section.by_layer)) > FEWEST_LAYERS
        and _fit(_columns(shown.columns, shown.rows, NAMES), screen().width)
    ):
        section = replace(section, most=min(section.most, len(section.by_layer)) - 1)
        shown, left = section.shortened()
    return shown, left


class _Column:
    """A column of a table, and how much of the screen it takes.

    Attributes:
        width, least: Now, and the least that says something.
        is_name: Cells are shortened in the middle.
        folds: Cells go on in the next line. All others are whole.
    """

    def __init__(self, head: str, cells: Sequence[str], *, is_name: bool) -> None:
        self.head, self.cells = head, cells
        texts = [head, *cells]
        is_whole = head in WHOLE or all(map(_is_number, cells))
        self.is_name = is_name and not is_whole
        self.folds = not (is_name or is_whole) and any(" " in text for text in texts)
        self.width = self.least = max(map(cell_len, texts))
        if is_name:
            kept = max(map(cell_len, cells), default=0) if is_whole else 0
            self.least = min(self.width, max(kept, LEAST_NAME))
        elif self.folds:
            self.least = min(self.width, LEAST_SENTENCE)

    def shown(self) -> list[Text]:
        """The cells, names as short as the column is."""
        return [Text(_middle(text, self.width) if self.is_name else text) for text in self.cells]


def print_table(
    heads: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    wide: bool = False,
    names: Collection[str] = NAMES,
) -> None:
    """A table as wide as the terminal, without columns of only blanks: names are shortened in the
    middle, sentences folded, numbers whole; columns that still have no room are named below."""
    console = screen(wide=wide)
    columns = _columns(heads, rows, names)
    left_out = _fit(columns, console.width)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(
            Text(_middle(column.head, column.width)),
            justify="right" if column.head in NUMBERS else "left",
            width=column.width,
            no_wrap=not column.folds,
            overflow="fold" if column.folds else "ellipsis",
        )
    for cells in zip(*(column.shown() for column in columns), strict=True):
        table.add_row(*cells)
    console.print(table)
    if left_out:
        console.print(Text(f"no room for: {', '.join(left_out)}", "dim"))


def _columns(
    heads: Sequence[object], rows: Sequence[Sequence[object]], names: Collection[str]
) -> list[_Column]:
    """Those that have a cell, the first in any case."""
    texts = [plain(str(head)) for head in heads]
    columns = [
        _Column(text, [cell_text(row[n]) for row in rows], is_name=text in names)
        for n, text in enumerate(texts)
    ]
    return [c for c in columns if c is columns[0] or not rows or any(c.cells)]


def _fit(columns: list[_Column], width: int) -> list[str]:
    """Narrow columns to a width, and take away those that cannot be, whose heads are returned."""
    left_out = []
    subject = next((column for column in columns if column.is_name), columns[0])
    if subject.is_name:
        subject.least = min(subject.width, LEAST_SUBJECT)

    def room(widths: Iterable[int]) -> int:
        return width - sum(widths) - GAP * (len(columns) - 1)

    while len(columns) > 1 and room(column.least for column in columns) < 0:
        first = (column for head in LEFT_OUT_FIRST for column in columns if column.head == head)
        taken = next(c for c in [*first, *reversed(columns)] if c is not subject)
        columns.remove(taken)
        left_out.append(taken.head)
    while room(column.width for column in columns) < 0:
        narrower = [column for column in columns if column.width > column.least]
        if not narrower:
            subject.width = width
            break
        max(narrower, key=lambda column: column.width).width -= 1
    return left_out


def _middle(text: str, width: int) -> str:
    """A text of at most `width` columns of a terminal: `someone/bert-…-imdb`."""
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 2
    tail = text[::-1]
    return f"{set_cell_size(text, head)}…{set_cell_size(tail, width - 1 - head)[::-1]}"


def _is_number(text: str) -> bool:
    return not text.strip("0123456789.,+-−–e% ")
