"""Adapters that clients send: read in a process of their own, with no base and no host."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import UploadFile

from ...database import AdapterReading, read_adapter
from ...records import Indexed
from .problems import Problem
from .worker import Worker

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


class Uploads:
    """Reads adapters, one at a time.

    What is sent may be made to take for ever or all memory (a pattern that never ends, factors
    whose product is vast), so it is read where it can be killed.
    """

    def __init__(self, *, memory: int, seconds: float) -> None:
        self._worker = Worker("reading the adapter", memory)
        self.seconds = seconds

    def read(self, files: AdapterFiles, reading: AdapterReading) -> Indexed:
        """The adapter that was sent, fingerprinted.

        Raises:
            ModelError: it cannot be fingerprinted.
            DeltadexError: it took too long or too much.
        """
        with tempfile.TemporaryDirectory(prefix="deltadex-") as place:
            folder = Path(place) / "adapter"
            folder.mkdir()
            for name, sent in (
                ("adapter_config.json", files.config.file),
                ("adapter_model.safetensors", files.weights.file),
            ):
                with (folder / name).open("wb") as file:
                    sent.seek(0)
                    shutil.copyfileobj(sent, file)
            return self._worker.run(read_adapter, folder, reading, seconds=self.seconds)

    def close(self) -> None:
        self._worker.close()
