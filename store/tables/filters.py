"""`--where`: a small part of SQL over documented columns, parsed into parameterised SQL.

    condition := term (OR term)*          term := factor (AND factor)*
    factor := NOT factor | ( condition ) | column test
    test := = | <> | != | < | <= | > | >= literal | [NOT] LIKE | ILIKE 'text'
          | [NOT] IN (literal, …) | IS [NOT] NULL

Nothing else is understood, so a filter can neither write nor read anything else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from ...arrays import Bool
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
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,))"
)
_MAX_DEPTH = 50
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")

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
    parser = _Parser(_tokens(text))
    condition = parser.condition(0)
    if parser.peek() is not None:
        raise BadFilter(
            f"--where: did not expect {parser.peek()!r} there; join tests with AND or OR"
        )
    return condition


def _tokens(text: str) -> list[str]:
    tokens, place = [], 0
    stripped = text.rstrip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise BadFilter(f"--where: cannot read {stripped[place:].strip()[:20]!r}")
        tokens.append(match[0].strip())
        place = match.end()
    return tokens


class _Parser:
    """Recursive descent over the token list."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def peek(self) -> str | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def condition(self, depth: int) -> Condition:
        return self._joined("OR", lambda: self._joined("AND", lambda: self._factor(depth)))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._accept(word):
            parts.append(part())
        sql = f" {word} ".join(p.sql for p in parts)
        return Condition(f"({sql})", tuple(v for p in parts for v in p.values))

    def _factor(self, depth: int) -> Condition:
        if depth > _MAX_DEPTH:
            raise BadFilter("--where: nested too deeply")
        if self._accept("NOT"):
            inner = self._factor(depth + 1)
            return Condition(f"(NOT {inner.sql})", inner.values)
        if self._accept("("):
            inner = self.condition(depth + 1)
            self._expect(")")
            return inner
        return self._test(self._column())

    def _test(self, column: str) -> Condition:
        if self._accept("IS"):
            negation = "NOT " if self._accept("NOT") else ""
            self._expect("NULL")
            return Condition(f"m.{column} IS {negation}NULL", ())
        negation = "NOT " if self._accept("NOT") else ""
        for word in ("LIKE", "ILIKE"):
            if self._accept(word):
                value = self._literal(column)
                return Condition(f"CAST(m.{column} AS VARCHAR) {negation}{word} ?", (str(value),))
        if self._accept("IN"):
            self._expect("(")
            values = [self._literal(column)]
            while self._accept(","):
                values.append(self._literal(column))
            self._expect(")")
            marks = ", ".join("?" for _ in values)
            return Condition(f"m.{column} {negation}IN ({marks})", tuple(values))
        sign = self.peek()
        if negation or sign not in _COMPARISONS:
            raise BadFilter(
                f"--where: after {column!r} expected =, <>, <, <=, >, >=, LIKE, ILIKE, IN "
                f"or IS NULL, got {sign or 'the end'!r}"
            )
        self._place += 1
        return Condition(f"m.{column} {sign} ?", (self._literal(column),))

    def _column(self) -> str:
        token = self.peek()
        if token is None or token.lower() not in COLUMNS:
            got = token or "the end"
            raise BadFilter(f"--where: {got!r} is not a column{offered(got, COLUMNS, 'columns')}")
        self._place += 1
        name = token.lower()
        return _STORED_AS.get(name, name)

    def _literal(self, column: str) -> Value:
        token = self.peek()
        if token is None or not (token[0] == "'" or token[0] in "+-" or token[0].isdigit()):
            raise BadFilter(f"--where: expected a 'text' or a number, got {token or 'the end'!r}")
        self._place += 1
        if token[0] == "'":
            if column in _NUMERIC:
                raise BadFilter(f"--where: {column} is a number, got {token}")
            return token[1:-1].replace("''", "'")
        return float(token) if column in _NUMERIC else token

    def _accept(self, word: str) -> bool:
        token = self.peek()
        if token is not None and token.upper() == word:
            self._place += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise BadFilter(f"--where: expected {word}, got {self.peek() or 'the end'!r}")


def matching(
    models: pa.Table, base: str, conditions: Sequence[Condition]
) -> Bool[np.ndarray, " models"]:
    """Which models of a table meet every condition; a column that is not published is unknown. The
    database is one of memory, which may open no file."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    selected = []
    for name in (column for column in COLUMNS if column not in _STORED_AS):
        if name in models.column_names:
            selected.append(name)
        elif name == "base":
            selected.append("CAST(? AS VARCHAR) AS base")
        elif name == "status":
            selected.append("'indexed' AS status")
        else:
            type = "DOUBLE" if name in _NUMERIC else "VARCHAR"
            selected.append(f"CAST(NULL AS {type}) AS {name}")
    if not conditions:
        return np.ones(models.num_rows, dtype=np.bool_)
    where = " AND ".join(condition.sql for condition in conditions)
    values = [value for condition in conditions for value in condition.values]
    numbered = models.append_column("place", pa.array(np.arange(models.num_rows)))
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        connection.register("published", numbered)
        rows = connection.execute(
            f"SELECT m.place FROM (SELECT place, {', '.join(selected)} FROM published) m "
            f"WHERE {where}",
            [base, *values],
        ).fetchnumpy()["place"]
    is_wanted = np.zeros(models.num_rows, dtype=np.bool_)
    is_wanted[np.asarray(rows, dtype=np.int64)] = True
    return is_wanted
