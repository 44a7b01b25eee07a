"""Searches in processes beside the service: in one process, Python's lock keeps all but one core
from answering."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import DeltadexError
from ...questions.face.serving import similar_each
from ...questions.face.worker import Worker, WorkerDied, WorkerError, report
from ...questions.find_similar import FindSimilar
from .answers import encode
from .catalog import Freshness, Readers, find_base, names_of
from .work import Shared

log = logging.getLogger(__name__)

Give = Callable[[int, bytes | DeltadexError], None]
"""Takes the answer to the question of one place, or why there is none."""

MOST_PROCESSES = 3
"""Beside the service; each holds an index of its own."""

OPEN_S, PAUSE_S = 600.0, 60.0
"""How long one may take to open the catalog, and after one that failed none is started."""


def answer_each(readers: Readers, asked: FindSimilar, models: Sequence[str], give: Give) -> None:
    """Answer a question about several models, each as soon as its answer is known."""
    with readers.catalog() as catalog:
        names, base = names_of(catalog), find_base(catalog, asked.base)
        # closed here, as its locks are this thread's
        with closing(similar_each(catalog, replace(asked, base=base), models)) as each:
            for place, answer in each:
                if isinstance(answer, DeltadexError):
                    give(place, answer)
                else:
                    give(place, encode(names.with_bases(answer.to_json())))


class Searchers(Shared[None]):
    """Processes that answer searches from the same catalog.

    One more is started where one more is wanted. A search that none of them can answer now is the
    service's own.
    """

    def __init__(self, readers: Readers, engine: str, processes: int, seconds: float) -> None:
        super().__init__("deltadex-searchers")
        self._readers, self._seconds = readers, seconds
        self._open = partial(_open, readers.path, engine)
        self._workers = [Worker("searching", repeats=False) for _ in range(processes)]
        self._closed = deque(self._workers)
        self._ready: deque[Worker] = deque()
        self._not_before, self._is_ending = 0.0, False

    def want(self) -> None:
        """Have one more, if there may be, once it has opened the catalog."""
        if self._closed and time.monotonic() > self._not_before:
            self.submit(self._start, "start")

    def answer_each(self, asked: FindSimilar, models: Sequence[str], give: Give) -> None:
        """As the function; nothing where no process is ready, and not all where one ends."""
        try:
            worker = self._ready.popleft()
        except IndexError:
            return
        try:
            answer = partial(worker.run, _answer_each, self._readers.state(), asked, models)
            answer(seconds=self._seconds, progress=lambda given: give(*given))
        except WorkerError as err:
            self._failed(worker, err)
            return
        except DeltadexError:
            pass  # the service finds the same, and says it
        self._ready.append(worker)

    def close(self) -> None:
        self._is_ending = True
        super().close()
        for worker in self._workers:
            worker.close()

    def _start(self) -> None:
        worker = self._closed.popleft()
        try:
            worker.run(self._open, seconds=OPEN_S)
            self._ready.append(worker)
        except DeltadexError as err:
            self._failed(worker, err)

    def _failed(self, worker: Worker, err: DeltadexError) -> None:
        if not self._is_ending:
            log.warning("the service searches with one process less: %s", err)
        self._not_before = time.monotonic() + PAUSE_S
        self._closed.append(worker)


_opened: list[tuple[Readers, Freshness]] = []
"""In the process beside: the catalog."""


def _open(path: Path, engine: str) -> None:
    """Open the catalog, and keep its indexes caught up from then on; in the process beside."""
    if _opened:
        return
    set_up_process()
    readers = Readers(path, writable=False, engine=engine)
    freshness = Freshness(readers)
    freshness.ready.wait()
    _opened.append((readers, freshness))


def _answer_each(state: str, asked: FindSimilar, models: Sequence[str]) -> None:
    """Report the answers, unless the indexes are of another state; in the process beside."""
    if not _opened:
        raise WorkerDied("the process that had opened the catalog ended")
    [(readers, freshness)] = _opened
    if freshness.prepared == state:
        answer_each(readers, asked, models, lambda place, answer: report((place, answer)))


HEAP_BYTES = 1 << 30
"""Memory that is given back to the system only beyond this: a search needs tens of megabytes for
some milliseconds, and mapping them anew each time costs more than the search."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt(3)."""

SWITCH_S = 0.0005
"""How long a thread that computes in Python may keep the others waiting. Answers are made in many
short steps between which the interpreter is given away; at Python's own 5 ms half of their time
goes into waiting to get it back."""

OBJECTS_BETWEEN = 20_000
"""New objects between two looks for garbage that refers to itself: those of all requests that wait
are looked through each time."""


def set_up_process() -> None:
    """Have threads take turns quickly, garbage looked for seldom, and freed memory used again where
    the C library can."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(OBJECTS_BETWEEN)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, HEAP_BYTES // 2)
        mallopt(M_TRIM_THRESHOLD, HEAP_BYTES)
