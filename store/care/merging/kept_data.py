"""Data sets that were kept as queries, from one catalog to another."""

from __future__ import annotations

from ...session import Session
from ...tables.data_sets import data_set_of, replace_data_set, select_data_sets
from .model_batch import Counts, Source
from .rules import Conflict

SHOWN = ("sha256", "examples", "loss", "recipe", "made_at")


def merge_data_sets(target: Session, source: Source) -> Counts:
    """Copy the data sets whose names the target has not; under one name the target's stays.

    Raises:
        RecipeMismatch: a data set's recipe is not what its table promises.
    """
    ours = {(row["base"], row["name"]): row for row in select_data_sets(target, "true", [])}
    counts = Counts()
    for row in select_data_sets(source.session, "true", []):
        own = ours.get((row["base"], row["name"]))
        if own is None:
            replace_data_set(target, data_set_of(source.session, row))
            counts.data_sets += 1
        elif not _are_same(own, row):
            counts.conflicts.append(
                Conflict(
                    base=row["base"],
                    model=row["name"],
                    about="data set",
                    source=source.name,
                    kept={column: own[column] for column in SHOWN},
                    other={column: row[column] for column in SHOWN},
                )
            )
    return counts


def _are_same(ours: dict[str, object], theirs: dict[str, object]) -> bool:
    """Whether two were made of the same bytes in the same way."""
    columns = ("sha256", "examples", "loss", "recipe", "settings")
    return all(ours[column] == theirs[column] for column in columns)
