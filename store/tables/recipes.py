"""The tables `recipes` and `families`: the settings of fingerprints, the choice of a recipe by
name, and what is known of bases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import EmptyCatalog, UnknownRecipe, offered
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
        return BaseRecord(
            base=self.base,
            revision=self.revision or other.revision,
            architecture=self.architecture or other.architecture,
            shapes={**other.shapes, **self.shapes},
            layout=self.layout or other.layout,
            license=self.license or other.license,
        )


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


DEFAULT_RECIPE = "sketch"


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


def rank_recipes(recipes: Mapping[str, Recipe], totals: Mapping[str, int]) -> list[str]:
    """Ids in order of preference: by models."""
    return sorted(totals, key=lambda id: (-totals[id], -recipes[id].version, id))


def choose_recipe(
    recipes: Mapping[str, Recipe],
    counts: Sequence[tuple[str, str, int]],
    path: Path,
    *,
    name: str | None,
    base: str | None,
) -> Recipe:
    """The recipe of that name or id that most models of the base have; see `rank_recipes`.

    `counts` are (recipe id, base, models).

    Raises:
        EmptyCatalog: nothing is fingerprinted.
        UnknownRecipe: lists what there is.
    """
    totals: dict[str, int] = {}
    for id, family, n in counts:
        if base in (None, family):
            totals[id] = totals.get(id, 0) + n
    if not totals:
        raise EmptyCatalog(f"{path}: nothing fingerprinted yet; `deltadex index` does that")
    ranked = rank_recipes(recipes, totals)
    wanted = name or DEFAULT_RECIPE
    chosen = [id for id in ranked if wanted in (id, recipes[id].name)]
    if chosen or name is None:
        return recipes[(chosen or ranked)[0]]
    names = offered(name, sorted(recipes[id].name for id in ranked), "recipes here")
    raise UnknownRecipe(f"no model is fingerprinted under {name!r}{names}")


def mean_cost(session: Session, recipes: Sequence[str]) -> dict[str, Any]:
    """Seconds and bytes that one model's fingerprint took, on average, in the run that indexed the
    model. None where unknown."""
    marks = ", ".join("?" * len(recipes))
    seconds, n_bytes = session.execute(
        "SELECT avg(m.seconds), avg(m.bytes_read) FROM recipes r "
        "JOIN (SELECT DISTINCT base, model, recipe FROM fingerprints) f ON f.recipe = r.id "
        f"JOIN models m ON m.base = f.base AND m.id = f.model WHERE r.id IN ({marks})",
        list(recipes),
    )[0]
    return {
        "seconds_per_model": seconds,
        "bytes_per_model": None if n_bytes is None else int(n_bytes),
    }


def count_everything(session: Session) -> dict[str, Any]:
    """Models, labels and datasets by base; models by base and recipe, and by status.

    `verified`: indexed models by how their bytes were compared; see `ModelRecord`.
    """
    recipes = select_recipes(session)
    return {
        "bases": session.rows("SELECT base, models, indexed, labelled, datasets FROM coverage"),
        "recipes": [
            {"base": base, "id": id, "rank": recipes[id].rank, "dim": recipes[id].dim, "models": n}
            for id, base, n in count_by_recipe(session)
        ],
        "statuses": dict(
            session.execute("SELECT status, count(*) FROM models GROUP BY status ORDER BY status")
        ),
        "verified": dict(
            session.execute(
                "SELECT coalesce(verified, 'nothing listed') AS way, count(*) FROM models "
                "WHERE status = 'indexed' GROUP BY way ORDER BY way"
            )
        ),
    }
