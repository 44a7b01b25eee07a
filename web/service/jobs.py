"""Long computations, made in the background; a result holds until the catalog changes."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import DeltadexError
from .readers import Readers, names_of
from .replies import Packed, encode
from .tasks import Kind, compute_in
from .work import Shared, is_done
from .worker import Worker, WorkerFailed

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

    async def get(self, kind: Kind, base: str, params: Mapping[str, Any]) -> Document | Computing:
        """The document of now; else an earlier one; else, after a short wait, none yet.

        Raises:
            DeltadexError: it cannot be computed.
        """
        key = json.dumps([kind, base, dict(params)], sort_keys=True)
        document = self._look_up(key)
        if isinstance(document, Document) and not document.stale:
            return document
        future = self._thread.submit(partial(self._make, key, kind, base, params), key=key)
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

    def _make(self, key: str, kind: Kind, base: str, params: Mapping[str, Any]) -> None:
        state = self._readers.state()
        try:
            packed = Packed.of(encode(self._compute(kind, base, params)))
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

    def _compute(self, kind: Kind, base: str, params: Mapping[str, Any]) -> dict[str, Any]:
        document = self._worker.run(
            compute_in, self._readers.path, kind, base, dict(params), seconds=self._seconds
        )
        with self._readers.catalog() as catalog:
            return names_of(catalog).with_bases(document)
