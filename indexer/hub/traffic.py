"""The requests of one session, counted by kind, and the limits that the Hub states for them."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import httpx2
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from .request_kind import CACHE, RequestKind, kind_of


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many requests of a kind the Hub accepts in a window of so many seconds."""

    requests: int
    window_s: int


@dataclass(slots=True)
class Traffic:
    """Answers that came, by kind of request. Safe between threads.

    Attributes:
        limits: As the Hub's last `RateLimit-Policy` states them.
        redirects_small_files: Whether the Hub hands small files out of its cache, by a redirect.
    """

    limits: dict[RequestKind, RateLimit] = field(default_factory=dict)
    redirects_small_files: bool = False
    _counts: Counter[RequestKind] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def counts(self) -> dict[RequestKind, int]:
        """Requests of each kind so far."""
        with self._lock:
            return dict(self._counts)

    def note(self, response: httpx2.Response, hub: tuple[str, str, int]) -> None:
        """Count an answer, and remember the limit that it states."""
        kind = kind_of(response.request.url, hub)
        with self._lock:
            self._counts[kind] += 1
            self.redirects_small_files |= CACHE in response.request.url.path
        with suppress(ValueError, OverflowError):
            stated = parse_ratelimit_headers(response.headers)
            if kind != "storage" and stated and stated.limit and stated.window_seconds:
                self.limits[kind] = RateLimit(stated.limit, stated.window_seconds)
