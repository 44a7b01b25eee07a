"""The tables `recipes` and `families`: the settings of fingerprints, and what is known of bases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...records import Recipe
from ..session import Session, replace_row


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """A base and what is known of it.

    Attributes:
        shapes: (out, in) by slot, of its models' matrices.
        layout: The blocks of a recipe that depends on them: (stack, role, out).
        license: As its card names it.
    """

    base: str
    revision: str | None = None
    architecture: str | None = None
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    layout: tuple[tuple[str, str, int], ...] = ()
    license: str | None = None

    def completed(self, other: BaseRecord) -> BaseRecord:
        """The same, with what it lacks of what another one says."""
        names = ("revision", "architecture", "layout", "license")
        known = {name: getattr(self, name) or getattr(other, name) for name in names}
        return BaseRecord(base=self.base, shapes={**other.shapes, **self.shapes}, **known)


def select_bases(session: Session) -> list[str]:
    """Names of the families, sorted."""
    return session.column("SELECT base FROM families UNION SELECT base FROM models ORDER BY 1")


def select_base(session: Session, base: str) -> BaseRecord:
    """What is known of a base, which may be nothing."""
    rows = session.execute(
        "SELECT revision, architecture, slots, license FROM families WHERE base = ?", [base]
    )
    revision, architecture, text, license = rows[0] if rows else (None, None, "{}", None)
    stored = json.loads(text)
    return BaseRecord(
        base=base,
        revision=revision,
        architecture=architecture,
        shapes={slot: (out, width) for slot, (out, width) in stored.get("shapes", {}).items()},
        layout=tuple((stack, role, rows) for stack, role, rows in stored.get("layout", [])),
        license=license,
    )


def replace_base(session: Session, record: BaseRecord) -> None:
    """Store what is known of a base in place of what was."""
    slots = {"shapes": dict(record.shapes), "layout": record.layout}
    known = session.column("SELECT tokenizer FROM families WHERE base = ?", [record.base])
    row = {name: getattr(record, name) for name in ("base", "revision", "architecture", "license")}
    row |= {"slots": json.dumps(slots), "tokenizer": known[0] if known else None}
    replace_row(session, "families", row, ("base",))


def select_recipes(session: Session) -> dict[str, Recipe]:
    """Every recipe by id."""
    names = ("name", "rank", "dim", "seed", "version")
    rows = session.execute(f"SELECT id, params, {', '.join(names)} FROM recipes ORDER BY id")
    return {
        id: Recipe(
            **dict(zip(names, values, strict=True)),
            params=tuple((str(k), str(v)) for k, v in json.loads(params)),
        )
        for id, params, *values in rows
    }


def tables(session: Session) -> list[tuple[str, str]]:
    """(recipe id, table) of every recipe."""
    return session.execute("SELECT id, vectors FROM recipes ORDER BY id")


def recipe_tables(session: Session) -> dict[str, tuple[Recipe, str]]:
    """Every recipe by id, with the table of its vectors."""
    recipes = select_recipes(session)
    return {id: (recipes[id], table) for id, table in tables(session)}


def count_by_recipe(session: Session) -> list[tuple[str, str, int]]:
    """(recipe id, base, models) of every recipe that has vectors."""
    counts = []
    for recipe, table in tables(session):
        counts += session.execute(
            f"SELECT ?, m.base, count(*) FROM {table} v JOIN models m ON m.key = v.model "
            "GROUP BY m.base ORDER BY m.base",
            [recipe],
        )
    return counts
