"""Copies of the catalog for clients: each of one moment, made one at a time, deleted soon after."""

from __future__ import annotations

import base64
import shutil
import tempfile
import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from ...questions.backup import Backup
from .catalog import Readers
from .work import Shared

KEPT_S = 60.0
"""How long a copy waits for a client that was told to come back, or begins again."""

MOST = 4
"""Copies that are made or wait."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Snapshot:
    """A copy in a folder of its own, which is deleted with the last reference to this; `state` is
    the catalog's moment."""

    path: Path
    state: str
    sha256: str

    def response(self) -> FileResponse:
        """The file."""
        headers = {
            "ETag": f'"{self.sha256}"',
            "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(self.sha256)).decode()}:",
            "Cache-Control": "no-store",
            # it is sent as it is: packing gigabytes costs more than it saves
            "Content-Encoding": "identity",
        }
        return FileResponse(
            self.path,
            headers=headers,
            media_type="application/octet-stream",
            filename=self.path.name,
            # keeps the file until it is sent
            background=BackgroundTask(id, self),
        )


class Snapshots(Shared[Snapshot]):
    """Makes the copies, and keeps the last one for a minute."""

    _who = "copies"

    def __init__(self, readers: Readers) -> None:
        super().__init__("deltadex-snapshot", MOST)
        self._readers = readers
        self._last: Snapshot | None = None

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
        self._last = None

    def _make(self, state: str) -> Snapshot:
        folder = Path(tempfile.mkdtemp(prefix="deltadex-"))
        target = folder / f"{self._readers.path.stem}.duckdb"
        try:
            with self._readers.catalog() as catalog:
                [written] = Backup(target).answer(catalog)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._last = copy = Snapshot(target, state, str(written["sha256"]))
        weakref.finalize(copy, shutil.rmtree, folder, ignore_errors=True)
        timer = threading.Timer(KEPT_S, self._forget_copy, (copy,))
        timer.daemon = True
        timer.start()
        return copy

    def _forget_copy(self, copy: Snapshot) -> None:
        if self._last is copy:
            self._last = None
