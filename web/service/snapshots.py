"""Copies of the catalog for clients: each of one moment, made one at a time, deleted soon after."""

from __future__ import annotations

import base64
import json
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from ...database import Backup
from .answers import Problem
from .catalog import Readers
from .work import Shared

KEPT_S = 60.0
"""How long a copy waits for a client that was told to come back, or begins again."""

MOST = 4
"""Copies that are made or wait."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """A copy in a folder of its own; `state` is the catalog's moment, `manifest` the file's."""

    folder: tempfile.TemporaryDirectory[str]
    path: Path
    state: str
    manifest: dict[str, Any]
    users: int = 0
    timer: threading.Timer | None = field(default=None)


class Snapshots(Shared[Snapshot]):
    """Makes and keeps the copies; one that nobody downloads is deleted after a minute."""

    _who = "copies"

    def __init__(self, readers: Readers) -> None:
        super().__init__("deltadex-snapshot", MOST)
        self._readers, self._changing = readers, threading.Lock()
        self._kept: list[Snapshot] = []

    def begin(self) -> Future[Snapshot]:
        """The copy of this moment, which may be there already."""
        state = self._readers.state()
        with self._changing:
            found = next((copy for copy in self._kept if copy.state == state), None)
        if found is None:
            return self.submit(partial(self._make, state), key=state)
        done: Future[Snapshot] = Future()
        done.set_result(found)
        return done

    def response(self, copy: Snapshot) -> FileResponse:
        """The file of a copy; a `Problem` where it is deleted already."""
        with self._changing:
            if copy not in self._kept:
                raise Problem(404, "unknown-job", "this copy is deleted: ask for another")
            copy.users += 1
            self._stop_timer(copy)
        sha256 = copy.manifest["sha256"]
        digest = base64.b64encode(bytes.fromhex(sha256)).decode()
        headers = {
            "ETag": f'"{sha256}"',
            "Repr-Digest": f"sha-256=:{digest}:",
            "Deltadex-Manifest": json.dumps(copy.manifest),
            "Cache-Control": "no-store",
            # it is sent as it is: packing gigabytes costs more than it saves
            "Content-Encoding": "identity",
        }
        return FileResponse(
            copy.path,
            headers=headers,
            media_type="application/octet-stream",
            filename=copy.path.name,
            background=BackgroundTask(self._release, copy),
        )

    def close(self) -> None:
        super().close()
        with self._changing:
            for copy in self._kept:
                self._stop_timer(copy)
                copy.folder.cleanup()
            self._kept.clear()

    def _make(self, state: str) -> Snapshot:
        folder = tempfile.TemporaryDirectory(prefix="deltadex-")
        try:
            target = Path(folder.name) / f"{self._readers.path.stem}.duckdb"
            with self._readers.catalog() as catalog:
                written = Backup(target).answer(catalog)[0]
            manifest = json.loads(Path(written["manifest"]).read_bytes())
        except BaseException:
            folder.cleanup()
            raise
        copy = Snapshot(folder, target, state, manifest)
        with self._changing:
            self._kept.append(copy)
            self._start_timer(copy)
        return copy

    def _release(self, copy: Snapshot) -> None:
        with self._changing:
            copy.users -= 1
            if not copy.users:
                self._start_timer(copy)

    def _start_timer(self, copy: Snapshot) -> None:
        copy.timer = threading.Timer(KEPT_S, self._delete, (copy,))
        copy.timer.daemon = True
        copy.timer.start()

    def _stop_timer(self, copy: Snapshot) -> None:
        if copy.timer is not None:
            copy.timer.cancel()
            copy.timer = None

    def _delete(self, copy: Snapshot) -> None:
        with self._changing:
            if not copy.users and copy in self._kept:
                self._kept.remove(copy)
                copy.folder.cleanup()
