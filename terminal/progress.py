"""A run's progress on stderr: models done, bytes read, rate, time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)

from .text import plain, size

if TYPE_CHECKING:
    from ..records import Outcome


Thing = TypeVar("Thing")


class RunProgress:
    """A bar while stderr is a terminal, silence otherwise; a context manager."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True, emoji=False)
        self._silent = quiet or not console.is_terminal
        self._bytes = 0
        self._refused = 0
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[read]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}"),
            console=console,
            transient=True,
            disable=self._silent,
        )
        self._task = self._bar.add_task("indexing", total=None, read="", latest="", start=False)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, models: int, bytes_total: int) -> None:
        self._bar.start_task(self._task)
        self._bar.update(self._task, total=models)

    def outcome(self, outcome: Outcome) -> None:
        self._bytes += outcome.bytes_read
        elapsed = self._bar.tasks[self._task].elapsed or 0.0
        rate = f" · {size(int(self._bytes / elapsed))}/s" if elapsed > 0 else ""
        if outcome.status != "indexed":
            self._refused += 1
        refused = f"[yellow]{self._refused} not indexed[/] · " if self._refused else ""
        self._bar.update(
            self._task,
            advance=1,
            read=size(self._bytes) + rate,
            latest=refused + escape(plain(outcome.model.id)[-20:]),
        )


def tracked(
    things: Iterable[Thing], what: str, *, quiet: bool, total: int | None = None
) -> Iterator[Thing]:
    """The same things, with a bar on stderr while it is a terminal."""
    console = Console(stderr=True)
    silent = quiet or not console.is_terminal
    yield from track(
        things, description=what, total=total, console=console, transient=True, disable=silent
    )


def note(line: str) -> None:
    """A remark on stderr."""
    Console(stderr=True, highlight=False, emoji=False).print(escape(plain(line)), style="yellow")
