"""The table `families`: the bases, and what is known of their shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """A base and what is known of it.

    Attributes:
        shapes: (out, in) by slot, of its models' matrices.
        layout: The blocks of a recipe that depends on them: (stack, role, out).
    """

    base: str
    revision: str | None = None
    architecture: str | None = None
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    layout: tuple[tuple[str, str, int], ...] = ()


def select_bases(session: Session) -> list[str]:
    """Names of the families, sorted."""
    rows = session.execute("SELECT base FROM families UNION SELECT base FROM models ORDER BY 1")
    return [str(base) for (base,) in rows]


def select_base(session: Session, base: str) -> BaseRecord:
    """What is known of a base, which may be nothing."""
    rows = session.execute(
        "SELECT revision, architecture, slots FROM families WHERE base = ?", [base]
    )
    revision, architecture, text = rows[0] if rows else (None, None, "{}")
    stored = json.loads(text)
    return BaseRecord(
        base=base,
        revision=revision,
        architecture=architecture,
        shapes={slot: (out, width) for slot, (out, width) in stored.get("shapes", {}).items()},
        layout=tuple((stack, role, rows) for stack, role, rows in stored.get("layout", [])),
    )


def replace_base(session: Session, record: BaseRecord) -> None:
    """Store what is known of a base in place of what was."""
    slots = {"shapes": dict(record.shapes), "layout": record.layout}
    session.execute("DELETE FROM families WHERE base = ?", [record.base])
    session.execute(
        "INSERT INTO families VALUES (?, ?, ?, ?)",
        [record.base, record.revision, record.architecture, json.dumps(slots)],
    )
