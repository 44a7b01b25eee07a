"""What questions return: documents that are also tables, and sections that are read."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import repeat
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import pandas
    import pyarrow

Record = TypeVar("Record", bound="JsonRecord")
Row = Mapping[str, Any]
Document = Mapping[str, Any]
Lasts = tuple[bool, ...]

Shown = Iterator["str | Section"]
"""An answer as people read it: lines and tables."""

MAX_SHOWN = 50
"""Rows of a table in a notebook or an interpreter."""

MAX_CELL = 60
"""Characters of a cell there."""


class Table:
    """A result: a document for programs, whose rows are a table for people.

    `table[0]["model"]` is a cell, `len(table)` the number of rows, and a loop gives rows, which
    are dictionaries. `to_json` gives the whole document, which holds more than the rows do.

    Attributes:
        columns: Columns that are shown; those of the first row where it is empty.
        saved_columns: Columns of a file; where it is empty those that are shown, and into .csv all.
    """

    columns: tuple[str, ...] = ()
    saved_columns: tuple[str, ...] = ()
    _key: ClassVar[str] = ""

    def __init__(self, document: Document) -> None:
        self._document = document

    def to_json(self) -> dict[str, Any]:
        """The document that the command of the same name prints with `--json`."""
        return dict(self._document)

    def to_arrow(self) -> pyarrow.Table:
        """The rows as a `pyarrow.Table`: a column for each key that any row has."""
        import pyarrow

        names = dict.fromkeys(name for row in self for name in row)
        return pyarrow.table({name: [row.get(name) for row in self] for name in names})

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a `pandas.DataFrame`.

        Raises:
            ModuleNotFoundError: pandas is not installed; deltadex does not need it otherwise.
        """
        from importlib.util import find_spec

        if find_spec("pandas") is None:
            raise ModuleNotFoundError(
                "to_pandas() needs pandas: pip install 'deltadex[pandas]'; to_arrow() and "
                "to_json() need nothing more",
                name="pandas",
            )
        return self.to_arrow().to_pandas()

    def sections(self, *, everything: bool = False) -> Iterable[Section]:
        """The tables of a file: one of the columns that are shown, or of all that rows have."""
        rows = self._rows()
        names = list(self.saved_columns or self.columns or (rows[0] if rows else ()))
        if everything and not self.saved_columns:
            names = list(dict.fromkeys([*names, *(name for row in rows for name in row)]))
        yield Section(columns=names, rows=[[row.get(name) for name in names] for row in rows])

    def _rows(self) -> Sequence[Row]:
        rows: Sequence[Row] = self._document[self._key] if self._key else [self._document]
        return rows

    def __len__(self) -> int:
        return len(self._rows())

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __getitem__(self, place: int) -> Row:
        return self._rows()[place]

    def __repr__(self) -> str:
        columns, cells = self._shown()
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in [columns, *cells])
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"{html_table(*self._shown())}{rest}"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """The columns that are shown, and the cells of the first rows as text."""
        rows = self._rows()[:MAX_SHOWN]
        columns = list(self.columns or (rows[0] if rows else ()))
        return columns, [[_cell(row.get(column)) for column in columns] for row in rows]

    def _rest(self) -> list[str]:
        return (
            [f"… and {count(len(self) - MAX_SHOWN, 'more row')}"] if len(self) > MAX_SHOWN else []
        )


def html_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A `<table>` of cells that are text."""
    from html import escape

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def printable(text: str) -> str:
    """The text with � for each character that is obeyed and not shown, or that XML cannot hold."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    clean = printable(text)
    return clean if len(clean) <= MAX_CELL else f"{clean[: MAX_CELL - 1]}…"


@dataclass(frozen=True, slots=True)
class Descent:
    """A lineage's document as a tree: a model stands below its first parent.

    Attributes:
        edges: Those to first parents, by parent.
        others: Those to the other parents of merges, by child.
        sizes: Models below each, with itself.
    """

    edges: Mapping[str, list[Row]]
    others: Mapping[str, list[Row]]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, document: Document) -> Descent:
        first: dict[str, Row] = {}
        edges: dict[str, list[Row]] = {}
        others: dict[str, list[Row]] = {}
        for edge in document["edges"]:
            is_first = first.setdefault(edge["child"], edge) is edge
            target, name = (edges, "parent") if is_first else (others, "child")
            target.setdefault(edge[name], []).append(edge)
        order = [document["base"]]
        for name in order:
            order += [edge["child"] for edge in edges.get(name, ())]
        sizes: dict[str, int] = {}
        for name in reversed(order):
            sizes[name] = 1 + sum(sizes[edge["child"]] for edge in edges.get(name, ()))
        return cls(edges, others, sizes)

    def below(self, name: str) -> list[Row]:
        """The edges from a model, those with most models behind them first."""
        return sorted(
            self.edges.get(name, ()), key=lambda edge: (-self.sizes[edge["child"]], edge["child"])
        )

    def walk(
        self, name: str, shown: Callable[[str, int], Sequence[Row | str]], above: Lasts = ()
    ) -> Iterator[tuple[Lasts, Row | str]]:
        """What is `shown` below a model at a level, and below that, depth first: edges, and texts
        for models left out; each with whether it, and all `above` it, are the last below theirs."""
        rows = shown(name, len(above))
        for row in rows:
            lasts = (*above, row is rows[-1])
            yield lasts, row
            if not isinstance(row, str):
                yield from self.walk(row["child"], shown, lasts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report as people read it: a title, a table, and sentences below.

    Attributes:
        names: Columns that a narrow screen shortens, beside those that are always names.
        by_layer: The columns, or rows, that are layers: a screen shows `most` of them.
        across: Whether a layer is a column, or a row.
        noun: What a layer is called.
    """

    title: str = ""
    columns: Sequence[object] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = ()
    names: Sequence[str] = ()
    by_layer: range = range(0)
    across: bool = True
    most: int = 12
    noun: str = "hidden states"

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Any], names: Sequence[str] = ()) -> Section:
        """A table of cells in the order of the columns, or of documents that have them as keys."""
        cells = ([row[c] for c in columns] if isinstance(row, Mapping) else row for row in rows)
        return cls(columns=columns, rows=list(cells), names=names)

    def shortened(self) -> tuple[Section, list[object]]:
        """The section with as many layers as a screen has room for, and those that are left out."""
        shown = {self.by_layer[place] for place in spread(len(self.by_layer), self.most)}
        out = [place for place in self.by_layer if place not in shown]
        if not out:
            return self, []
        if not self.across:
            left = [self.rows[place][0] for place in out]
            return replace(self, rows=[r for n, r in enumerate(self.rows) if n not in out]), left

        def cut(cells: Sequence[object]) -> list[object]:
            return [cell for place, cell in enumerate(cells) if place not in out]

        left = [self.columns[place] for place in out]
        return replace(self, columns=cut(self.columns), rows=list(map(cut, self.rows))), left

    def html(self) -> str:
        """All of it, for a page."""
        from html import escape

        title = f"<h2>{escape(self.title)}</h2>" if self.title else ""
        cells = [list(map(_cell, row)) for row in self.rows]
        table = html_table(list(map(str, self.columns)), cells) if cells else ""
        return "".join([title, table, *(f"<p>{escape(note)}</p>" for note in self.notes)])


def spread(n_layers: int, most: int = 12) -> list[int]:
    """At most `most` layers from the first to the last, evenly."""
    if n_layers <= most:
        return list(range(n_layers))
    return sorted({round(i * (n_layers - 1) / (most - 1)) for i in range(most)})


def names_of_bases(bases: Sequence[str]) -> dict[str, str]:
    """Bases by their own names, where these tell them apart."""
    last = {base: _own_name(base) for base in bases}
    several = Counter(last.values())
    return {base: part if several[part] == 1 else base for base, part in last.items()}


_OF_NO_MODEL = re.compile(r"models?|base|checkpoint(-\d+)?|output|final|[0-9a-f]{40}")


def _own_name(base: str) -> str:
    """The last part of a name; of a folder that is called after no model, what its config says."""
    last = re.split(r"[/\\]", base.rstrip("/\\"))[-1]
    if not _OF_NO_MODEL.fullmatch(last) or not base.startswith("/"):
        return last
    try:
        config = json.loads((Path(base) / "config.json").read_text("utf-8"))
        said = re.split(r"[/\\]", config["_name_or_path"].rstrip("/\\"))[-1]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return last
    return said if said and not _OF_NO_MODEL.fullmatch(said) else last


def share(value: float | None) -> str:
    """0.875 → `0.875`; nothing for None."""
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}"  # + 0.0: no minus of zero


def percent(value: float | None) -> str:
    """0.875 → `88 %`; nothing for None."""
    return "–" if value is None else f"{100 * value:.0f} %"


PLURALS = {
    **{"is": "are", "was": "were", "has": "have", "class": "classes", "child": "children"},
    **{"matrix": "matrices", "layer matrix": "layer matrices"},
    **{"copy": "copies", "family": "families", "query": "queries"},
}


def agree(n: int, word: str, many: str = "") -> str:
    """A noun or verb in the number of `n`: `model` or `models`, `is` or `are`."""
    return word if n == 1 else many or PLURALS.get(word, f"{word}s")


def count(n: int, noun: str, *, or_more: bool = False, form: str = "") -> str:
    """`1 model`, `2 models`, `1 or more models`; `2,000 models` by the form `,`."""
    return f"{n:{form}}{' or more' * or_more} {agree(2 if or_more else n, noun)}"


def size(n_bytes: int) -> str:
    """1536 → `1.5 KiB`."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


class JsonRecord:
    """Base of the frozen records that reports are made of.

    A field with `repr=False` is too large for the document and is left out; `metadata` may give
    another `key` than its name. A record that says more than its fields overrides `to_json`.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The fields by name in JSON's types, all the way down; None for NaN."""
        return {key: _plain(getattr(self, name)) for name, key in _keys(self)}

    @classmethod
    def from_json(cls: type[Record], document: Mapping[str, Any]) -> Record:
        """The record of a document; keys that are no field are ignored, large fields and those
        that an earlier version did not write have their defaults."""
        kinds = get_type_hints(cls)
        given = [(name, document[key]) for name, key in _keys(cls) if key in document]
        return cls(**{name: _restored(value, kinds[name]) for name, value in given})


def _keys(record: JsonRecord | type[JsonRecord]) -> list[tuple[str, str]]:
    """(name, key) of the fields that a document has."""
    known: Any = record
    return [(f.name, f.metadata.get("key", f.name)) for f in fields(known) if f.repr]


def _plain(value: Any) -> Any:
    if isinstance(value, JsonRecord):
        return value.to_json()
    if hasattr(value, "tolist"):  # of NumPy
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _restored(value: Any, kind: Any) -> Any:
    """A JSON value as the type of its field: a record, a number, or a collection of them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin is UnionType:  # of a type and None
        return _restored(value, arguments[0])
    if origin is tuple:
        kinds = repeat(arguments[0]) if arguments[-1] is Ellipsis else arguments
        return tuple(map(_restored, value, kinds))
    if origin is Mapping:
        return {key: _restored(entry, arguments[1]) for key, entry in value.items()}
    if isinstance(kind, type) and issubclass(kind, JsonRecord):
        return kind.from_json(value)
    return kind(value) if kind in (int, float) else value
