"""The operator's settings, and the limits of every request."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY
from pathlib import Path

from ...options import option, record

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
"""Characters."""


@record
class ServiceSettings:
    """Where a service listens, and what it allows.

    Attributes:
        token: What writers must present; None = nobody writes.
        max_at_work: Requests that compute at once: one a processor, for more of them hold each
            other up.
        max_batches_at_work: Batches of questions that compute at once, beside them.
        max_waiting: Requests that wait for their turn; one more is sent away.
        quick_seconds: How long a request waits for what is computed in the background.
        job_seconds: Run time of a background computation.
        upload_memory: Bytes that reading one uploaded adapter may take.
        warm: Start the process that reads uploads with the service; else with the first upload.
    """

    _: KW_ONLY
    host: str = option(default="127.0.0.1", help="The address to listen on.")
    port: int = option(default=8321, least=0, most=65535, help="The port to listen on.")
    allow_hub: bool = option(default=False, help="Requests may have models fetched from the Hub.")
    share_catalog: bool = option(
        default=False,
        help="Readers may download the catalog's file and run SELECTs over it, which show paths of "
        "this machine; with a token writers always may.",
    )
    allow_hosts: tuple[str, ...] = option(
        "--allow-host", default=(), help="Another name of this service."
    )
    body_limit: int = option(default=64, least=1, help="Largest adapter upload, in MiB.")
    max_seconds: float = option(default=30.0, above=0, help="Seconds that one request may run.")
    root_path: str = option(default="", help="The prefix under which a proxy shows the service.")
    db: Path
    engine: str = "faiss"
    token: str | None = None
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
        from ipaddress import ip_address

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
