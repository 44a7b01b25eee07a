"""The database itself: every block read, every table and view there, keys that go on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....errors import StoreError
from ...schema import scripts
from ...tables.vectors import refresh_view, tables
from .finding import Finding, counted, some
from .patient import Patient, quoted

_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_VIEW = re.compile(r"^CREATE (?:OR REPLACE )?VIEW (\w+) AS\n.*?;$", re.MULTILINE | re.DOTALL)

ADVICE = (
    "put a backup in its place, or move it away and run `deltadex index` again; "
    "keep the damaged file until that is done"
)


def check_tables(patient: Patient) -> Iterator[Finding]:
    """Reads everything once: DuckDB compares each block with its checksum."""
    there = patient.tables()
    asked = _TABLE.findall("\n".join(scripts()))
    missing = [name for name in asked if name not in there]
    if missing:
        yield Finding("tables", "problem", f"missing: {', '.join(missing)}", ADVICE)
    parts = [part for table in there for part in patient.parts(table)]
    damaged: dict[str, str] = {}
    n_rows = 0
    for table, first, last in patient.track(parts, "reading tables"):
        try:
            # the hash of a row needs every column of it
            [(rows, _)] = patient.ask(
                f"SELECT count(*), bit_xor(hash(t)) FROM {quoted(table)} t "
                "WHERE t.rowid BETWEEN ? AND ?",
                first,
                last,
            )
            n_rows += rows
        except StoreError as err:
            damaged.setdefault(table, str(err.__cause__ or err).splitlines()[0][:200])
    for table, line in damaged.items():
        yield Finding("tables", "problem", f"{table} cannot be read ({line})", ADVICE)
    if not missing and not damaged:
        yield Finding("tables", "ok", f"{counted(len(there), 'table')}, {n_rows} rows read")


def check_views(patient: Patient) -> Iterator[Finding]:
    """Every view there and of use; they are made again from the schema."""
    made: dict[str, str] = {}
    for match in _VIEW.finditer("\n".join(scripts())):
        # a later one may need what stands between
        made.pop(match[1], None)
        made[match[1]] = match[0]
    sql = {name: sql for name, sql in _views(patient)}
    broken = [name for name in made if name not in sql or not _works(patient, name)]
    vectors = [table for _, table in tables(patient.session)]
    shown = sql.get("fingerprints", "")
    stale = [table for table in vectors if table not in shown]
    if vectors and (stale or not _works(patient, "fingerprints")):
        broken.append("fingerprints")
    if not broken:
        yield Finding("views", "ok", counted(len(made) + bool(vectors), "view"))
        return
    names = ", ".join(broken)
    if not patient.repairs:
        yield _unrepaired("views", f"missing or of no use: {names}")
        return
    again = [made[name] for name in made if name in broken]
    patient.change(*(_or_replace(one) for one in again))
    if "fingerprints" in broken:
        patient.write(refresh_view)
    yield Finding("views", "repaired", f"made again: {names}")


def check_keys(patient: Patient) -> Iterator[Finding]:
    """Models are known by one key and one name, and new keys are above all that there are."""
    twice = patient.ask(
        "SELECT id, count(*) OVER () FROM models GROUP BY base, id HAVING count(*) > 1 LIMIT 3"
    )
    if twice:
        names = some([str(id) for id, _ in twice], twice[0][1])
        advice = "`deltadex rm` each of them, then index it again"
        yield Finding("keys", "problem", f"stored twice: {names}", advice)
    [(last,)] = patient.ask("SELECT coalesce(max(key), 0) FROM models")
    [(following,)] = patient.ask(
        "SELECT max(coalesce(last_value + increment_by, start_value)) FROM duckdb_sequences() "
        "WHERE database_name = 'catalog' AND sequence_name = 'model_keys'"
    )
    if following is not None and following > last:
        if not twice:
            yield Finding("keys", "ok", f"next {following}, above all")
    elif patient.repairs:
        patient.change(f"CREATE OR REPLACE SEQUENCE model_keys START {last + 1}")
        yield Finding("keys", "repaired", f"new keys begin at {last + 1}, above all")
    else:
        yield _unrepaired("keys", f"the next key, {following}, is not above the last, {last}")


def _views(patient: Patient) -> list[tuple[str, str]]:
    return patient.ask(
        "SELECT view_name, sql FROM duckdb_views() WHERE database_name = 'catalog' AND NOT internal"
    )


def _works(patient: Patient, view: str) -> bool:
    try:
        patient.ask(f"SELECT * FROM {quoted(view)} LIMIT 0")
    except StoreError:
        return False
    return True


def _or_replace(sql: str) -> str:
    return re.sub(r"^CREATE (OR REPLACE )?VIEW", "CREATE OR REPLACE VIEW", sql)


def _unrepaired(check: str, detail: str) -> Finding:
    return Finding(check, "problem", detail, "`deltadex doctor` without --check mends it")
