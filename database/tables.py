"""What the calls of a `Database` return: documents that are also tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from .opened import Opened

Row = Mapping[str, Any]
Document = Mapping[str, Any]

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
    """

    columns: tuple[str, ...] = ()
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
        return self._cells(self._rows()[:MAX_SHOWN])

    def _cells(self, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
        """The columns that are shown, and the cells of these rows as text."""
        columns = list(self.columns or (rows[0] if rows else ()))
        return columns, [[_cell(row.get(column)) for column in columns] for row in rows]

    def _rest(self) -> list[str]:
        return [f"… and {len(self) - MAX_SHOWN} more rows"] if len(self) > MAX_SHOWN else []


def html_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A `<table>` of cells that are text."""
    from html import escape

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return clean if len(clean) <= MAX_CELL else f"{clean[: MAX_CELL - 1]}…"


@runtime_checkable
class Tabled(Protocol):
    """A question whose answer is a table."""

    def answer(self, db: Opened) -> Table: ...


class TrainedModelTable(Table):
    """The models nearest to a data set, nearest first.

    A row has `rank` (from 1), `model`, `base`, `dataset`, `author`, `run`, and the evidence:
    `verdict`, `z` (deviations above this data set's scores with the family's strangers), `z_error`
    (over groups of the examples), `fdr` (0…1), `cosine` (−1…1), `score`. A document also has
    `query` (with its `control`), `references`, `compared`, `calibration`, `comparison` (where a
    control was given: `effect`, `low`, `high`, `p` and `verdict` of each model), and `meaning`:
    what an answer says at most.
    """

    columns = ("rank", "model", "verdict", "z", "z_error", "fdr", "dataset", "author")
    _key = "neighbours"


class NearestDataTable(Table):
    """The kept data sets nearest to a model: `rank`, `data`, `verdict`, `z`, `z_error`, `fdr`,
    `cosine`, `examples`, `loss`."""

    columns = ("rank", "data", "verdict", "z", "z_error", "fdr", "loss", "examples")
    _key = "data"


class DataTable(Table):
    """Kept data sets: `name`, `base`, `loss`, `examples`, `sha256`, `recipe`, `settings`,
    `counts`, `made_at`."""

    columns = ("name", "base", "loss", "examples", "made_at")
    _key = "data"


class NeighbourTable(Table):
    """The models nearest to a query, nearest first; of several queries, one after the other.

    A row has `query` (the model that was searched from), `rank` (from 1), `model`, `base`,
    `dataset`, `author`, `run`, and the evidence: `verdict` ("copy", "likely the same data",
    "perhaps", "no model stands out"), `z` (standard deviations above the family's strangers), `fdr`
    (the share of such answers that are expected to be wrong, 0…1), `cosine` of the two updates
    (−1…1), `score` (z, bounded to −1…1: what ranks) and `source` (the attached index that the model
    is of; None for a model of the catalog). A document also has the `verdict` of
    the nearest model, `compared` and `calibration`. `failed` lists queries that have no answer.
    """

    columns = ("query", "rank", "model", "verdict", "z", "fdr", "cosine", "dataset", "author")

    @property
    def failed(self) -> list[Row]:
        """`model` and `reason` of each of several queries that could not be answered."""
        return list(self._document.get("failed", ()))

    def _rows(self) -> Sequence[Row]:
        return [
            {"query": answer["query"]["model"], **neighbour}
            for answer in self._document.get("queries", (self._document,))
            for neighbour in answer["neighbours"]
        ]


class AttachedTable(Table):
    """Attached indexes: `name`, `source`, `base`, `recipe` (its id), `models`, `bytes`, `serial`
    (how often it was published), `manifest` (SHA-256), `attached_at`."""

    columns = ("name", "source", "base", "recipe", "models", "bytes", "attached_at")
    _key = "attached"


class ModelTable(Table):
    """Models of the catalog, a row for each; columns as `deltadex ls --json` has them."""

    columns: tuple[str, ...] = ("model", "status", "code", "dataset", "author", "run")
    _key = "models"

    def __init__(self, document: Document, columns: Sequence[str] | None = None) -> None:
        super().__init__(document)
        self.columns = tuple(columns or self.columns)

    @property
    def total(self) -> int:
        """Models that pass the filters, whatever the limit."""
        return int(self._document["total"])


class SlotTable(Table):
    """One model: a row for each weight matrix that it changed.

    A row has `slot`, `shape` (out, in), `fro_norm` (|ΔW|), `relative_norm` (|ΔW| / |W|),
    `stable_rank`, `energy` (share of |ΔW|² in the stored singular values), `noise_floor`. The
    document also has everything that `ModelTable` has of the model.
    """

    columns = ("slot", "shape", "fro_norm", "relative_norm", "stable_rank", "energy")
    _key = "slots"


class ExplanationTable(Table):
    """The slots that carry the similarity of two models, the largest contribution first."""

    columns = ("slot", "contribution", "share")
    _key = "slots"


class EvaluationTable(Table):
    """Same-dataset retrieval precision, a row for each recipe, way of scoring and family.

    A row has `recipe`, `way`, `base`, `queries`, `micro` and
    `macro` (mean purity of queries, of datasets), `chance`, `ci95`, `p_value`, `nn1`, `map`,
    `silhouette` (−1…1), and counts of `models`, `labelled`, `datasets`, `singletons`, `dropped`.
    """

    columns = ("recipe", "way", "base", "queries", "micro", "macro", "chance", "nn1", "p_value")

    def save(self, path: str | Path) -> Path:
        """Write a table by family and by dataset; the ending chooses .csv, .tex or .md.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        from .purity_table import write_purities

        return write_purities(Path(path), self._rows())

    def _rows(self) -> Sequence[Row]:
        documents = self._document.get("ways") or self._document.get("recipes", (self._document,))
        return [row for document in documents for row in _by_family(document)]


def _by_family(document: Document) -> list[Row]:
    """An evaluation's families, each with the recipe and the way."""
    shared = {key: document[key] for key in ("recipe", "recipe_id", "way", "exclude", "cost")}
    families = document.get("by_base")
    if families is None:
        return [document]
    return [{**shared, "base": base, **family} for base, family in families.items()]


class ClusterTable(Table):
    """Clusters of a family, the largest first; the document also has suggested datasets."""

    columns = ("name", "size", "datasets", "words", "models")
    _key = "clusters"


class FailureTable(Table):
    """Models that are not indexed: `model`, `base`, `code`, `status`, `reason`."""

    columns = ("model", "code", "reason")

    def _rows(self) -> Sequence[Row]:
        return [
            {**model, "code": group["code"], "status": group["status"]}
            for group in self._document["failures"]
            for model in group["models"]
        ]


class PlanTable(Table):
    """What indexing a family would read: a row for each kind and format of its models.

    A row has `kind`, `format`, `models`, `bytes_files`, `bytes_to_read`, and `estimated`, the
    number of models whose size is an estimate. A document also has `models` (counts), `refused`,
    `bytes`, `requests`, `walk`, `hours`, `disk` and `notes`.
    """

    columns = ("kind", "format", "models", "bytes_files", "bytes_to_read", "estimated")
    _key = "groups"


class IndexReport(Table):
    """What an indexing run did: counts in the document, a row for each model it refused."""

    columns = ("model", "code", "reason")

    def _rows(self) -> Sequence[Row]:
        return [*self._document["failed"], *self._document["skipped_models"]]

    @property
    def indexed(self) -> int:
        """Models that were fingerprinted in this run."""
        return int(self._document["indexed"])


class StatsTable(Table):
    """Counts of the whole catalog, a row for each family."""

    columns = ("base", "models", "indexed", "labelled", "datasets")
    _key = "bases"


class CorrelationTable(Table):
    """Spearman's ρ of a measure with each column of a file, a row for each column.

    A row has `column`, `n`, `rho` (−1…1) with the interval `low` to `high`, `p_value`, `p_holm`
    (for as many columns) and `verdict`; the document also has every `pair`.
    """

    columns = ("column", "n", "rho", "low", "high", "p_value", "p_holm", "verdict")
    _key = "correlations"


class DifferenceTable(Table):
    """Two models: a row for each of the slots that differ most."""

    columns = ("slot", "change", "stable_rank", "cosine")
    _key = "most_different"


class QueryTable(Table):
    """The rows that a SELECT returns."""

    _key = "rows"

    @property
    def names(self) -> list[str]:
        """The columns in the order of the statement."""
        return list(self._document["columns"])


class FindingTable(Table):
    """What the checks of a catalog found, a row for each check."""

    columns = ("check", "state", "detail", "advice")
    _key = "checks"

    @property
    def problems(self) -> int:
        """Findings that need a repair by hand."""
        return int(self._document["problems"])
