"""What the demo shows while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .evaluation_tables import show_evaluation
from .progress import RunProgress
from .screen import Screen
from .tables import show_neighbours, show_report

_SHOW: Mapping[str, Callable[[Any], None]] = {
    "index": show_report,
    "eval": show_evaluation,
    "neighbours": show_neighbours,
}


class DemoScreen:
    """Lines on stderr, tables on stdout; silence when quiet."""

    def __init__(self, progress: RunProgress, *, quiet: bool) -> None:
        self.progress, self._quiet = progress, quiet
        self._console = Screen(stderr=True, quiet=quiet, highlight=False)

    def line(self, text: str) -> None:
        self._console.print(text)

    def heading(self, text: str) -> None:
        self.line(f"\n[bold]{text}[/]")

    def document(self, kind: str, document: Mapping[str, Any]) -> None:
        if not self._quiet:
            _SHOW[kind](document)
