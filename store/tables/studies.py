"""The table `studies`: what studies of a model gave, under all their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..session import NOW, Session
from .models import require_model


@dataclass(frozen=True, slots=True)
class Studies:
    """What studies found of one model."""

    session: Session
    key: int

    def save(self, study: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Keep a study's document in place of the last one of the same settings.

        Raises:
            StoreError: there is no such model any more.
        """
        known = json.dumps(settings, sort_keys=True)

        def replace(session: Session) -> None:
            require_model(session, self.key)
            session.execute(
                "DELETE FROM studies WHERE model = ? AND study = ? AND settings = ?",
                [self.key, study, known],
            )
            session.execute(
                f"INSERT INTO studies VALUES (?, ?, ?, ?, {NOW})",
                [self.key, study, known, json.dumps(results)],
            )

        self.session.write(replace)

    def load(self, study: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The document that a study of these very settings left."""
        rows = self.session.execute(
            "SELECT results FROM studies WHERE model = ? AND study = ? AND settings = ?",
            [self.key, study, json.dumps(settings, sort_keys=True)],
        )
        return json.loads(rows[0][0]) if rows else None

    def latest(self, study: str) -> dict[str, Any] | None:
        """The newest document of a study, whatever its settings."""
        rows = self.session.execute(
            "SELECT results FROM studies WHERE model = ? AND study = ? "
            "ORDER BY made_at DESC LIMIT 1",
            [self.key, study],
        )
        return json.loads(rows[0][0]) if rows else None
