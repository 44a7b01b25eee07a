"""How many bytes of a run's models have come, while they come, and how many are to come."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from .checkpoint import Checkpoint


class Meter:
    """Counts what models at work have read. Safe between threads."""

    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._open: dict[str, Checkpoint] = {}
        self._closed_bytes = 0
        self._lock = threading.Lock()

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Bytes to come of each model, by id."""
        with self._lock:
            self._expected.update(sizes)

    def opened(self, id: str, checkpoint: Checkpoint) -> None:
        """A model is being read."""
        with self._lock:
            self._open[id] = checkpoint

    def closed(self, id: str) -> None:
        """Nothing more comes of a model, whether it was read or not."""
        with self._lock:
            self._expected.pop(id, None)
            if (checkpoint := self._open.pop(id, None)) is not None:
                self._closed_bytes += checkpoint.bytes_read

    def bytes(self) -> tuple[int, int]:
        """Those that have come, and those that are still to come."""
        with self._lock:
            now = {id: checkpoint.bytes_read for id, checkpoint in self._open.items()}
            rest = sum(self._expected.values())
            rest -= sum(min(n, self._expected.get(id, 0)) for id, n in now.items())
            return self._closed_bytes + sum(now.values()), rest
