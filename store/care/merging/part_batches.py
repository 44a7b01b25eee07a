"""A folder of parts as a few catalogs, which are merged like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....errors import EmptyCatalog, StoreDamaged
from ...catalog import Catalog
from ...parts import Part, PartFolder, commit_part
from ...tables.models import Known

AT_ONCE = 1024
"""Models of one catalog, about: 30 MB of a base of 36 slots."""


def holds_parts(source: str | Path) -> bool:
    """Whether a source of a merge is a folder of parts, or its address; not a catalog's file."""
    return "://" in str(source) or Path(source).is_dir()


def catalogs_of_parts(
    folder: str, tracked: Callable[[Sequence[Any]], Iterable[Any]]
) -> Iterator[tuple[Path, list[str]]]:
    """Catalog files with the models of a folder's parts, each there until the next is asked for;
    and what is wrong with parts that were left out.

    Args:
        tracked: Passes on the paths of the parts.

    Raises:
        EmptyCatalog: the folder has no parts.
    """
    parts = PartFolder(folder)
    paths = parts.paths()
    if not paths:
        raise EmptyCatalog(f"{folder}: no parts there; name a folder of `deltadex index --parts`")
    batch: list[Part] = []
    damaged: list[str] = []
    for path in tracked(paths):
        try:
            batch.append(parts.read(path))
        except StoreDamaged as err:
            damaged.append(str(err))
        if sum(len(part.outcomes) for part in batch) >= AT_ONCE:
            yield from _catalog_of(batch, damaged)
            batch, damaged = [], []
    yield from _catalog_of(batch, damaged)


def _catalog_of(parts: Sequence[Part], damaged: list[str]) -> Iterator[tuple[Path, list[str]]]:
    with TemporaryDirectory() as place:
        path = Path(place) / "parts.duckdb"
        with Catalog.open(path) as catalog:
            known: dict[str, dict[str, Known]] = {}
            for part in parts:
                commit_part(catalog, part, known.setdefault(part.base, {}))
        yield path, damaged
