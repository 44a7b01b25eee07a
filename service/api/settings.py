"""The operator's settings, and the limits of every request."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

PREFIX = "/api/v1"
MIB = 1 << 20
SMALL_BODY = MIB
"""Bytes of a body that carries no weights."""

MAX_K, MAX_QUERIES, MAX_WHERE = 100, 32, 2000
MAX_ADDED = 1000
"""Models of the Hub that one request may name."""

MAX_STATEMENT, MAX_ROWS, SELECT_SECONDS = 10_000, 10_000, 10.0
"""Characters of a SELECT, rows that it may give, and its time."""

MAX_ID, MAX_NEW_ID = 1000, 200
"""Characters of an id, or of another name, that is asked for; and of one that is added."""
MAX_WRITES, MAX_DATA = 16, 8
"""Changes that are at work or wait; and data sets, each of which takes the base's memory."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
MIN_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of `deltadex serve`, whose options say more of most of them.

    Attributes:
        token: What writers must present; None = nobody writes.
        body_limit: Bytes of a request that carries weights.
        max_seconds: Run time of one request, or of reading one uploaded adapter.
        max_at_work: Requests that compute at once: one a processor, for more of them hold each
            other up.
        max_batches_at_work: Batches of questions that compute at once, beside them.
        max_waiting: Requests that wait for their turn; one more is sent away.
        quick_seconds: How long a request waits for what is computed in the background.
        job_seconds: Run time of a background computation.
        upload_memory: Bytes that reading one uploaded adapter may take.
        warm: Start the process that reads uploads with the service; else with the first upload.
    """

    db: Path
    host: str = "127.0.0.1"
    port: int = 8321
    allow_hosts: tuple[str, ...] = ()
    root_path: str = ""
    engine: str = "faiss"
    token: str | None = None
    allow_hub: bool = False
    share_catalog: bool = False
    body_limit: int = 64 * MIB
    max_seconds: float = 30.0
    max_at_work: int = max(2, os.cpu_count() or 1)
    max_batches_at_work: int = 2
    max_waiting: int = 256
    quick_seconds: float = 2.0
    job_seconds: float = 1800.0
    upload_memory: int = 4096 * MIB
    warm: bool = True

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise ValueError(f"the token must have at least {MIN_TOKEN} characters")

    @property
    def writable(self) -> bool:
        return self.token is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the service."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """Host headers that are answered; None for all.

        A page of another site that has its name resolve to this machine (DNS rebinding) names
        that site here.
        """
        if not self.is_local and not self.allow_hosts:
            return None
        own = self.host if ":" not in self.host else f"[{self.host}]"
        names = (*LOOPBACK_NAMES, own, *self.allow_hosts)
        return frozenset(name.lower() for name in names)
