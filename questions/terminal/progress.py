"""A run's progress on stderr: a line that changes on a terminal, else a line every ten seconds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...records import Outcome
from ...results import size
from .sections import Screen
from .text import duration, plain

Thing = TypeVar("Thing")

Lines = TypeVar("Lines", bound="ProgressLines")

EVERY_S = 10.0
"""Between two lines; a run that is shorter prints none."""

FEWEST_DONE, SURELY_DONE = 0.01, 0.1
"""Shares of the work from which the rest of the time can be told, at most and about."""

ALIKE = 1.5
"""Ratio of two times that are told as one."""


class ProgressLines:
    """How far a run is, from `start` until all is done: a line that a terminal shows anew twice a
    second; elsewhere a thread prints one every few seconds, so that a model that takes minutes does
    not silence a log.
    """

    def __init__(self, what: str, *, every_s: float = EVERY_S, quiet: bool = False) -> None:
        self._what, self._every_s, self._quiet = what, every_s, quiet
        self.done = 0
        self.total: int | None = None
        self._start: float | None = None
        self._points = deque([(0.0, 0.0)])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, name="progress", daemon=True)
        self._console = Screen(stderr=True, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None

    def __enter__(self: Lines) -> Lines:
        if self._quiet:
            return self
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._shown,
                transient=True,
                refresh_per_second=2,
            )
            self._live.start()
        else:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def elapsed_s(self) -> float:
        """Since the last `start`."""
        return 0.0 if self._start is None else time.monotonic() - self._start

    def start(self, total: int | None, what: str | None = None) -> None:
        """Time and things, of another kind if it is named, count from now."""
        self.total, self.done, self._what = total, 0, what or self._what
        self._start, self._points = time.monotonic(), deque([(0.0, 0.0)])

    def advance(self) -> None:
        self.done += 1

    def _status(self) -> tuple[str, float]:
        """A note on what was done so far, and its share of the work, 0…1."""
        return "", self.done / self.total if self.total else 0.0

    def line(self, elapsed_s: float) -> str:
        """`indexing 3/12 · 1.5 GiB of 6.0 GiB, 40.0 MiB/s · about 2 min left`."""
        total = "" if self.total is None else f"/{self.total}"
        note, share = self._status()
        left = time_left(elapsed_s, share, self._points[0])
        self._points.append((elapsed_s, share))
        while elapsed_s - self._points[1][0] > EVERY_S:
            self._points.popleft()
        parts = (f"{self._what} {self.done}{total}", note, left)
        return plain(" · ".join(filter(None, parts)))

    def _print(self) -> None:
        self._console.width = 10_000
        while not self._ended.wait(self._every_s):
            if self._start is not None and self.done != self.total:
                self._console.print(self.line(self.elapsed_s))

    def _shown(self) -> Table:
        """A bar and the line, for a terminal."""
        shown, (_, share) = Table.grid(padding=(0, 1)), self._status()
        bar = ProgressBar(total=1.0, completed=share, width=16, pulse=not self.total)
        shown.add_row(bar, Text(self.line(self.elapsed_s), no_wrap=True, overflow="ellipsis"))
        return shown


def time_left(elapsed_s: float, share: float, since: tuple[float, float] = (0.0, 0.0)) -> str:
    """`about 2 min left`, if it goes on as it did; `40 s to 2 min left` where it went otherwise
    since a moment, of which the time and share are given; the time so far where too little is
    done. The first models take longest."""
    if share < FEWEST_DONE:
        return f"{elapsed_s:.0f} s so far"
    paces = [(elapsed_s - at) / (share - done) for at, done in ((0.0, 0.0), since) if share > done]
    least, most = ((1 - share) * pace for pace in (min(paces), max(paces)))
    if most > ALIKE * least:
        return f"{duration(least)} to {duration(most)} left"
    return f"{'at most' if share < SURELY_DONE else 'about'} {duration(most)} left"


class RunProgress(ProgressLines):
    """The progress of an indexing run."""

    def __init__(self, *, quiet: bool, every_s: float = EVERY_S) -> None:
        super().__init__("indexing", every_s=every_s, quiet=quiet)
        self.n_outcomes = self._refused = self._come = self._expected = 0
        self._bytes_read: Callable[[], tuple[int, int]] | None = None

    def listing(self, members: Iterable[Thing]) -> Iterator[Thing]:
        """The same members, counted as they are listed."""
        self.start(None, "listing")
        for member in members:
            yield member
            self.advance()

    def begin(self, models: int, bytes_total: int) -> None:
        """The models of a family are listed; so many of them are read, and about so many bytes."""
        self._refused, self._come, self._expected, self._bytes_read = 0, 0, bytes_total, None
        self.start(models, "indexing")

    def reading(self, bytes_read: Callable[[], tuple[int, int]]) -> None:
        """Bytes are counted as they come, by this call; else once a model is done."""
        self._bytes_read = bytes_read

    def outcome(self, outcome: Outcome) -> None:
        if self._bytes_read is None:
            self._come += outcome.bytes_read
        self.n_outcomes += 1
        self._refused += outcome.status != "indexed"
        self.advance()

    def _status(self) -> tuple[str, float]:
        """Bytes, their rate and refusals as a note; the share of the bytes, or of the models."""
        if self._bytes_read is not None:
            come, self._expected = self._bytes_read()
            self._come = max(self._come, come)
        parts, total, (_, share) = [], "", super()._status()
        if self._come:
            elapsed = max(self.elapsed_s, 1e-3)
            if self._come < self._expected:
                total, share = f" of {size(self._expected)}", self._come / self._expected
            parts.append(f"{size(self._come)}{total}, {size(int(self._come / elapsed))}/s")
        if self._refused:
            parts.append(f"{self._refused} not indexed")
        return " · ".join(parts), share


def tracked(
    things: Iterable[Thing], what: str, *, quiet: bool, total: int | None = None
) -> Iterator[Thing]:
    """The same things, with progress on stderr."""
    with ProgressLines(what, quiet=quiet) as lines:
        lines.start(len(things) if total is None and isinstance(things, Sized) else total)
        for thing in things:
            yield thing
            lines.advance()
