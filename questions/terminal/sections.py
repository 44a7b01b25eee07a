"""The sections of a study on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rich.text import Text

from ...results import Document, Section
from .console import has_room
from .saying import _texts, say, say_rows
from .text import escaped, plain

FEWEST_LAYERS = 3
"""Columns of layers that a narrow terminal keeps."""


def show_study(sections: Iterable[Section], document: Document) -> None:
    """A study's sections, the models that could not be studied, and what is said of bases."""
    note = ""
    for section in sections:
        shown, left = _as_wide_as_the_screen(section)
        left_out = ""
        if left:
            names = ", ".join(map(str, left))
            left_out = f"  not shown: {section.noun} {names} (--json has them)"
        if note and left_out and note != left_out:
            say(note, "dim")
        if shown.title:
            say(Text(plain(shown.title)), "bold")
        if shown.rows:
            say_rows([plain(str(head)) for head in shown.columns], shown.rows)
        for line in shown.notes:
            say(Text(f"  {plain(line)}"))
        note = left_out or note
    if note:
        say(note, "dim")
    for model in document.get("failed", ()):
        say(f"[yellow]{escaped(model['model'])}[/]: {escaped(model['reason'])}")
    for line in document.get("base_notes", ()):
        say(f"[yellow]{escaped(line)}[/]")


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
