"""`--where`: a small part of SQL over documented columns, as parameterised SQL.

    column = | <> | != | < | <= | > | >= literal | [NOT] LIKE | ILIKE 'text'
           | [NOT] IN (literal, …) | IS [NOT] NULL

Such tests, joined by AND, OR, NOT and parentheses. Nothing else is understood, so a filter can
neither write nor read anything else.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from ...arrays import Int64
from ...errors import BadFilter, offered
from ...options import option, record

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone
    import pyarrow as pa

COLUMNS = (
    *("author", "base", "base_raw", "bytes_read", "bytes_total", "code", "created_at", "dataset"),
    *("dataset_raw", "downloads", "dtype", "id", "kind", "label_source", "layers", "license"),
    *("method", "model", "revision", "run", "seconds", "source", "status", "task", "verified"),
    "vocabulary",
)
_STORED_AS = {"model": "id"}
"""What everything but the table `models` calls a model's id; `id` is understood too."""

_NUMERIC = {"bytes_read", "bytes_total", "downloads", "layers", "seconds", "vocabulary"}
_LITERAL = r"(?:'(?:[^']|'')*'|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_PART = re.compile(
    rf"""\s*(?:(?P<word>AND\b|OR\b|NOT\b|[()])|(?P<column>[A-Za-z_]\w*)\b\s*(?:
    (?P<sign><=|>=|<>|!=|=|<|>)\s*(?P<value>{_LITERAL})
    |(?P<like>(?:NOT\s+)?I?LIKE)\s*(?P<pattern>{_LITERAL})
    |(?P<among>(?:NOT\s+)?IN)\s*\(\s*(?P<values>{_LITERAL}(?:\s*,\s*{_LITERAL})*)\s*\)
    |(?P<null>IS\s+(?:NOT\s+)?NULL)\b))\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_MOST_PARTS = 500
_BOOLEAN = (ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Constant)

Value = str | float


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL with placeholders, and their values."""

    sql: str
    values: tuple[Value | list[int], ...]


@record
class Filters:
    """Which models of the catalog are meant: those that meet every condition that is not None."""

    _: KW_ONLY
    dataset: str | None = option(default=None, help="Only models trained on this dataset.")
    author: str | None = option(default=None, help="Only models of this author.")
    where: str | None = option(
        default=None,
        metavar="SQL",
        help="A condition over the columns of `ls`, e.g. \"downloads > 100 AND kind = 'adapter'\".",
    )

    equal: ClassVar[tuple[str, ...]] = ("dataset", "author")
    """Fields that a column of the same name has to equal."""

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return self.where is not None or any(getattr(self, column) for column in self.equal)

    def conditions(self) -> list[Condition]:
        """The same in SQL; raises `BadFilter` if `where` is not understood."""
        conditions = [
            Condition(f"m.{column} = ?", (value,))
            for column in self.equal
            if (value := getattr(self, column)) is not None
        ]
        if self.where is not None:
            conditions.append(parse_filter(self.where))
        return conditions


@record
class ModelFilter(Filters):
    """More conditions, of lists of models; `contains` is part of an id, dataset or author, in any
    case."""

    id: str | None = None
    base: str | None = None
    status: str | None = None
    kind: str | None = None
    contains: str | None = None

    equal = ("id", "base", "status", "dataset", "author", "kind")

    def conditions(self) -> list[Condition]:
        """The same in SQL; raises as that of `Filters`."""
        conditions = Filters.conditions(self)
        if self.contains:
            parts = [f"contains(lower(m.{c}), lower(?))" for c in ("id", "dataset", "author")]
            conditions.append(Condition(f"({' OR '.join(parts)})", (self.contains,) * len(parts)))
        return conditions


def parse_filter(text: str) -> Condition:
    """The condition that `text` states; raises `BadFilter`, naming what was not understood."""
    place, sql, shape = 0, list[str](), list[str]()
    values: list[Value | list[int]] = []
    while match := _PART.match(text, place):
        place = match.end()
        test = Condition(match["word"], ()) if match["word"] else _test(match)
        sql.append(test.sql)
        values += test.values
        shape.append(match["word"].lower() if match["word"] else "1")
    if rest := text[place:].strip():
        raise BadFilter(f"--where: cannot read {rest[:40]!r};{_unknown_column(rest)}")
    if len(shape) > _MOST_PARTS:
        raise BadFilter(f"--where: more than {_MOST_PARTS} tests, words and parentheses")
    if not _is_joined(" ".join(shape)):
        raise BadFilter(f"--where: {text[:40]!r}: join tests with AND or OR, and close parentheses")
    return Condition(f"({' '.join(sql)})", tuple(values))


def _is_joined(shape: str) -> bool:
    """Whether words stand between tests, as in Python's grammar, which has the same precedence."""
    try:
        return all(isinstance(node, _BOOLEAN) for node in ast.walk(ast.parse(shape, mode="eval")))
    except (SyntaxError, RecursionError, MemoryError):
        return False


def _test(match: re.Match[str]) -> Condition:
    name = match["column"].lower()
    if name not in COLUMNS:
        raise BadFilter(f"--where:{_unknown_column(name)}")
    column = _STORED_AS.get(name, name)
    words = " ".join((match["null"] or match["among"] or match["like"] or match["sign"]).split())
    if match["null"]:
        return Condition(f"m.{column} {words}", ())
    if match["among"]:
        values = tuple(_value(one, column) for one in re.findall(_LITERAL, match["values"]))
        return Condition(f"m.{column} {words} ({', '.join('?' * len(values))})", values)
    if match["like"]:
        pattern = str(_value(match["pattern"], column))
        return Condition(f"CAST(m.{column} AS VARCHAR) {words} ?", (pattern,))
    return Condition(f"m.{column} {words} ?", (_value(match["value"], column),))


def _unknown_column(text: str) -> str:
    """What is wrong of the name that a text begins with, if it is no column's."""
    name = (re.match(r"\w*", text) or [""])[0]
    if not name or name.lower() in COLUMNS:
        return " a test is a column, =, <>, <, <=, >, >=, LIKE or IN, and a 'text' or a number"
    return f" {name!r} is not a column{offered(name, COLUMNS, 'columns')}"


def _value(literal: str, column: str) -> Value:
    if literal[0] != "'":
        return float(literal) if column in _NUMERIC else literal
    if column in _NUMERIC:
        raise BadFilter(f"--where: {column} is a number, got {literal}")
    return literal[1:-1].replace("''", "'")


def matching(
    models: pa.Table, base: str, conditions: Sequence[Condition]
) -> Int64[np.ndarray, " rows"]:
    """The rows of a table of models that meet every condition; a column that is not published is
    unknown. The database is one of memory, which may open no file."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    unknown = {name: "DOUBLE" if name in _NUMERIC else "VARCHAR" for name in COLUMNS}
    columns = {name: f"CAST(NULL AS {type})" for name, type in unknown.items()}
    columns |= {"base": "CAST(? AS VARCHAR)", "status": "'indexed'"}
    columns |= {name: name for name in models.column_names}
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    where = " AND ".join(condition.sql for condition in conditions) or "TRUE"
    values = [value for condition in conditions for value in condition.values]
    numbered = models.append_column("place", pa.array(np.arange(models.num_rows)))
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        connection.register("published", numbered)
        rows = connection.execute(
            f"SELECT m.place FROM (SELECT place, {selected} FROM published) m "
            f"WHERE {where} ORDER BY m.place",
            [base, *values],
        ).fetchnumpy()["place"]
    return np.asarray(rows, dtype=np.int64)
