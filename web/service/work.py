"""Threads that work for requests: how many at once, how many wait, how long each may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from .problems import busy

P = ParamSpec("P")
Result = TypeVar("Result")

MAX_WAITING = 16
"""Changes that wait for their turn."""


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
        try:
            waited = asyncio.shield(asyncio.wrap_future(future))
            return await asyncio.wait_for(waited, self._seconds)
        except TimeoutError as err:
            if not (future.cancel() or not future.done()):
                raise
            raise busy(f"not answered within {self._seconds:g} s: ask for less, or later") from err

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
    """A thread that does one thing after another; what is at work or waits already is joined."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._at_work: dict[str, Future[Result]] = {}
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """What is at work or waits."""
        return len(self._at_work)

    def submit(
        self, key: str, function: Callable[[], Result], *, most: int | None = None
    ) -> Future[Result]:
        """The function's result, or that of the same key which is not done yet.

        Raises:
            Problem: 503, `most` others are at work or wait.
        """
        with self._lock:
            future = self._at_work.get(key)
            if future is not None:
                return future
            if most is not None and len(self._at_work) >= most:
                raise busy("other changes are waiting")
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


class Writes(Shared[dict[str, Any]]):
    """A thread that writes.

    What a client stops waiting for goes on, and the same asked again joins it.
    """

    def __init__(self, *, seconds: float) -> None:
        super().__init__("deltadex-write")
        self._seconds = seconds

    async def run(self, key: str, function: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What the function returns or raises; None if it is not done yet.

        Raises:
            Problem: 503, too much is waiting.
        """
        future = self.submit(key, function, most=MAX_WAITING)
        waited = asyncio.shield(asyncio.wrap_future(future))
        try:
            return await asyncio.wait_for(waited, self._seconds)
        except TimeoutError:
            if future.done():
                raise
            return None
