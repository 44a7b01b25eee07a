"""Answers on the screen: lines, and sections as wide as the screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from ...results import Section
from .console import NAMES, has_room, print_table, screen
from .text import cell_text, plain

FEWEST_LAYERS = 3
"""Columns of layers that a narrow terminal keeps."""


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
            heads = [plain(str(head)) for head in shown.columns]
            names = (*NAMES, *map(plain, shown.names))
            print_table(heads, _texts(shown.rows), names=names, wide=wide)
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
        and not has_room(list(map(str, shown.columns)), _texts(shown.rows))
    ):
        section = replace(section, most=min(section.most, len(section.by_layer)) - 1)
        shown, left = section.shortened()
    return shown, left


def _texts(rows: Iterable[Sequence[object]]) -> list[list[str]]:
    return [[cell_text(cell) for cell in row] for row in rows]
