"""Adapters that clients send: read in a process of their own, with no base and no host."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from ...records import Indexed, Recipe
from ...store import Catalog
from .worker import Worker

Layout = tuple[tuple[str, str, int], ...]
FOLDER_NAME = "adapter"


@runtime_checkable
class SentFile(Protocol):
    """A file of a request, in memory or spooled."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What an adapter is read for.

    Attributes:
        base: The family's name in the catalog.
        layout: Of the family, for recipes that depend on it.
        may_open_base: Methods whose update is a function of W may read the base.
    """

    base: str
    recipe: Recipe
    layout: Layout
    may_open_base: bool


@dataclass(frozen=True, slots=True)
class Uploads:
    """Reads adapters, one at a time.

    What is sent may be made to take for ever or all memory (a pattern that never ends, factors
    whose product is vast), so it is read where it can be killed.
    """

    memory: int
    seconds: float
    may_open_base: bool
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_worker", Worker("reading the adapter", self.memory))

    def layout_of(self, catalog: Catalog, base: str) -> Layout:
        """The family's blocks, as far as they are known."""
        family = catalog.base(base)
        blocks = family.slots.get("layout", []) if family else []
        return tuple((str(s), str(r), int(n)) for s, r, n in blocks)

    def fingerprint(self, folder: Path, base: str, recipe: Recipe, layout: Layout) -> Indexed:
        """The adapter in a private folder as a member of the family.

        Raises:
            ModelError: it cannot be fingerprinted.
            DeltadexError: it took too long or too much.
        """
        asked = Asked(base, recipe, layout, self.may_open_base)
        made = self._worker.run(read_adapter_folder, folder, asked, seconds=self.seconds)
        return replace(made, model=replace(made.model, source="upload"))

    def close(self) -> None:
        self._worker.close()


@contextmanager
def private_folder(config: SentFile, weights: SentFile) -> Iterator[Path]:
    """An adapter's two files under their usual names, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="deltadex-") as place:
        folder = Path(place) / FOLDER_NAME
        folder.mkdir()
        for name, sent in (
            ("adapter_config.json", config),
            ("adapter_model.safetensors", weights),
        ):
            with (folder / name).open("wb") as file:
                sent.seek(0)
                shutil.copyfileobj(sent, file)
        yield folder


def read_adapter_folder(folder: Path, asked: Asked) -> Indexed:
    """The adapter in the folder, fingerprinted, in the process that is at hand.

    Raises:
        ModelError: it cannot be.
    """
    # torch is loaded where adapters are read, and nowhere else
    from ...indexer import fingerprint_sent_adapter

    return fingerprint_sent_adapter(
        folder,
        base=asked.base,
        recipe=asked.recipe,
        layout=asked.layout,
        may_open_base=asked.may_open_base,
    )
