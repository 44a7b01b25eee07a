"""Copies of the catalog for clients: each of one moment, made one at a time, deleted soon after."""

from __future__ import annotations

import base64
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from ...questions.backup import Backup
from .answers import Problem
from .catalog import Readers
from .work import Shared

KEPT_S = 60.0
"""How long a copy waits for a client that begins again; and after that, for one that was told to
come back. The system keeps what is being sent."""

MOST = 4
"""Copies that are made or wait."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy in a folder of its own; `state` is the catalog's moment."""

    path: Path
    state: str
    sha256: str

    def response(self) -> FileResponse:
        """The file; a `Problem` where it was deleted."""
        if not self.path.exists():
            raise Problem(404, "unknown-job", "the copy is deleted; ask for another")
        headers = {
            "ETag": f'"{self.sha256}"',
            "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(self.sha256)).decode()}:",
            "Cache-Control": "no-store",
            # it is sent as it is: packing gigabytes costs more than it saves
            "Content-Encoding": "identity",
        }
        return _CopySent(
            self.path,
            headers=headers,
            media_type="application/octet-stream",
            filename=self.path.name,
        )


class _CopySent(FileResponse):
    """A file; a range that it does not have is refused by a `Problem`, not in plain text."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def checked(message: Message) -> None:
            if (status := message.get("status", 200)) >= 400:
                size = self.headers["content-length"]
                detail = f"Range: say bytes=FIRST-LAST, of a file of {size} bytes"
                raise Problem(status, "bad-range", detail, {"Content-Range": f"bytes */{size}"})
            await send(message)

        await super().__call__(scope, receive, checked)


class Snapshots(Shared[Snapshot]):
    """Makes the copies, and keeps the last one for a minute."""

    _who = "copy"

    def __init__(self, readers: Readers) -> None:
        super().__init__("deltadex-snapshot", MOST)
        self._readers = readers
        self._last: Snapshot | None = None
        self._places: list[tempfile.TemporaryDirectory[str]] = []

    def begin(self) -> Future[Snapshot]:
        """The copy of this moment, which may be there already."""
        state, last = self._readers.state(), self._last
        if last is None or last.state != state:
            return self.submit(partial(self._make, state), key=state)
        done: Future[Snapshot] = Future()
        done.set_result(last)
        return done

    def close(self) -> None:
        super().close()
        for place in self._places:
            place.cleanup()

    def _make(self, state: str) -> Snapshot:
        place = tempfile.TemporaryDirectory(prefix="deltadex-", ignore_cleanup_errors=True)
        self._places.append(place)
        target = Path(place.name) / f"{self._readers.path.stem}.duckdb"
        try:
            with self._readers.catalog() as catalog:
                [written] = Backup(target).answer(catalog)
        except BaseException:
            place.cleanup()
            raise
        self._last = copy = Snapshot(target, state, str(written["sha256"]))
        _later(self._forget_copy, copy, place)
        return copy

    def _forget_copy(self, copy: Snapshot, place: tempfile.TemporaryDirectory[str]) -> None:
        if self._last is copy:
            self._last = None
        _later(place.cleanup)


def _later(function: Callable[..., None], *args: object) -> None:
    timer = threading.Timer(KEPT_S, function, args)
    timer.daemon = True
    timer.start()
