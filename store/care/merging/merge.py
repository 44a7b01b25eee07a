"""A merge of several catalogs: models, families, vectors, slots, studies and data sets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import filterfalse
from pathlib import Path
from typing import Any, TypeVar

from ....errors import REASONS, EmptyCatalog, RequestError, StoreDamaged
from ....records import ROLES, STACKS, Recipe
from ...catalog import Catalog
from ...opening import is_file, memory_connection
from ...schema import scripts
from ...session import Session
from ...tables.bases import replace_base, select_base, select_bases
from ...tables.models import count_models, settle_copies
from ...tables.recipes import select_recipes, tables
from .kept_data import merge_data_sets
from .model_batch import Counts, Name, Source, merge_models
from .part_merge import holds_parts, merge_parts
from .rules import Conflict, joined_base

AT_ONCE = 256
"""Models of one transaction: 10 MB of sketches, of a base of 36 slots."""

CACHE = "10%"
"""Of the memory, for a source: every page of it is read once."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_TABLE = re.compile(r"vectors_[0-9a-f]{8}_[0-9]+")


@dataclass(slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        sources: The counts of each, by its path.
        models: Models of every status that the target has now.
        damaged: Parts of a folder, and models, that are not what deltadex writes, one line each;
            nothing of them was taken.
    """

    target: str
    sources: dict[str, Counts] = field(default_factory=dict)
    models: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Sums, each source by itself, and every conflict."""
        keys = ("added", "updated", "unchanged", "differing", "data_sets")
        by_source = [
            {"source": path, **{key: getattr(counts, key) for key in keys}}
            for path, counts in self.sources.items()
        ]
        conflicts = [c.to_json() for counts in self.sources.values() for c in counts.conflicts]
        damaged = [line for counts in self.sources.values() for line in counts.damaged]
        return {
            "target": self.target,
            **{key: sum(counts[key] for counts in by_source) for key in keys},
            "conflicts": conflicts,
            "sources": by_source,
            "models": self.models,
            "damaged": damaged,
            "seconds": round(self.seconds, 3),
        }


Column = tuple[str, str, str]
"""Table, column and type."""

Change = TypeVar("Change")
Tracked = Callable[[Sequence[Sequence[Name]]], Iterable[Sequence[Name]]]


def merge_catalogs(
    target: Catalog, sources: Sequence[str | Path], *, tracked: Tracked = iter
) -> Merged:
    """Bring all that the sources know into the target, one after the other.

    A source is only read, and may be held by another process. A model that the target has not
    is copied; one of the same weights gets the vectors, slots, studies and labels that it lacks;
    one of other weights stays as the target has it, and is reported. What was merged before an
    error or a kill stays, and the same merge goes on. Walks of the Hub are not merged. A
    data set is copied where the target has none of that name.

    Args:
        sources: Files, or folders and fsspec addresses of parts.
        tracked: Passes on the batches that it is given; the command line draws a bar.

    Raises:
        RequestError: a source is the target itself.
        EmptyCatalog: there is no such source.
        StoreError: a source is damaged, or of another version; or the target cannot be written.
    """
    started = time.perf_counter()
    for path in map(Path, filterfalse(holds_parts, sources)):
        if not is_file(path):
            raise EmptyCatalog(f"{path}: no catalog there; name a file that `deltadex index` made")
        if is_file(target.path) and path.samefile(target.path):
            raise RequestError(f"{path}: this is the target itself; name another catalog")
    merged = Merged(target=str(target.path))
    with closing(Session(target.access)) as writing:
        for place in sources:
            counts = merged.sources.setdefault(str(place), Counts())
            merge_one = partial(_merge_catalog, writing, str(place), counts)
            if holds_parts(place):
                merge_parts(
                    target,
                    str(place),
                    counts,
                    merge_catalog=partial(merge_one, tracked=iter),
                    tracked=tracked,
                )
            else:
                merge_one(Path(place), tracked=tracked)
        for base in select_bases(writing):
            writing.write(partial(settle_copies, base=base))
        merged.models = count_models(writing, ())
    merged.seconds = time.perf_counter() - started
    return merged


def _merge_catalog(
    writing: Session, name: str, counts: Counts, path: Path, *, tracked: Tracked
) -> None:
    with (
        Catalog.open(path, read_only=True, create=False, cache=CACHE, migrates=False) as opened,
        closing(Session(opened.access)) as reading,
    ):
        _check_columns(name, reading, _columns_of_a_catalog())
        source = Source(name, reading, _recipes(reading, path))
        for recipe, table in source.recipes.values():
            _check_columns(name, reading, {(table, "vector", f"FLOAT[{recipe.dim}]")})
        _merge_source(writing, source, counts, tracked)


def _merge_source(writing: Session, source: Source, counts: Counts, tracked: Tracked) -> None:
    def write(change: Callable[[Session, Source], Change]) -> Change:
        """Change the target in one transaction, from one moment of the source."""

        def make(target: Session) -> Change:
            with source.session.snapshot():
                return change(target, source)

        return writing.write(make)

    _check_vocabulary(source)
    counts.conflicts += write(merge_families)
    names = source.session.execute("SELECT base, id FROM models GROUP BY ALL ORDER BY min(key)")
    batches = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    for batch in tracked(batches):
        counts.add(write(partial(merge_models, names=batch)))
    counts.add(write(merge_data_sets))


def merge_families(target: Session, source: Source) -> list[Conflict]:
    """Bring what the source knows of bases into the target."""
    conflicts = []
    stored = "SELECT base FROM families ORDER BY base"
    held = target.execute(stored)
    for row in source.session.execute(stored):
        (base,) = row
        theirs, ours = select_base(source.session, base), select_base(target, base)
        joined, differ = joined_base(ours, theirs)
        if joined != ours or row not in held:
            replace_base(target, joined)
        if differ:
            conflicts.append(
                Conflict(
                    base=base,
                    model=None,
                    about="base",
                    source=source.name,
                    kept={name: pair[0] for name, pair in differ.items()},
                    other={name: pair[1] for name, pair in differ.items()},
                )
            )
    return conflicts


def _recipes(reading: Session, path: Path) -> dict[str, tuple[Recipe, str]]:
    """The source's recipes by id, with their tables; a name that is unsafe in SQL is refused."""
    stored = dict(tables(reading))
    recipes = select_recipes(reading)
    for id, recipe in recipes.items():
        if recipe.id != id or not _NAME.fullmatch(id) or not _TABLE.fullmatch(stored[id]):
            raise StoreDamaged(f"{path}: recipe {id!r} is not what its id promises")
    return {id: (recipe, stored[id]) for id, recipe in recipes.items()}


_SELECT_COLUMNS = (
    "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? "
    "AND table_name IN (SELECT table_name FROM duckdb_tables())"
)


@cache
def _columns_of_a_catalog() -> frozenset[Column]:
    """Every column of the tables that the schema makes."""
    with closing(memory_connection()) as connection:
        for script in scripts():
            connection.execute(script)
        return frozenset(connection.execute(_SELECT_COLUMNS, ["memory"]).fetchall())


def _check_columns(name: str, reading: Session, wanted: Iterable[Column]) -> None:
    """Refuse a source that lacks a column, or has it of another type."""
    found = reading.execute(_SELECT_COLUMNS, ["catalog"])
    for table, column, type in sorted({*wanted} - {*found})[:1]:
        raise StoreDamaged(
            f"{name}: has no column {table}.{column} of type {type}: another program changed it; "
            "put a backup in its place"
        )


def _check_vocabulary(source: Source) -> None:
    """Refuse statuses, codes and slots that this deltadex does not know."""
    outcomes = source.session.execute("SELECT DISTINCT status, code FROM models")
    slots = source.session.execute(
        "SELECT stack, role FROM slots UNION SELECT stack, role FROM data_sketches"
    )
    strange = [f"{status} ({code})" for status, code in outcomes if not _is_known(status, code)]
    strange += [f"{s}.{role}" for s, role in slots if s not in STACKS or role not in ROLES]
    if strange:
        raise StoreDamaged(
            f"{source.name}: has {strange[0]!r}, which this deltadex does not know; upgrade it"
        )


def _is_known(status: str, code: str | None) -> bool:
    if code is None:
        return status == "indexed"
    return code in REASONS and REASONS[code].status == status
