"""What computes for requests: threads with their limits, and documents made in the background."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from ...database import Tabled, open
from ...errors import DeltadexError
from .answers import Packed, Problem, busy, encode
from .catalog import Readers, names_of
from .worker import Worker, WorkerFailed

P = ParamSpec("P")
Result = TypeVar("Result")

MAX_RESULTS = 512
"""Kept for clients that ask for them later."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25
"""Between two looks at whether something is done."""


class Work:
    """Threads that compute answers.

    A thread cannot be stopped: what runs too long is answered with a problem, and keeps its
    place until it ends, so that no more than `at_once` ever run.
    """

    def __init__(self, *, at_once: int, waiting: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="deltadex-answer")
        self._places = at_once + waiting
        self._seconds = seconds
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Requests that compute or wait for it."""
        return self._taken

    async def run(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """What the function returns or raises.

        Raises:
            Problem: 503, all places are taken, or it took too long.
        """
        self._enter()
        future: Future[Result] = self._pool.submit(function, *args, **kwargs)
        future.add_done_callback(self._leave)
        waited = asyncio.wrap_future(future)
        # what nobody waits for any more may fail
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait([waited], timeout=self._seconds)
        if not done:
            future.cancel()
            raise busy(f"not answered within {self._seconds:g} s: ask for less, or later")
        return waited.result()

    def close(self) -> None:
        """Take no more work; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _enter(self) -> None:
        with self._lock:
            if self._taken >= self._places:
                raise busy(f"{self._taken} requests are at work or waiting", 1)
            self._taken += 1

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self._taken -= 1


class Shared(Generic[Result]):
    """A thread that does one thing after another; what is at work or waits already is joined.

    Args:
        most: Things that are at work or wait; None = no limit.
    """

    def __init__(self, name: str, most: int | None = None) -> None:
        self._most = most
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._at_work: dict[str, Future[Result]] = {}
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """What is at work or waits."""
        return len(self._at_work)

    def submit(self, function: Callable[[], Result], key: str | None = None) -> Future[Result]:
        """The function's result, or that of the same key which is not done yet.

        Raises:
            Problem: 503, too many others are at work or wait.
        """
        key = key or secrets.token_hex()
        with self._lock:
            future = self._at_work.get(key)
            if future is not None:
                return future
            if self._most is not None and len(self._at_work) >= self._most:
                raise busy(f"{len(self._at_work)} others are at work or waiting")
            self._at_work[key] = future = self._thread.submit(function)
        # outside the lock: where it is done already, this forgets it now
        future.add_done_callback(lambda _: self._forget(key))
        return future

    def close(self) -> None:
        """Begin no more; what runs ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._at_work.pop(key, None)


async def is_done(
    future: Future[Any], seconds: float, is_given_up: Callable[[], Awaitable[bool]] | None = None
) -> bool:
    """Whether it is done within that time, or once nobody waits any more; takes no thread."""
    loop, pause = asyncio.get_running_loop(), SHORTEST_PAUSE_S
    until = loop.time() + seconds
    while not future.done() and (left := until - loop.time()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE_S)
        if is_given_up is not None and pause == LONGEST_PAUSE_S and await is_given_up():
            break
    return future.done()


class Results:
    """What became of work that took longer than the request which asked for it, by id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Future[dict[str, Any]]] = OrderedDict()

    def keep(self, future: Future[dict[str, Any]]) -> str:
        """An id that nobody guesses; the oldest result that is there is forgotten for a new one."""
        for id, kept in self._kept.items():
            if kept is future:
                return id
        if len(self._kept) >= MAX_RESULTS:
            done = (id for id, kept in self._kept.items() if kept.done())
            self._kept.pop(next(done, next(iter(self._kept))))
        id = secrets.token_urlsafe(16)
        self._kept[id] = future
        return id

    def find(self, id: str) -> Future[dict[str, Any]]:
        """The work of that id.

        Raises:
            Problem: 404, it is not known, or was forgotten.
        """
        if id not in self._kept:
            raise Problem(404, "unknown-job", "no such job; the service keeps the latest ones only")
        return self._kept[id]


MAX_DOCUMENTS = 64
"""Held in memory."""

FAILURE_SECONDS = 10.0
"""How long a failure is answered before the document is computed again."""


@dataclass(frozen=True, slots=True)
class Document:
    """A computed document; a stale one is of an earlier state of the catalog."""

    packed: Packed
    stale: bool


@dataclass(frozen=True, slots=True)
class Computing:
    """Not ready, after the request waited for so long."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class _Made:
    state: str
    packed: Packed


@dataclass(frozen=True, slots=True)
class _Failed:
    state: str
    error: DeltadexError
    until: float


class Jobs:
    """Background documents, one computed at a time in a process beside the service."""

    def __init__(self, readers: Readers, *, seconds: float, quick_seconds: float) -> None:
        self._readers = readers
        self._seconds = seconds
        self._quick_seconds = quick_seconds
        self._worker = Worker("deltadex-background")
        self._thread: Shared[None] = Shared("deltadex-background")
        self._lock = threading.Lock()
        self._made: OrderedDict[str, _Made] = OrderedDict()
        self._failed: dict[str, _Failed] = {}
        self.counts = {"computed": 0, "failed": 0}

    @property
    def pending(self) -> int:
        """Documents that are computed or wait for it."""
        return self._thread.pending

    async def get(self, asked: Tabled) -> Document | Computing:
        """The answer of now; else an earlier one; else, after a short wait, none yet.

        Raises:
            DeltadexError: it cannot be computed.
        """
        key = repr(asked)
        document = self._look_up(key)
        if isinstance(document, Document) and not document.stale:
            return document
        future = self._thread.submit(partial(self._make, key, asked), key=key)
        if isinstance(document, Document):
            return document
        await is_done(future, self._quick_seconds)
        return self._look_up(key) or Computing(self._quick_seconds)

    def close(self) -> None:
        """Stop computing; ends the process."""
        self._thread.close()
        self._worker.close()

    def _look_up(self, key: str) -> Document | None:
        state = self._readers.state()
        with self._lock:
            made, failed = self._made.get(key), self._failed.get(key)
            if made is not None and made.state == state:
                self._made.move_to_end(key)
                return Document(made.packed, stale=False)
            if failed is not None and failed.state == state:
                if failed.until > time.monotonic():
                    raise failed.error
                del self._failed[key]
            return Document(made.packed, stale=True) if made is not None else None

    def _make(self, key: str, asked: Tabled) -> None:
        state = self._readers.state()
        try:
            packed = Packed.of(encode(self._compute(asked)))
        except Exception as err:
            error = err if isinstance(err, DeltadexError) else WorkerFailed(traceback.format_exc())
            self._store(key, _Failed(state, error, time.monotonic() + FAILURE_SECONDS))
        else:
            self._store(key, _Made(state, packed))

    def _store(self, key: str, result: _Made | _Failed) -> None:
        with self._lock:
            self._failed.pop(key, None)
            self.counts["computed" if isinstance(result, _Made) else "failed"] += 1
            if isinstance(result, _Failed):
                self._failed[key] = result
                return
            self._made[key] = result
            self._made.move_to_end(key)
            while len(self._made) > MAX_DOCUMENTS:
                self._made.popitem(last=False)

    def _compute(self, asked: Tabled) -> dict[str, Any]:
        document = self._worker.run(answer_in, self._readers.path, asked, seconds=self._seconds)
        with self._readers.catalog() as catalog:
            return names_of(catalog).with_bases(document)


def answer_in(path: Path, asked: Tabled) -> dict[str, Any]:
    """What a question's answer is, from the catalog file at `path`; in the process beside."""
    with open(path, read_only=True) as catalog:
        return asked.answer(catalog).to_json()
