"""What is kept beside the models: studies of them, and unfinished walks of the Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .connection import translated, write
from .keys import require_model
from .sharing import Connection

NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"


@dataclass(frozen=True, slots=True)
class Listings:
    """An unfinished walk of the Hub from one base: the children of each parent."""

    connection: Connection
    path: Path
    base: str

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Remember the children of `parent`."""

        def replace(connection: Connection) -> None:
            connection.execute(
                "DELETE FROM listings WHERE base = ? AND parent = ?", [self.base, parent]
            )
            connection.execute(
                f"INSERT INTO listings VALUES (?, ?, ?, {NOW})",
                [self.base, parent, json.dumps(models)],
            )

        write(self.connection, self.path, replace)

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """What the walk found below `parent`."""
        with translated(self.path):
            rows = self.connection.execute(
                "SELECT models FROM listings WHERE base = ? AND parent = ?", [self.base, parent]
            )
        return json.loads(rows[0][0]) if rows else None

    def clear(self) -> None:
        """The walk is finished: the next one asks the Hub again."""

        def delete(connection: Connection) -> None:
            connection.execute("DELETE FROM listings WHERE base = ?", [self.base])

        write(self.connection, self.path, delete)


@dataclass(frozen=True, slots=True)
class Studies:
    """What studies found of one model."""

    connection: Connection
    path: Path
    key: int

    def save(self, study: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Keep a study's document in place of the last one of the same settings.

        Raises:
            StoreError: there is no such model any more.
        """
        known = json.dumps(settings, sort_keys=True)

        def replace(connection: Connection) -> None:
            require_model(connection, self.key)
            connection.execute(
                "DELETE FROM studies WHERE model = ? AND study = ? AND settings = ?",
                [self.key, study, known],
            )
            connection.execute(
                f"INSERT INTO studies VALUES (?, ?, ?, ?, {NOW})",
                [self.key, study, known, json.dumps(results)],
            )

        write(self.connection, self.path, replace)

    def load(self, study: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The document that a study of these very settings left."""
        with translated(self.path):
            rows = self.connection.execute(
                "SELECT results FROM studies WHERE model = ? AND study = ? AND settings = ?",
                [self.key, study, json.dumps(settings, sort_keys=True)],
            )
        return json.loads(rows[0][0]) if rows else None

    def latest(self, study: str) -> dict[str, Any] | None:
        """The newest document of a study, whatever its settings."""
        with translated(self.path):
            rows = self.connection.execute(
                "SELECT results FROM studies WHERE model = ? AND study = ? "
                "ORDER BY made_at DESC LIMIT 1",
                [self.key, study],
            )
        return json.loads(rows[0][0]) if rows else None
