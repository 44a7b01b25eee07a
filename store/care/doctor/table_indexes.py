"""Checks of DuckDB's own indexes: every block of the file, and every index against its table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress

from ....errors import StoreError
from ...schema import scripts
from ...session import Session
from ..raw_file import read_in_child
from .checks import RUN_REPAIR, CheckContext, Finding, Part, counted, listed, quoted
from .database import REPLACE_FILE

LOOKED_UP_AT_ONCE = 1_500
"""Values of one lookup; DuckDB scans the table for more than 2,048."""

BLOCKS_READ = 3
"""Times that a block is read before it counts as damaged: another process may write it."""

BETWEEN_READS_S = 0.5

_COMMENT = re.compile(r"^COMMENT ON (?:TABLE|COLUMN) (\w+).*?;$", re.MULTILINE)


def check_table_indexes(context: CheckContext) -> Iterator[Finding]:
    """Every row of an indexed table is found by its index; a damaged index is made again."""
    faults: dict[str, str] = {}
    n_lookups = 0
    for table, column in indexed_columns(context):
        parts = [(table, first, last) for _, first, last in context.parts(table)]
        for part in context.track(parts, f"looking up {table}.{column}"):
            try:
                n_lookups += _look_up(context, part, column)
            except StoreError as err:
                faults[table] = str(err.__cause__ or err).splitlines()[0][:200]
            except LookupError as err:
                faults[table] = str(err)
    if not faults:
        yield Finding("table indexes", "ok", f"{counted(n_lookups, 'value')} found where they are")
    for table, line in faults.items():
        detail = f"an index of {table}: {line}"
        if not context.repairs:
            yield Finding("table indexes", "problem", detail, RUN_REPAIR)
        else:
            context.session.write(lambda s, name=table: _make_again(s, name))  # type: ignore[misc]
            yield Finding("table indexes", "repaired", f"{detail}; made again from the table")
    if faults and context.repairs:
        # frees the blocks of the damaged indexes, unless another process reads just now
        with suppress(StoreError):
            context.session.execute("CHECKPOINT")


def indexed_columns(context: CheckContext) -> list[tuple[str, str]]:
    """Tables and columns with an index of their own."""
    rows = context.select(
        "SELECT table_name, unnest(constraint_column_names) FROM duckdb_constraints() "
        "WHERE database_name = 'catalog' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') "
        "UNION SELECT table_name, trim(expressions, '[]\"''') FROM duckdb_indexes() "
        "WHERE database_name = 'catalog' ORDER BY 1, 2"
    )
    return [(str(table), str(column)) for table, column in rows]


def _look_up(context: CheckContext, part: Part, column: str) -> int:
    """Look up a column's values in some rows of a table; their number.

    Raises:
        LookupError: the index does not give the rows that have them.
        StoreError: it cannot be read.
    """
    table, first, last = part
    name = quoted(column)
    values = context.select(
        f"SELECT DISTINCT {name} FROM {quoted(table)} t WHERE t.rowid BETWEEN ? AND ?", first, last
    )
    for start in range(0, len(values), LOOKED_UP_AT_ONCE):
        some = [value for (value,) in values[start : start + LOOKED_UP_AT_ONCE]]
        wanted = ", ".join(_literal(value) for value in some)
        found = context.select(
            f"SELECT DISTINCT {name} FROM {quoted(table)} WHERE {name} IN ({wanted})"
        )
        if len(found) != len(some):
            raise LookupError(f"{len(some) - len(found)} values are in no row that it knows")
    return len(values)


def _literal(value: object) -> str:
    """A number or text for SQL: an index is used for values that are written out."""
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _make_again(session: Session, table: str) -> None:
    """Copy a table, with indexes, into a new one of its name."""
    [(made,)] = session.execute(
        "SELECT sql FROM duckdb_tables() WHERE database_name = 'catalog' AND table_name = ?",
        [table],
    )
    indexes = session.execute(
        "SELECT sql FROM duckdb_indexes() WHERE database_name = 'catalog' AND table_name = ?",
        [table],
    )
    new = f"{table}_made_again"
    session.execute(re.sub(rf"^CREATE TABLE {table}\b", f"CREATE TABLE {new}", str(made)))
    session.execute(f"INSERT INTO {new} SELECT * FROM {table}")
    session.execute(f"DROP TABLE {table}")
    session.execute(f"ALTER TABLE {new} RENAME TO {table}")
    for (index,) in indexes:
        session.execute(str(index))
    for match in _COMMENT.finditer("\n".join(scripts())):
        if match[1] == table:
            session.execute(match[0])


def check_blocks(context: CheckContext) -> Iterator[Finding]:
    """Every block in use has its checksum, also those that belong to no table."""
    path = context.catalog.path
    for n_left in reversed(range(BLOCKS_READ)):
        try:
            blocks = read_in_child("blocks", path)
        except OSError as err:
            yield Finding("blocks", "problem", f"{path} cannot be read: {err}", REPLACE_FILE)
            return
        if blocks is None or not blocks["damaged"]:
            break
        if n_left:
            time.sleep(BETWEEN_READS_S)
    if blocks is None:
        detail = "DuckDB's file format is not the one that deltadex knows; tables were read"
        yield Finding("blocks", "note", detail)
    elif damaged := blocks["damaged"]:
        numbers = listed([str(number) for number in damaged])
        detail = f"{counted(len(damaged), 'damaged block')} of {blocks['blocks']}: {numbers}"
        yield Finding("blocks", "problem", detail, REPLACE_FILE)
    else:
        yield Finding("blocks", "ok", f"{counted(blocks['blocks'], 'block')} read")
