"""The table `families`: the bases, and what is known of their shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """A base and what is known of its shapes."""

    base: str
    revision: str | None
    architecture: str | None
    slots: Mapping[str, Any]


def select_bases(session: Session) -> list[str]:
    """Names of the families, sorted."""
    rows = session.execute("SELECT base FROM families UNION SELECT base FROM models ORDER BY 1")
    return [str(base) for (base,) in rows]


def select_base(session: Session, base: str) -> BaseRecord | None:
    """What is known of a base."""
    rows = session.execute(
        "SELECT base, revision, architecture, slots FROM families WHERE base = ?", [base]
    )
    if not rows:
        return None
    name, revision, architecture, slots = rows[0]
    return BaseRecord(
        base=name, revision=revision, architecture=architecture, slots=json.loads(slots)
    )


def replace_base(session: Session, record: BaseRecord) -> None:
    """Remember what is known of a base in place of what was."""
    session.execute("DELETE FROM families WHERE base = ?", [record.base])
    session.execute(
        "INSERT INTO families VALUES (?, ?, ?, ?)",
        [record.base, record.revision, record.architecture, json.dumps(record.slots)],
    )
