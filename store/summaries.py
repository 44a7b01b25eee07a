"""What a catalog holds, counted and grouped, ready for JSON."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from ..errors import REASONS
from ..records import SlotStats
from .reading import count_by_recipe, select_recipes
from .rows import ModelRow
from .sharing import Connection


def group_failures(rows: Sequence[ModelRow]) -> list[dict[str, Any]]:
    """Refused models by reason code, the most frequent first."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        code = row.code or "internal"
        meaning = REASONS[code].meaning if code in REASONS else ""
        empty = {"code": code, "status": row.status, "meaning": meaning, "models": []}
        group = groups.setdefault(code, empty)
        group["models"].append({"model": row.id, "base": row.base, "reason": row.reason})
    return sorted(groups.values(), key=lambda g: (-len(g["models"]), g["code"]))


def count_everything(connection: Connection) -> dict[str, Any]:
    """Models, labels and datasets by base; models by base and recipe, and by status."""
    keys = ("base", "models", "indexed", "labelled", "datasets")
    coverage = connection.execute(f"SELECT {', '.join(keys)} FROM coverage")
    recipes = select_recipes(connection)
    return {
        "bases": [dict(zip(keys, row, strict=True)) for row in coverage],
        "recipes": [
            {
                "base": base,
                "id": id,
                "rank": recipes[id].rank,
                "dim": recipes[id].dim,
                "models": n,
            }
            for id, base, n in count_by_recipe(connection)
        ],
        "statuses": dict(
            connection.execute(
                "SELECT status, count(*) FROM models GROUP BY status ORDER BY status"
            )
        ),
    }


def mean_cost(connection: Connection, recipes: Sequence[str]) -> dict[str, Any]:
    """Seconds and bytes that one model's fingerprint took, on average; None where unknown.

    Of shifts, what `profile` took to load the model and run it; of the others, what the run
    took that indexed the model, under all its recipes.
    """
    marks = ", ".join("?" * len(recipes))
    of_weights, seconds, n_bytes = connection.execute(
        "SELECT max(r.rank) > 0, avg(m.seconds), avg(m.bytes_read) FROM recipes r "
        "JOIN (SELECT DISTINCT base, model, recipe FROM fingerprints) f ON f.recipe = r.id "
        f"JOIN models m ON m.base = f.base AND m.id = f.model WHERE r.id IN ({marks})",
        list(recipes),
    )[0]
    if of_weights is False:
        seconds, n_bytes = connection.execute(
            "SELECT avg(CAST(s.results->>'$.seconds.loading' AS DOUBLE) + "
            "CAST(s.results->>'$.seconds.\"activation shifts\"' AS DOUBLE)), avg(m.bytes_total) "
            "FROM studies s JOIN models m ON m.key = s.model WHERE s.study = 'profile'"
        )[0]
    return {
        "seconds_per_model": seconds,
        "bytes_per_model": None if n_bytes is None else int(n_bytes),
    }


def slot_document(stats: SlotStats) -> dict[str, Any]:
    """One slot without its sketch."""
    return {
        "slot": str(stats.slot),
        "shape": list(stats.shape),
        "fro_norm": stats.fro_norm,
        "relative_norm": stats.relative_norm,
        "sigma": [float(s) for s in stats.sigma],
        "energy": stats.energy,
        "stable_rank": stats.stable_rank,
        "noise_floor": stats.noise_floor,
    }


def name_near(id: str, ids: list[str]) -> str:
    """What to add to "no such model": ids like it, or where they are listed."""
    near = difflib.get_close_matches(id, ids, n=3, cutoff=0.4)
    return f"; near: {', '.join(near)}" if near else "; `deltadex ls` lists them"
