"""A run's progress on stderr: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)

from .screen import Screen
from .text import plain, size

if TYPE_CHECKING:
    from ..records import Outcome


Thing = TypeVar("Thing")

EVERY_S = 10.0
"""Between two lines; a run that is shorter prints none."""


class ProgressLines:
    """Plain lines on stderr, one every few seconds, from `begin` until all is done.

    A thread prints them, so that a model that takes minutes does not silence a log.
    """

    def __init__(self, what: str, *, every_s: float = EVERY_S, silent: bool = False) -> None:
        self._what, self._every_s, self._silent = what, every_s, silent
        self._done = 0
        self._total: int | None = None
        self._note = ""
        self._share = 0.0
        self._start = time.monotonic()
        self._has_begun = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, name="progress", daemon=True)

    def __enter__(self) -> ProgressLines:
        if not self._silent:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if not self._silent:
            self._thread.join()

    def begin(self, total: int | None) -> None:
        """Time counts from now."""
        self._total, self._start = total, time.monotonic()
        self._has_begun = True

    def advance(self, note: str = "", share: float = 0.0) -> None:
        """One more is done; `note` is about all that are.

        `share`: Of the work that is done, 0…1, where it is known better than by counting.
        """
        self._done += 1
        self._note, self._share = note, min(1.0, share)

    def rename(self, what: str) -> None:
        """What is done from now on, from nothing."""
        self._what, self._done, self._note = what, 0, ""

    def line(self, elapsed_s: float) -> str:
        """`indexing 3/12 · 1.5 GiB of 6.0 GiB, 40.0 MiB/s · about 2 min left`."""
        total = "" if self._total is None else f"/{self._total}"
        parts = [f"{self._what} {self._done}{total}", self._note]
        if self._done and self._total:
            share = self._share or self._done / self._total
            left_s = elapsed_s * (1 / share - 1)
            parts.append(f"about {duration(left_s)} left")
        else:
            parts.append(f"{elapsed_s:.0f} s so far")
        return plain(" · ".join(filter(None, parts)))

    def _print(self) -> None:
        while not self._ended.wait(self._every_s):
            if not self._has_begun or self._done == self._total:
                continue
            console = Screen(stderr=True, highlight=False, markup=False, emoji=False, width=10_000)
            console.print(self.line(time.monotonic() - self._start))


def duration(seconds: float) -> str:
    """90 → `2 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


class RunProgress:
    """The progress of an indexing run; a context manager."""

    def __init__(self, *, quiet: bool, every_s: float = EVERY_S) -> None:
        console = Screen(stderr=True, emoji=False)
        self._bytes = self._bytes_total = self._refused = 0
        self._start = time.monotonic()
        self._lines = ProgressLines(
            "indexing", every_s=every_s, silent=quiet or console.is_terminal
        )
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[read]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("indexing", total=None, read="", latest="", start=False)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        self._lines.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.__exit__()
        self._bar.stop()

    def listing(self, members: Iterable[Thing]) -> Iterator[Thing]:
        """The same members, counted as they are listed."""
        self._lines.rename("listing")
        self._lines.begin(None)
        self._bar.update(self._task, description="listing")
        for member in members:
            yield member
            self._lines.advance()
            self._bar.advance(self._task)

    def begin(self, models: int, bytes_total: int) -> None:
        """The models are listed; so many of them are read, and about so many bytes."""
        self._start, self._bytes_total = time.monotonic(), bytes_total
        self._bar.start_task(self._task)
        self._bar.update(self._task, total=models, completed=0, description="indexing")
        self._lines.rename("indexing")
        self._lines.begin(models)

    def outcome(self, outcome: Outcome) -> None:
        self._bytes += outcome.bytes_read
        elapsed = time.monotonic() - self._start
        rate = f", {size(int(self._bytes / elapsed))}/s" if elapsed > 0 else ""
        total = f" of {size(self._bytes_total)}" if self._bytes < self._bytes_total else ""
        read = size(self._bytes) + total + rate
        if outcome.status != "indexed":
            self._refused += 1
        refused = f"{self._refused} not indexed" if self._refused else ""
        share = self._bytes / self._bytes_total if self._bytes_total else 0.0
        self._lines.advance(" · ".join(filter(None, (read, refused))), share)
        shown = f"[yellow]{refused}[/] · " if refused else ""
        latest = shown + escape(plain(outcome.model.id)[-20:])
        self._bar.update(self._task, advance=1, read=read, latest=latest)


def tracked(
    things: Iterable[Thing],
    what: str,
    *,
    quiet: bool,
    total: int | None = None,
    every_s: float = EVERY_S,
) -> Iterator[Thing]:
    """The same things, with progress on stderr."""
    console = Screen(stderr=True)
    if quiet or console.is_terminal:
        yield from track(
            things, description=what, total=total, console=console, transient=True, disable=quiet
        )
        return
    with ProgressLines(what, every_s=every_s) as lines:
        lines.begin(len(things) if total is None and isinstance(things, Sized) else total)
        for thing in things:
            yield thing
            lines.advance()
