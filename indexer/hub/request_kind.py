"""Which of the Hub's budgets a request counts with."""

from __future__ import annotations

from typing import Literal

import httpx2

RequestKind = Literal["api", "resolve", "storage"]
"""`api` and `resolve` are the Hub's two budgets: questions about models, and files of models.
Ranges on a signed address are `storage`, which the Hub does not count."""

CACHE = "/api/resolve-cache/"
"""Where the Hub redirects requests for small files to."""


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    """(scheme, host, port) of an address."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme, 0)


def kind_of(url: httpx2.URL, hub: tuple[str, str, int]) -> RequestKind:
    """The kind of a request to an address, by the Hub's origin."""
    if origin_of(url) != hub:
        return "storage"
    return "resolve" if "/resolve/" in url.path or CACHE in url.path else "api"
