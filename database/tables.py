"""What the calls of a `Database` return: documents that are also tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..results import Document as Document
from ..results import Row as Row
from ..results import Section
from ..results import Table as Table
from ..results import html_table as html_table
from .written import save_table

if TYPE_CHECKING:
    from .opened import Opened


@runtime_checkable
class Tabled(Protocol):
    """A question whose answer is a table."""

    def answer(self, db: Opened) -> Table: ...


OF_WORDS = ("touched", "missing", "missing_by_chance")
"""Columns of a file's words beside a footprint."""


class TrainedModelTable(Table):
    """The models nearest to a data set, nearest first.

    A row has `rank` (from 1), `model`, `base`, `dataset`, `author`, `run`, and the evidence:
    `verdict`, `probability` (that the model was trained on this data; None in families too small
    to say), `z` (deviations above this data set's scores with the family's strangers), `z_error`
    (over groups of the examples), `fdr` (0…1), `cosine` (−1…1), `score`. A document also has
    `query` (with its `control`), `references`, `compared`, `calibration`, `comparison` (where a
    control was given: `effect`, `low`, `high`, `p` and `verdict` of each model), `families` (a row
    for each that was asked; what they say differently is None in the rest of the document),
    `left_out` (`base` and `reason` of those that could not be asked), and `meaning`: what an answer
    says at most.
    """

    columns: tuple[str, ...] = (
        *("rank", "model", "verdict", "probability", "z", "z_error", "fdr", "dataset", "author"),
    )
    _key = "neighbours"

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        if any(row.get("touched") is not None for row in document["neighbours"]):
            self.columns = (*self.columns[:3], *OF_WORDS, *self.columns[3:])
        if document["recipe"] is None and document["calibration"] is None:
            self.columns = ("rank", "model", "verdict", *OF_WORDS, "dataset", "author")
        if len(document["families"]) > 1:
            self.columns = ("rank", "base", *self.columns[1:])


class NearestDataTable(Table):
    """The kept data sets nearest to a model: `rank`, `data`, `verdict`, `probability`, `z`,
    `z_error`, `fdr`, `cosine`, `examples`, `loss`."""

    columns = ("rank", "data", "verdict", "probability", "z", "z_error", "fdr", "loss", "examples")
    _key = "data"


class DataTable(Table):
    """Kept data sets: `name`, `base`, `loss`, `examples`, `sha256`, `recipe`, `settings`,
    `counts`, `made_at`."""

    columns = ("name", "base", "loss", "examples", "made_at")
    _key = "data"


class AcrossTable(Table):
    """Models of other bases, those likeliest trained on the query's data first.

    A row has `rank`, `model`, `base`, `verdict`, `probability` (that it was trained on the same
    data; None where nothing is known to calibrate on), `z` (deviations of the cosine among the
    models of its base), `fdr`, `cosine` (of words, −1…1) and labels. A document also has `query`,
    `families`, `left_out` (families that could not be compared, with the reason) and `meaning`.
    """

    columns = (
        *("rank", "model", "base", "verdict", "probability", "z", "fdr", "cosine"),
        *("dataset", "author"),
    )
    _key = "neighbours"


class NeighbourTable(Table):
    """The models nearest to a query, nearest first; of several queries, one after the other.

    A row has `query` (the model that was searched from), `rank` (from 1), `model`, `base`,
    `dataset`, `author`, `run`, and the evidence: `verdict` ("copy", "likely the same data",
    "perhaps", "no model stands out"), `probability` (that both were trained on the same data; None
    in families that are too small), `z` (standard deviations above the family's strangers), `fdr`
    (the share of all answers down to a row expected to be wrong, 0…1), `cosine` of the two updates
    (−1…1), `score` (z, bounded to −1…1: what ranks) and `source` (the attached index that the model
    is of; None for a model of the catalog). A document also has the `verdict` of
    the nearest model, `compared` and `calibration`. `failed` lists queries that have no answer.
    """

    columns = (
        *("query", "rank", "model", "verdict", "probability", "z", "fdr", "cosine", "dataset"),
        "author",
    )

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
        self.columns = self.saved_columns = tuple(columns or self.columns)

    @property
    def total(self) -> int:
        """Models that pass the filters, whatever the limit."""
        return int(self._document["total"])


class FacetTable(Table):
    """Counts of models, a row for each value of each facet: `facet`, `value`, `models`."""

    columns = ("facet", "value", "models")
    _key = "facets"

    def of(self, facet: str) -> list[Row]:
        """The rows of one facet."""
        return [row for row in self if row["facet"] == facet]


class SlotTable(Table):
    """One model: a row for each weight matrix that it changed.

    A row has `slot`, `shape` (out, in), `fro_norm` (|ΔW|), `relative_norm` (|ΔW| / |W|),
    `stable_rank`, `energy` (share of |ΔW|² in the stored singular values), `noise_floor`. The
    document also has everything that `ModelTable` has of the model, and `words`: those that `words`
    names first.
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
        return save_table(self, path)

    def sections(self, *, everything: bool = False) -> Iterable[Section]:
        """One table: columns for recipe and way where they differ."""
        rows = self._rows()
        varying = [key for key in ("recipe", "way") if len({row[key] for row in rows}) > 1]
        yield Section(
            columns=(*varying, *PURITY_COLUMNS),
            rows=[
                [*(row[key] for key in varying), row["base"], *line]
                for row in rows
                for line in _lines(row)
            ],
        )

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


class DifferenceTable(Table):
    """Two models: a row for each of the slots that differ most."""

    columns = ("slot", "change", "stable_rank", "cosine")
    _key = "most_different"


class TraceTable(Table):
    """Where a model comes from; a row for each pair of layers: `model`, `base`."""

    columns = ("model", "base")

    def _rows(self) -> Sequence[Row]:
        return [{"model": child, "base": base} for child, base in self._document["layers"]]


class KnownBaseTable(Table):
    """The bases that models are compared with: `base`, `state`, what its config says, `bytes` that
    are kept of it, and the `reason` where it could not be read."""

    columns = ("base", "state", "type", "layers", "width", "vocabulary", "models", "reason")
    _key = "bases"


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


class AuditTable(Table):
    """What stands out among models, a row for each finding: `model`, `base`, `kind`, `detail`, `z`.

    A document also has `models`, how many were looked at, `notes`: what was not, and `not_read`:
    the models whose layer matrices were not read, or in part (`model`, `note`).
    """

    columns = ("model", "kind", "detail", "z")
    saved_columns = ("base", *columns)
    _key = "findings"

    def save(self, path: str | Path) -> Path:
        """Write the findings as a table; the ending chooses .csv, .tex or .md.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        return save_table(self, path)


PURITY_COLUMNS = ("family", "dataset", "n", "purity", "low", "high", "p", "chance")
"""Columns of an evaluation in a paper; `low` and `high`: the 95 % interval of the purity."""

Line = Sequence[object]


def _lines(row: Row) -> Iterator[Line]:
    """A family's line, then one for each of its datasets, without the family's name."""
    whole = {**row, "n": row["queries"], "purity": row["micro"]}
    for name, group in [("all", whole), *(row["by_dataset"] or {}).items()]:
        low, high = group["ci95"] or (None, None)
        yield [name, group["n"], group["purity"], low, high, group["p_value"], group["chance"]]
