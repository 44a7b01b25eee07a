"""Requests that the Hub still allows, shared by everything that runs as one user."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from .request_kind import RequestKind

SAME_WINDOW_S = 5.0
"""Two answers whose windows end within this time speak of the same one."""


@runtime_checkable
class RequestBudget(Protocol):
    """A token bucket for each kind of request. Safe between threads."""

    def take(self, kind: RequestKind) -> float:
        """Take one request. Returns 0, or the seconds after which to ask again."""

    def observe(self, kind: RequestKind, remaining: int, reset_s: float) -> None:
        """Learn what the Hub says: requests left, and seconds until there are new ones."""


@dataclass(slots=True)
class _Window:
    remaining: int
    ends_at: float


@dataclass(slots=True)
class LocalBudget:
    """The budget of one process. Without a word of the Hub it grants everything."""

    _windows: dict[RequestKind, _Window] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: RequestKind) -> float:
        with self._lock:
            window, now = self._windows.get(kind), time.monotonic()
            if window is None:
                return 0.0
            if now >= window.ends_at:
                del self._windows[kind]
                return 0.0
            if window.remaining > 0:
                window.remaining -= 1
                return 0.0
            return window.ends_at - now

    def observe(self, kind: RequestKind, remaining: int, reset_s: float) -> None:
        ends_at = time.monotonic() + reset_s
        with self._lock:
            window = self._windows.get(kind)
            if window is None or ends_at > window.ends_at + SAME_WINDOW_S:
                self._windows[kind] = _Window(remaining, ends_at)
            else:
                # answers overtake one another: the smallest count is the latest
                window.remaining = min(window.remaining, remaining)
