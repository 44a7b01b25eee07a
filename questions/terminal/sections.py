"""Answers on the screen: lines, and sections as wide as the screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from ...results import Document, Section
from .console import NAMES, has_room, print_table
from .saying import say
from .text import plain

FEWEST_LAYERS = 3
"""Columns of layers that a narrow terminal keeps."""


def show_study(sections: Iterable[Section], document: Document) -> None:
    """A study's sections, the models that could not be studied, and what is said of bases."""
    failed = [f"{model['model']}: {model['reason']}" for model in document.get("failed", ())]
    show_answer([*sections, *failed, *document.get("base_notes", ())])


def show_answer(parts: Iterable[str | Section]) -> None:
    """Lines and tables in their order; which layers have no room is said once."""
    note = ""
    for part in parts:
        if isinstance(part, str):
            if note:
                say(note, "dim")
            note = ""
            say(Text(plain(part)))
            continue
        shown, left = _as_wide_as_the_screen(part)
        left_out = ""
        if left:
            names = ", ".join(map(str, left))
            left_out = f"  not shown: {part.noun} {names} (--json has them)"
        if note and left_out and note != left_out:
            say(note, "dim")
        if shown.title:
            say(Text(plain(shown.title)), "bold")
        if shown.rows:
            heads = [plain(str(head)) for head in shown.columns]
            print_table(heads, _texts(shown.rows), names=(*NAMES, *map(plain, shown.names)))
        for line in shown.notes:
            say(Text(f"  {plain(line)}"))
        note = left_out or note
    if note:
        say(note, "dim")


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
    return [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
