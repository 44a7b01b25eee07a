"""The table `listings`: unfinished walks of the Hub."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..session import NOW, Session


@dataclass(frozen=True, slots=True)
class Listings:
    """An unfinished walk of the Hub from one base: the children of each parent."""

    session: Session
    base: str

    def save(self, parent: str, models: list[dict[str, Any]]) -> None:
        """Remember the children of `parent`."""

        def replace(session: Session) -> None:
            session.execute(
                "DELETE FROM listings WHERE base = ? AND parent = ?", [self.base, parent]
            )
            session.execute(
                f"INSERT INTO listings VALUES (?, ?, ?, {NOW})",
                [self.base, parent, json.dumps(models)],
            )

        self.session.write(replace)

    def load(self, parent: str) -> list[dict[str, Any]] | None:
        """What the walk found below `parent`."""
        rows = self.session.execute(
            "SELECT models FROM listings WHERE base = ? AND parent = ?", [self.base, parent]
        )
        return json.loads(rows[0][0]) if rows else None

    def clear(self) -> None:
        """The walk is finished: the next one asks the Hub again."""

        def delete(session: Session) -> None:
            session.execute("DELETE FROM listings WHERE base = ?", [self.base])

        self.session.write(delete)
