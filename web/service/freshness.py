"""A thread that keeps the indexes as new as the catalog, so that no request waits for it."""

from __future__ import annotations

import logging
import threading
import time

from ...errors import DeltadexError
from .process import collect_again, rest_from_collecting
from .readers import Readers

log = logging.getLogger(__name__)

SOONEST_S = 1.0
"""Between two looks at the catalog."""

REST = 4.0
"""Time without work after work, as a multiple of what it took: requests come first."""


class Freshness:
    """Looks for changes, whoever makes them, and has the indexes caught up."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._ready = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deltadex-freshness")
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether every family can be searched."""
        return self._ready.is_set()

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether it became ready in that time."""
        return self._ready.wait(seconds)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        collect_again()

    def _run(self) -> None:
        seen, rest = "", 0.0
        while not self._ending.wait(rest):
            started = time.monotonic()
            try:
                state = self._readers.state()
                if state != seen:
                    self._readers.prepare(lambda: not self._ending.is_set())
                    rest_from_collecting()
            except DeltadexError as err:
                log.warning("the indexes are not caught up: %s", err)
            except Exception:
                # it is not ready: GET ready says so
                log.exception("a defect in deltadex: the catalog cannot be searched")
            else:
                self._ready.set()
                if state != seen:
                    self._readers.bring_into_memory()
                seen = state
            rest = max(SOONEST_S, REST * (time.monotonic() - started))
