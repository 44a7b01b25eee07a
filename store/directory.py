"""Ids and labels of all indexed models in memory, for a service: a search asks for some of them.

DuckDB finds them in milliseconds, where the rest of a search takes ten. What is here is used for
as long as the catalog stays as it was when it was read; after a change DuckDB is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import Int64
from .reading import select_labels, select_stored
from .rows import Labelled, Stored
from .sharing import Access, Connection

_COLUMNS = ("id", "base", "kind", "dataset", "author", "run")


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """The indexed models of one moment.

    Attributes:
        changes: The catalog's word of that moment.
        keys: Rising.
        rows: Of each id, one a family.
    """

    changes: str
    keys: Int64[np.ndarray, " models"]
    rows: dict[str, list[int]]
    columns: tuple[pa.Array, ...]

    @classmethod
    def read(cls, connection: Connection) -> Directory:
        """As of now."""
        changes = connection.changes()
        table = connection.arrow(
            f"SELECT key, {', '.join(_COLUMNS)} FROM models WHERE status = 'indexed' ORDER BY key"
        )
        rows: dict[str, list[int]] = {}
        for row, id in enumerate(table.column("id").to_pylist()):
            rows.setdefault(id, []).append(row)
        keys = table.column("key").to_numpy()
        columns = (table.column(name).combine_chunks() for name in _COLUMNS)
        return cls(changes, keys, rows, tuple(columns))

    def labels_of(self, keys: Sequence[int]) -> dict[str, Labelled]:
        """What is known of the models with these keys, by id; those that are not here are not."""
        known = {}
        for key, place in zip(keys, np.searchsorted(self.keys, keys).tolist(), strict=True):
            if place < len(self.keys) and self.keys[place] == key:
                id, base, _, *label = self._row(place)
                known[id] = Labelled(base, *label)
        return known

    def stored_models(self, id: str, base: str | None) -> list[Stored]:
        """The models of that id, one a family."""
        found = []
        for place in self.rows.get(id, ()):
            _, own, kind, dataset, *_ = self._row(place)
            if base in (None, own):
                found.append(Stored(int(self.keys[place]), id, own, kind, dataset))
        return found

    def _row(self, place: int) -> list[Any]:
        return [column[place].as_py() for column in self.columns]


@dataclass(slots=True)
class _Last:
    """The directory that was read last, for all readers of a catalog."""

    directory: Directory | None = None

    def close(self) -> None:
        self.directory = None


def keep_directory(access: Access, connection: Connection) -> None:
    """Read it anew, if the catalog is another since."""
    if _kept(access, connection) is None:
        access.derived(_Last).directory = Directory.read(connection)


def labels_of(access: Access, connection: Connection, keys: Sequence[int]) -> dict[str, Labelled]:
    """What is known of the training of the models with these keys, by id."""
    kept = _kept(access, connection)
    return kept.labels_of(keys) if kept else select_labels(connection, keys)


def stored_models(
    access: Access, connection: Connection, id: str, base: str | None
) -> list[Stored]:
    """The indexed models of that id, in little: one a family."""
    kept = _kept(access, connection)
    return kept.stored_models(id, base) if kept else select_stored(connection, id, base)


def _kept(access: Access, connection: Connection) -> Directory | None:
    """The last one that was read, if the catalog is the same still."""
    kept = access.derived(_Last).directory
    return kept if kept is not None and kept.changes == connection.changes() else None
