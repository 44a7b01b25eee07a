"""Rows that should refer to one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .finding import SHOWN, Finding, counted, some
from .fingerprints import AGAIN
from .patient import Patient, quoted


@dataclass(frozen=True, slots=True)
class _Lack:
    """Indexed models that lack something: a name for it, and the condition on `models m`."""

    what: str
    condition: str


def check_belonging(patient: Patient) -> Iterator[Finding]:
    """No rows of models that are gone, and no indexed models without theirs."""
    there = set(patient.tables())
    recipes = patient.ask("SELECT id, vectors, params LIKE '%slot_blocks%' FROM recipes")
    recipes = [(id, table, sketched) for id, table, sketched in recipes if table in there]
    vectors = [table for _, table, _ in recipes]
    found = [*_orphans(patient, vectors), *_lacking(patient, recipes), *_doubled(patient, vectors)]
    found += _families(patient)
    if all(finding.state == "note" for finding in found):
        indexed = patient.ask("SELECT count(*) FROM models WHERE status = 'indexed'")[0][0]
        yield Finding("rows", "ok", f"{counted(indexed, 'indexed model')} with all their rows")
    yield from found


def _orphans(patient: Patient, vectors: list[str]) -> Iterator[Finding]:
    """Rows without their model. They are not derived from anything, so they stay."""
    gone = "model NOT IN (SELECT key FROM models WHERE status = 'indexed')"
    for table in (*vectors, "slots", "studies"):
        # studies are also made of models that could not be indexed
        where = "model NOT IN (SELECT key FROM models)" if table == "studies" else gone
        n_rows = patient.ask(f"SELECT count(*) FROM {quoted(table)} WHERE {where}")[0][0]
        if n_rows:
            sql = f"DELETE FROM {table} WHERE {where};"
            advice = f"no search reads them; after a backup, with DuckDB: {sql}"
            detail = f"{table}: {counted(n_rows, 'row')} of models that are not indexed"
            yield Finding("rows", "problem", detail, advice)


def _lacking(patient: Patient, recipes: list[tuple[str, str, bool]]) -> Iterator[Finding]:
    for lack in _lacks(recipes):
        rows = patient.ask(
            f"SELECT m.id, count(*) OVER () FROM models m WHERE m.status = 'indexed' "
            f"AND {lack.condition} ORDER BY m.id LIMIT {SHOWN}"
        )
        if rows:
            names = some([str(id) for id, _ in rows], rows[0][1])
            detail = f"{counted(rows[0][1], 'indexed model')} without {lack.what}: {names}"
            yield Finding("rows", "problem", detail, AGAIN)


def _lacks(recipes: list[tuple[str, str, bool]]) -> Iterator[_Lack]:
    has_vector = " UNION ALL ".join(f"SELECT model FROM {quoted(t)}" for _, t, _ in recipes)
    yield _Lack("a vector", f"m.key NOT IN ({has_vector})" if has_vector else "TRUE")
    yield _Lack("slots", "m.key NOT IN (SELECT model FROM slots)")
    for id, table, is_sketched in recipes:
        if is_sketched:
            recipe = id.replace("'", "''")
            yield _Lack(
                f"the sketches of {id}",
                f"m.key IN (SELECT model FROM {quoted(table)}) AND m.key NOT IN "
                f"(SELECT model FROM slots WHERE recipe = '{recipe}')",
            )


def _doubled(patient: Patient, vectors: list[str]) -> Iterator[Finding]:
    for table in vectors:
        rows = patient.ask(
            f"SELECT m.id, count(*) OVER () FROM {quoted(table)} v "
            "JOIN models m ON m.key = v.model GROUP BY m.key, m.id HAVING count(*) > 1 "
            f"ORDER BY m.id LIMIT {SHOWN}"
        )
        if rows:
            names = some([str(id) for id, _ in rows], rows[0][1])
            detail = f"{counted(rows[0][1], 'model')} with several vectors in {table}: {names}"
            yield Finding("rows", "problem", detail, AGAIN)


def _families(patient: Patient) -> list[Finding]:
    rows = patient.ask(
        "SELECT base FROM families WHERE base NOT IN (SELECT base FROM models) ORDER BY base"
    )
    if not rows:
        return []
    names = some([str(base) for (base,) in rows])
    return [Finding("rows", "note", f"{counted(len(rows), 'base')} without models: {names}")]
