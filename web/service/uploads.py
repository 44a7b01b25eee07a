"""Adapters that clients send: read in a process of their own, with no base and no host."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile

from ...database.serving import AdapterReading, load_adapter_reader, read_adapter
from ...records import Indexed
from .answers import Problem
from .work import Shared
from .worker import Worker, WorkerCrashed, WorkerOutOfMemory, WorkerTooSlow

CONFIG_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter's two files as they came.

    Raises:
        Problem: 413, the config is too long for one.
    """

    config: UploadFile
    weights: UploadFile

    def __post_init__(self) -> None:
        if (self.config.size or 0) > CONFIG_LIMIT:
            raise Problem(413, "body-too-long", "config: at most 1 MiB")

    def save(self) -> tempfile.TemporaryDirectory[str]:
        """A folder of its own with both files; they outlast the request there."""
        place = tempfile.TemporaryDirectory(prefix="deltadex-")
        for name, sent in (
            ("adapter_config.json", self.config.file),
            ("adapter_model.safetensors", self.weights.file),
        ):
            with (Path(place.name) / name).open("wb") as file:
                sent.seek(0)
                shutil.copyfileobj(sent, file)
        return place


class Uploads:
    """Reads adapters, one at a time.

    What is sent may be made to take for ever or all memory (a pattern that never ends, factors
    whose product is vast), so it is read where it can be killed.

    Args:
        waiting: Adapters that wait for their turn.
        warm: Start the process now, not with the first adapter: it loads modules for seconds.
    """

    def __init__(self, *, memory: int, seconds: float, waiting: int, warm: bool) -> None:
        self._worker = Worker("reading the adapter", memory, load_adapter_reader)
        self._memory = memory
        self.line: Shared[dict[str, Any]] = Shared("deltadex-upload", waiting)
        self.seconds = seconds
        if warm:
            self._worker.warm()

    async def begin(
        self,
        files: AdapterFiles,
        answer: Callable[[Path], dict[str, Any]],
        line: Shared[dict[str, Any]] | None = None,
    ) -> Future[dict[str, Any]]:
        """The function's result for a folder with the files, which is there until it is done.

        Args:
            line: That of the changes, for what is recorded; else the uploads' own.

        Raises:
            Problem: 503, too many others wait.
        """
        place = await asyncio.to_thread(files.save)
        try:
            future = (line or self.line).submit(partial(answer, Path(place.name)))
        except BaseException:
            place.cleanup()
            raise
        future.add_done_callback(lambda _: place.cleanup())
        return future

    def read(self, folder: Path, reading: AdapterReading) -> Indexed:
        """The adapter in the folder, fingerprinted.

        Raises:
            ModelError: it cannot be fingerprinted.
            Problem: 422, it takes too long or too much.
            WorkerDied: the service is being closed.
        """
        try:
            return self._worker.run(read_adapter, folder, reading, seconds=self.seconds)
        except (WorkerCrashed, WorkerOutOfMemory) as err:
            detail = "reading the adapter ended its process, twice"
            if isinstance(err, WorkerOutOfMemory):
                detail = f"reading the adapter needs more memory than {self._memory >> 20} MiB"
            raise Problem(422, "too-large", detail) from err
        except WorkerTooSlow as err:
            raise Problem(
                422, "too-slow", f"reading the adapter was stopped after {self.seconds:g} s"
            ) from err

    def close(self) -> None:
        self.line.close()
        self._worker.close()
