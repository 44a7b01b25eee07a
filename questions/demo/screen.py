"""What the demo prints: lines on stderr, answers as their commands print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.text import Text

from ..eval import show_evaluation
from ..find_similar import show_neighbours
from ..index import show_report
from ..lineage.screen import show_lineage
from ..terminal.console import screen
from ..terminal.progress import RunProgress


class DemoScreen:
    """Lines on stderr, tables on stdout; silence when quiet."""

    def __init__(self, progress: RunProgress, *, quiet: bool) -> None:
        self.progress, self._quiet = progress, quiet
        self._console = screen(stderr=True, quiet=quiet)

    def line(self, text: str) -> None:
        self._console.print(Text(text))

    def heading(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", "bold"))

    def document(self, kind: str, document: Mapping[str, Any]) -> None:
        show: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "index": show_report,
            "eval": show_evaluation,
            "neighbours": show_neighbours,
            "lineage": show_lineage,
        }
        if not self._quiet:
            show[kind](document)
