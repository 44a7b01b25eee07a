"""The requests of one session, counted by kind, and the limits that the Hub states for them."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import httpx2
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from .call import origin_of

RequestKind = Literal["api", "resolve", "storage"]

_CACHE = "/api/resolve-cache/"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many requests of a kind the Hub accepts in a window of so many seconds."""

    requests: int
    window_s: int


@dataclass(slots=True)
class Traffic:
    """Answers that came, by kind of request. Safe between threads.

    `api` and `resolve` are the Hub's two budgets; ranges on a signed address are `storage`, which
    the Hub does not count.

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
        kind = _kind(response.request.url, hub)
        with self._lock:
            self._counts[kind] += 1
            self.redirects_small_files |= _CACHE in response.request.url.path
        with suppress(ValueError, OverflowError):
            stated = parse_ratelimit_headers(response.headers)
            if kind != "storage" and stated and stated.limit and stated.window_seconds:
                self.limits[kind] = RateLimit(stated.limit, stated.window_seconds)


def _kind(url: httpx2.URL, hub: tuple[str, str, int]) -> RequestKind:
    if origin_of(url) != hub:
        return "storage"
    is_file = "/resolve/" in url.path or _CACHE in url.path
    return "resolve" if is_file else "api"
