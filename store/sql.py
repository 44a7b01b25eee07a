"""`deltadex sql`: a user's own SELECT over the catalog, which can neither write nor read files.

A statement is parsed before it runs: one SELECT, over tables of the catalog, with table functions
that read nothing. It runs in a read-only transaction; where nothing else in this process has the
file open, DuckDB's access to anything but the catalog is switched off as well. That of somebody
else runs in a process of its own.
"""

from __future__ import annotations

import json
import math
import pickle
import re
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..errors import BadQuery, StoreError
from .opening import connect, memory_connection
from .session import Session

TABLE_FUNCTIONS = (
    *("duckdb_columns", "duckdb_tables", "duckdb_views", "generate_series"),
    *("json_each", "json_tree", "range", "unnest"),
)
"""Sorted."""

_TABLE = re.compile(r"\w+")
"""A name that DuckDB cannot take for a file's: those have an ending or a folder."""

_WRITING = frozenset({"nextval", "query", "query_table"})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """What a query gives: plain values, ready for JSON but for times."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Columns in order, and one object per row."""
        return {
            "columns": list(self.columns),
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }


MOST_BYTES, MEMORY = 16 << 20, "512MB"
"""Of the result of a SELECT of somebody else; and what DuckDB may take for it."""


def query_catalog(path: Path, sql: str, most_rows: int | None = None) -> QueryResult:
    """The rows that a SELECT gives, also while another process has the file open; that of somebody
    else, of which so many rows are given, in a process that can be killed: DuckDB neither counts
    nor interrupts what one expression takes.

    Raises:
        BadQuery: it is no single SELECT of the catalog's tables, DuckDB refuses it, or it exceeds
            the limits.
        EmptyCatalog: there is no catalog.
        StoreError: it cannot be opened.
    """
    check_query(sql)
    if most_rows is not None:
        # DuckDB stops once it has one row too many; a comment may end the statement
        sql = f"SELECT * FROM (\n{sql.rstrip().rstrip(';')}\n) LIMIT {most_rows + 1}"
        check_query(sql)
    memory = None if most_rows is None else MEMORY
    with (
        closing(connect(path, read_only=True, create=False, cache=memory)) as access,
        closing(Session(access)) as session,
        session.turn(),
    ):
        if most_rows is not None:
            # what does not fit into the memory is not written to the disk either
            session.execute("SET temp_directory = ''")
        if most_rows is not None or not access.is_shared:
            # neither files nor settings
            for setting in ("enable_external_access", "python_enable_replacements"):
                session.execute(f"SET {setting} = false")
            session.execute("SET lock_configuration = true")
        table = _run(session, sql)
    try:
        columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    except (OverflowError, ValueError) as err:
        raise BadQuery(f"sql: cast to VARCHAR what has no other form: {err}") from err
    rows = tuple(zip(*columns, strict=True))
    result = QueryResult(columns=_distinct(table.column_names), rows=rows)
    if most_rows is not None and len(result.rows) > most_rows:
        raise BadQuery(f"sql: more than {most_rows} rows: add a LIMIT, or count groups")
    if most_rows is not None and len(pickle.dumps(result)) > MOST_BYTES:
        raise BadQuery(f"sql: a result of more than {MOST_BYTES >> 20} MiB: name fewer columns")
    return result


def check_query(sql: str) -> None:
    """See that a statement only reads the catalog, before it runs anywhere; else `BadQuery`."""
    with memory_connection() as parser:
        try:
            statements = parser.extract_statements(sql)
            kinds = [statement.type.name for statement in statements]
            if kinds != ["SELECT"]:
                got = ", ".join(kinds) or "nothing"
                raise BadQuery(
                    f"sql: only one SELECT is run here, which changes nothing; got {got}"
                )
            row = parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        except duckdb.Error as err:
            raise BadQuery(f"sql: {_first_line(err)}") from err
    assert row is not None
    nodes: list[dict[str, Any]] = []

    def note(node: dict[str, Any]) -> dict[str, Any]:
        nodes.append(node)
        return node

    try:
        parsed = json.loads(row[0], object_hook=note)
    except RecursionError as err:
        raise BadQuery("sql: nested too deeply") from err
    if parsed.get("error"):
        raise BadQuery(f"sql: {parsed.get('error_message', 'not understood')}")
    for node in reversed(nodes):  # the outer ones first
        _check_node(node)


def _check_node(node: dict[str, Any]) -> None:
    kind, name = node.get("type"), str(node.get("function_name", "")).lower()
    if kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise BadQuery(
                f"sql: {name}() may read more than the catalog; table functions here: "
                f"{', '.join(TABLE_FUNCTIONS)}"
            )
    elif kind == "BASE_TABLE" and not _TABLE.fullmatch(str(node.get("table_name", ""))):
        raise BadQuery(f"sql: {node.get('table_name')!r} is no table of the catalog")
    elif kind == "FUNCTION" and name in _WRITING:
        raise BadQuery(f"sql: {name}() is not for reading")


def _run(session: Session, sql: str) -> pa.Table:
    try:
        return session.look(lambda: session.arrow(sql))
    except StoreError as err:
        if isinstance(err.__cause__, duckdb.OutOfMemoryException):
            raise BadQuery("sql: not enough memory: ask for less") from err
        if isinstance(err.__cause__, duckdb.Error):
            raise BadQuery(f"sql: {_first_line(err.__cause__)}") from err
        raise


def _first_line(err: duckdb.Error) -> str:
    return next(iter(str(err).splitlines()), "DuckDB refuses it")[:300]


def _plain(value: Any) -> Any:
    """Bytes as hex, whole decimals as int, no number as None."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):  # a tuple of an interval
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return value


def _distinct(names: list[str]) -> tuple[str, ...]:
    """The names, a number after those that came before."""
    distinct: list[str] = []
    for name in names:
        candidates = chain([name], (f"{name}_{number}" for number in count(2)))
        distinct.append(next(c for c in candidates if c not in distinct))
    return tuple(distinct)
