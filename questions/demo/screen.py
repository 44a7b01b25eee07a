"""What the demo prints."""

from __future__ import annotations

import click

from ...results import Shown
from .. import terminal


class DemoScreen:
    """Lines on stderr, answers on stdout as their commands print them; silence when quiet."""

    def __init__(self, progress: terminal.RunProgress, *, quiet: bool) -> None:
        self.progress, self._quiet = progress, quiet

    def line(self, text: str) -> None:
        if not self._quiet:
            click.echo(text, err=True)

    def heading(self, text: str) -> None:
        self.line(f"\n{text}")

    def answer(self, parts: Shown) -> None:
        if not self._quiet:
            terminal.show_answer(parts)
