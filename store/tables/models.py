"""The table `models`: one row per model, indexed or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, get_args

from ...errors import NOWHERE, REASONS
from ...records import Indexed, ModelRecord, Outcome, Refused
from ..session import Session
from .filters import Condition
from .recipes import tables

RECORD_COLUMNS = tuple(f.name for f in fields(ModelRecord))
OUTCOME_COLUMNS = (*RECORD_COLUMNS, "status", "code", "reason", "bytes_read", "seconds")
GUESSED = "coalesce(label_source = 'name', FALSE) AS is_guessed"
LABELS = ("dataset", "dataset_raw", "label_source", "author", "run")
_FIRST = ("status", "code", "reason", "dataset", "author", "run")
_LAST = ("bytes_read", "seconds", "indexed_at", "recipes")

SortColumn = Literal["id", "dataset", "author", "downloads", "indexed_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow(ModelRecord):
    """A row of the table, and the recipes that the model has vectors of; without a key where the
    table does not have it yet."""

    key: int = 0
    status: str
    code: str | None
    reason: str | None
    bytes_read: int
    seconds: float
    indexed_at: str = ""
    recipes: tuple[str, ...]

    @classmethod
    def of_columns(cls, row: Mapping[str, Any], recipes: Sequence[str]) -> ModelRow:
        """The row with these columns, as the table or a part has them."""
        return cls(**{**row, "notes": tuple(row["notes"] or ()), "recipes": tuple(recipes)})

    @classmethod
    def of_outcome(cls, outcome: Outcome, indexed_at: str) -> ModelRow:
        """The row of a model whose outcome was recorded at a time."""
        fingerprints = outcome.fingerprints if isinstance(outcome, Indexed) else ()
        row = outcome_row(outcome) | {"indexed_at": indexed_at}
        return cls.of_columns(row, [f.recipe.id for f in fingerprints])

    def labelled(self, dataset: str | None, author: str | None, run: str | None) -> ModelRow:
        """The row with these labels, as from a labels file; a None leaves what there is, and the
        dataset "" takes the dataset away."""
        return replace(
            self,
            dataset=self.dataset if dataset is None else dataset or None,
            dataset_raw=dataset or self.dataset_raw,
            label_source="labels",
            author=author or self.author,
            run=run or self.run,
        )

    def is_outdated_by(self, record: ModelRecord) -> bool:
        """Whether a record has another label, and none of a labels file would be lost to it."""
        labels = (self.dataset, self.dataset_raw, self.label_source)
        is_new = labels != (record.dataset, record.dataset_raw, record.label_source)
        return is_new and self.label_source != "labels"

    def has(self, outcome: Outcome) -> bool:
        """Whether recording the outcome would add nothing."""
        model = outcome.model
        if not model.signature or model.signature != self.signature:
            return False
        if isinstance(outcome, Refused):
            return outcome.code == self.code
        is_verified = self.verified == model.verified or self.verified != "unverified"
        has_all = {f.recipe.id for f in outcome.fingerprints} <= set(self.recipes)
        return self.status == "indexed" and is_verified and has_all

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The keys of `to_json`."""
        record = (name for name in RECORD_COLUMNS if name not in ("id", *_FIRST))
        return ("model", *_FIRST, *record, *_LAST)

    def to_json(self) -> dict[str, Any]:
        """The documented keys of `ls`, then everything else."""
        own = {"model": self.id, "notes": list(self.notes), "recipes": list(self.recipes)}
        return {name: own[name] if name in own else getattr(self, name) for name in self.columns()}


class ModelLabel(NamedTuple):
    """What a model was trained on, by whom, in which run; None where that is unknown."""

    dataset: str | None
    author: str | None
    run: str | None
    is_guessed: bool = False
    """The data set, from the model's name."""

    @property
    def stated(self) -> str | None:
        """The data set, unless it was guessed."""
        return None if self.is_guessed else self.dataset


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """The same of many models, row by row."""

    datasets: tuple[str | None, ...]
    authors: tuple[str | None, ...]
    runs: tuple[str | None, ...]
    are_guessed: tuple[bool, ...]

    def at(self, row: int) -> ModelLabel:
        return ModelLabel(
            self.datasets[row], self.authors[row], self.runs[row], bool(self.are_guessed[row])
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """The columns of an indexed model that a search needs."""

    key: int
    id: str
    base: str
    kind: str
    dataset: str | None


def may_record(outcome: Outcome, known: ModelRow | None) -> bool:
    """Whether an outcome may be recorded in place of what is known.

    Not where a fingerprint would be lost to a fault that may pass, or to files that were taken
    away; nor where another model has the id, or no model ever had it.
    """
    if not isinstance(outcome, Refused):
        return True
    reason = REASONS[outcome.code]
    is_indexed = known is not None and known.status == "indexed"
    is_lost = is_indexed and (reason.transient or reason.withdrawn)
    never_was = known is None and outcome.code in NOWHERE and not outcome.model.signature
    return outcome.code != "id-taken" and not is_lost and not never_was


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A range of the models that pass a filter, and their order: those of which the sorting column
    is unknown come last in either order, equal ones in order of id."""

    sort: SortColumn = "id"
    descending: bool = False
    indexed_first: bool = False
    limit: int | None = None
    offset: int = 0

    @property
    def sql(self) -> str:
        """The end of a query of `models m`."""
        if self.sort not in get_args(SortColumn):
            raise ValueError(f"models are not sorted by {self.sort!r}")
        direction = "DESC" if self.descending else "ASC"
        first = "m.status <> 'indexed', " if self.indexed_first else ""
        order = f"{first}m.{self.sort} {direction} NULLS LAST, m.id, m.base"
        limit = "" if self.limit is None else f" LIMIT {int(self.limit)}"
        return f" ORDER BY {order}{limit} OFFSET {int(self.offset)}"


def select_models(
    session: Session, conditions: Sequence[Condition], page: Page | None = None
) -> list[ModelRow]:
    """The models that meet every condition, by base and id; or a page of them."""
    where, values = _joined(conditions)
    order = page.sql if page is not None else " ORDER BY m.base, m.id"
    rows = session.rows(
        "SELECT m.* REPLACE (strftime(m.indexed_at, '%Y-%m-%dT%H:%M:%SZ') AS indexed_at) "
        f"FROM models m WHERE {where}{order}",
        values,
    )
    recipes: dict[int, list[str]] = {row["key"]: [] for row in rows}
    for recipe, table in tables(session):
        sql = f"SELECT model FROM {table} WHERE model IN (SELECT unnest(?::BIGINT[]))"
        for key in session.column(sql, [list(recipes)]):
            recipes[key].append(recipe)
    return [ModelRow.of_columns(row, recipes[row["key"]]) for row in rows]


def count_models(session: Session, conditions: Sequence[Condition]) -> int:
    """How many models meet every condition."""
    where, values = _joined(conditions)
    return int(session.execute(f"SELECT count(*) FROM models m WHERE {where}", values)[0][0])


def count_values(
    session: Session, conditions: Sequence[Condition], column: str, most: int
) -> list[tuple[Any, int]]:
    """The most frequent values of a column among the models that meet every condition, each with
    its number of models; None is counted too."""
    where, values = _joined(conditions)
    return session.execute(
        f"SELECT m.{column}, count(*) AS n FROM models m WHERE {where} "
        f"GROUP BY 1 ORDER BY n DESC, 1 NULLS LAST LIMIT {most}",
        values,
    )


def select_keys(session: Session, conditions: Sequence[Condition]) -> list[int]:
    """Keys of the models that meet every condition."""
    where, values = _joined(conditions)
    return session.column(f"SELECT m.key FROM models m WHERE {where}", values)


def _joined(conditions: Sequence[Condition]) -> tuple[str, list[object]]:
    where = " AND ".join(c.sql for c in conditions) or "TRUE"
    return where, [v for c in conditions for v in c.values]


def select_labels(session: Session, keys: Sequence[int]) -> dict[int, ModelLabel]:
    """What is known of the training of the models with these keys; those that are there."""
    listed = ", ".join(str(int(key)) for key in keys)
    if not listed:
        return {}
    sql = f"SELECT key, dataset, author, run, {GUESSED} FROM models WHERE key IN ({listed})"
    return {int(key): ModelLabel(*label) for key, *label in session.execute(sql)}


def insert_rows(
    session: Session,
    table: str,
    rows: Sequence[Mapping[str, Any]],
    columns: str = "*",
    values: list[Any] | None = None,
) -> None:
    """Append rows, by column, to a table; `columns` is the SQL that selects from them."""
    import pyarrow as pa

    if not rows:
        return
    schema = session.arrow(f"FROM {table} LIMIT 0").schema
    with session.registered("new_rows", pa.Table.from_pylist(list(rows), schema=schema)):
        session.execute(f"INSERT INTO {table} BY NAME SELECT {columns} FROM new_rows", values)


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """What a model's row says of its outcome, without key and time."""
    return {name: getattr(outcome.model, name) for name in RECORD_COLUMNS} | {
        "status": outcome.status,
        "code": getattr(outcome, "code", None),
        "reason": getattr(outcome, "reason", None),
        "bytes_read": outcome.bytes_read,
        "seconds": outcome.seconds,
    }


def keep_labels(session: Session, key: int, model: ModelRecord) -> ModelRecord:
    """The record with its labels from an earlier labels file, unless it has new ones."""
    if model.label_source == "labels":
        return model
    row = session.execute(
        f"SELECT {', '.join(LABELS)} FROM models WHERE key = ? AND label_source = 'labels'", [key]
    )
    return replace(model, **dict(zip(LABELS, row[0], strict=True))) if row else model


def update_models(session: Session, rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    """Bring columns of models up to date, by key columns; rows of no model are passed over."""
    import pyarrow as pa

    if not rows:
        return
    schema = session.arrow(f"SELECT {', '.join(rows[0])} FROM models LIMIT 0").schema
    changing = [name for name in rows[0] if name not in key]
    same = " AND ".join(f"models.{name} = n.{name}" for name in key)
    differ = " OR ".join(f"models.{name} IS DISTINCT FROM n.{name}" for name in changing)
    with session.registered("new_values", pa.Table.from_pylist(list(rows), schema=schema)):
        session.execute(
            f"UPDATE models SET {', '.join(f'{name} = n.{name}' for name in changing)} "
            f"FROM new_values n WHERE {same} AND ({differ})"
        )


def new_keys(session: Session, n: int) -> list[int]:
    """Keys that no model has had; rising."""
    return sorted(session.column(f"SELECT nextval('model_keys') FROM range({int(n)})"))


def select_abbreviated(session: Session, text: str, base: str | None, most: int) -> list[str]:
    """The ids that a text begins or ends, or whose name behind the owner it begins; not all, and
    none of the Hub for a text with a slash."""
    return session.column(
        "SELECT DISTINCT id FROM models WHERE ($2 IS NULL OR base = $2) AND (starts_with(id, $1) "
        "OR ends_with(id, $1) OR contains(id, '/' || $1)) "
        "AND (NOT contains($1, '/') OR source IS DISTINCT FROM 'hub') "
        f"ORDER BY id LIMIT {most}",
        [text, base],
    )
