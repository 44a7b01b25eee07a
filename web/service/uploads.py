"""Adapters that clients send: read in a process of their own, with no base and no host."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...database import AdapterReading, read_adapter
from ...records import Indexed
from .worker import Worker

FOLDER_NAME = "adapter"


@runtime_checkable
class SentFile(Protocol):
    """A file of a request, in memory or spooled."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, /) -> object: ...


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter's two files as they came."""

    config: SentFile
    weights: SentFile


@dataclass(frozen=True, slots=True)
class Uploads:
    """Reads adapters, one at a time.

    What is sent may be made to take for ever or all memory (a pattern that never ends, factors
    whose product is vast), so it is read where it can be killed.
    """

    memory: int
    seconds: float
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_worker", Worker("reading the adapter", self.memory))

    def read(self, files: AdapterFiles, reading: AdapterReading) -> Indexed:
        """The adapter that was sent, fingerprinted.

        Raises:
            ModelError: it cannot be fingerprinted.
            DeltadexError: it took too long or too much.
        """
        with private_folder(files) as folder:
            return self._worker.run(read_adapter, folder, reading, seconds=self.seconds)

    def close(self) -> None:
        self._worker.close()


@contextmanager
def private_folder(files: AdapterFiles) -> Iterator[Path]:
    """An adapter's two files under their usual names, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="deltadex-") as place:
        folder = Path(place) / FOLDER_NAME
        folder.mkdir()
        for name, sent in (
            ("adapter_config.json", files.config),
            ("adapter_model.safetensors", files.weights),
        ):
            with (folder / name).open("wb") as file:
                sent.seek(0)
                shutil.copyfileobj(sent, file)
        yield folder
