"""Everything a catalog holds, bit for bit, and whether it is whole and found by search."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from deltadex.errors import StoreError
from deltadex.search import StoredQuery, find_similar
from deltadex.store import Catalog

from .child import lowered

NOT_COMPARED = ("key", "bytes_read", "seconds", "indexed_at")
"""Columns that differ from run to run."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """By (base, id): the model's row, its vectors by recipe, its slots with linear sketches; and
    what is amiss.

    Attributes:
        duplicates: Models that are there more than once.
        orphans: Tables that hold rows of no model.
    """

    models: Mapping[tuple[str, str], tuple[Row, tuple[Row, ...], tuple[Row, ...]]]
    duplicates: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def ids(self) -> set[str]:
        return {id for _, id in self.models}

    def __or__(self, other: Contents) -> Contents:
        """The models of both; this one's where both have one."""
        return Contents({**other.models, **self.models}, (), ())


@dataclass(slots=True)
class Findings:
    """What went wrong, by kind; all empty if nothing did."""

    lost: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.duplicates or self.wrong)

    def extend(self, other: Findings) -> None:
        self.lost += other.lost
        self.duplicates += other.duplicates
        self.wrong += other.wrong


def read_contents(db: Path) -> Contents:
    """The whole catalog, after a first opening that undoes what was not committed."""
    Catalog.open(db, create=False).close()
    with duckdb.connect(str(db), read_only=True) as connection:

        def rows(sql: str) -> list[Row]:
            return connection.execute(sql).fetchall()

        tables = rows("SELECT id, vectors FROM recipes ORDER BY id")
        models = rows(f"SELECT key, * EXCLUDE ({', '.join(NOT_COMPARED)}) FROM models ORDER BY key")
        names = [c[0] for c in connection.description or ()]
        base, id = names.index("base"), names.index("id")
        vectors: dict[int, list[Row]] = {}
        for recipe, table in tables:
            found = connection.sql(f"SELECT model, vector, norm FROM {table}").fetchnumpy()
            for key, vector, norm in zip(*(found[c] for c in found), strict=True):
                exact = np.asarray(vector, dtype=np.float32).tobytes()
                vectors.setdefault(int(key), []).append((recipe, exact, float(norm)))
        slots: dict[int, list[Row]] = {}
        for table in ("slots", "linear_sketches"):
            for key, *rest in rows(f"SELECT * FROM {table} ORDER BY ALL"):
                slots.setdefault(key, []).append(tuple(map(_hashable, rest)))
    by_name: dict[tuple[str, str], tuple[Row, tuple[Row, ...], tuple[Row, ...]]] = {}
    duplicates = []
    for key, *rest in models:
        name = (rest[base - 1], rest[id - 1])
        if name in by_name:
            duplicates.append(name[1])
        own_slots = tuple(slots.pop(key, ()))
        by_name[name] = (tuple(map(_hashable, rest)), tuple(vectors.pop(key, ())), own_slots)
    orphans = [name for name, left in (("vectors", vectors), ("slots", slots)) if left]
    return Contents(by_name, tuple(duplicates), tuple(orphans))


def check(
    db: Path,
    whole: Contents,
    *,
    there: Collection[str] = (),
    gone: Collection[str] = (),
    may_be: Collection[str] | None = None,
    searched: bool = True,
) -> Findings:
    """What is lost, double or wrong in a catalog.

    Args:
        whole: Every model that may be in it, as an undisturbed run records it.
        there: Acknowledged to be recorded.
        gone: Acknowledged to be removed.
        may_be: Ids that may be there; None for those of `whole`.
        searched: Look at the index and at answers, too.
    """
    findings = Findings()
    try:
        contents = read_contents(db)
    except StoreError as err:
        findings.wrong.append(f"does not open: {err}")
        return findings
    findings.lost += sorted(set(there) - contents.ids)
    findings.duplicates += contents.duplicates
    findings.wrong += [f"{orphan} of no model" for orphan in contents.orphans]
    findings.wrong += [f"{id} is back" for id in sorted(set(gone) & contents.ids)]
    strangers = contents.ids - (whole.ids if may_be is None else set(may_be))
    findings.wrong += [f"{id} was never recorded" for id in sorted(strangers)]
    for name, model in contents.models.items():
        if name in whole.models and model != whole.models[name]:
            findings.wrong.append(f"{name[1]} is not what was recorded")
    if searched:
        findings.wrong += _check_search(db)
    return findings


def _check_search(db: Path) -> list[str]:
    """Index against catalog, and search against a copy that has no derived files."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.duckdb"
        shutil.copy(db, bare)
        log = db.with_name(db.name + ".wal")
        if log.exists():
            shutil.copy(log, bare.with_name(bare.name + ".wal"))
        with lowered(), Catalog.open(db) as catalog, Catalog.open(bare) as plain:
            return [
                line for base in catalog.bases() for line in _check_family(catalog, plain, base)
            ]


def _check_family(catalog: Catalog, plain: Catalog, base: str) -> list[str]:
    if not catalog.models(base=base, status="indexed"):
        return []
    recipe = catalog.find_recipe("sketch", base)
    ids, vectors = catalog.family(base, recipe).by_id()
    view = catalog.family(base, recipe)
    wrong = []
    keys = {row.key for row in catalog.models(base=base, status="indexed")}
    if set(view.index.keys.tolist()) != keys or len(view) != len(keys):
        wrong.append("index and catalog have other keys")
    if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5):
        wrong.append("a vector is not of unit length")
    products = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    for row, vector in enumerate(vectors):
        candidates = {view.ids[near] for near in view.candidates(vector, 3).tolist()}
        nearest = [ids[near] for near in np.argsort(-products[row], kind="stable")[:3]]
        if not candidates.issuperset(nearest):
            wrong.append(f"search from {ids[row]} differs from brute force")
        if ids[row] not in candidates:
            wrong.append(f"{ids[row]} does not find itself")
    for id in ids[:1] if len(ids) > 1 else ():
        answers = [_answer(c, id, base) for c in (catalog, plain)]
        if answers[0].keys() != answers[1].keys() or any(
            abs(score - answers[1][other]) > 1e-6 for other, score in answers[0].items()
        ):
            wrong.append(f"the neighbours of {id} depend on derived files")
    return wrong


def _answer(catalog: Catalog, id: str, base: str) -> dict[str, float]:
    found = find_similar(catalog, StoredQuery(id, base), k=1000)
    return {one.model: one.score for one in found.neighbours}


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
