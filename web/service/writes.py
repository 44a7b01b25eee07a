"""Changes to the catalog, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .problems import busy

MAX_WAITING = 16


class Writes:
    """A thread that writes.

    What a client stops waiting for goes on, and the same asked again joins it.
    """

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deltadex-write")
        self._at_work: dict[str, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    async def run(self, key: str, function: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What the function returns or raises; None if it is not done yet.

        Raises:
            Problem: 503, too much is waiting.
        """
        future = self._submit(key, function)
        waited = asyncio.shield(asyncio.wrap_future(future))
        try:
            return await asyncio.wait_for(waited, self._seconds)
        except TimeoutError:
            if future.done():
                raise
            return None

    def close(self) -> None:
        """Begin no more; what runs ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, key: str, function: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
        with self._lock:
            known = self._at_work.get(key)
            if known is not None:
                return known
            if len(self._at_work) >= MAX_WAITING:
                raise busy("other changes are waiting")
            future = self._thread.submit(function)
            self._at_work[key] = future
        # outside the lock: where it is done already, this forgets it now
        future.add_done_callback(lambda _: self._forget(key))
        return future

    def _forget(self, key: str) -> None:
        with self._lock:
            self._at_work.pop(key, None)
