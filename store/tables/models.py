"""The table `models`: one row per model, indexed or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, get_args

from ...errors import NOWHERE, REASONS, StoreError
from ...records import Indexed, ModelRecord, Outcome, Refused, Slot
from ..session import NOW, Session
from .filters import Condition
from .recipes import tables

RECORD_COLUMNS = tuple(f.name for f in fields(ModelRecord))
_ROW_COLUMNS = ("key", "status", "code", "reason", "bytes_read", "seconds")
GUESSED = "coalesce(label_source = 'name', FALSE) AS is_guessed"
_LABELS = ("dataset", "dataset_raw", "label_source", "author", "run")
_FIRST = ("status", "code", "reason", "dataset", "author", "run")
_LAST = ("bytes_read", "seconds", "indexed_at", "recipes")

MOST_ALIKE = 1_000
"""Names that are compared with a wrong one, of a large catalog."""

SortColumn = Literal["id", "dataset", "author", "downloads", "indexed_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A row of the table, and the recipes that the model has vectors of."""

    key: int
    record: ModelRecord
    status: str
    code: str | None
    reason: str | None
    bytes_read: int
    seconds: float
    indexed_at: str
    recipes: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def base(self) -> str:
        return self.record.base

    @property
    def dataset(self) -> str | None:
        return self.record.dataset

    @property
    def author(self) -> str | None:
        return self.record.author

    @property
    def run(self) -> str | None:
        return self.record.run

    def labelled(self, dataset: str | None, author: str | None, run: str | None) -> ModelRow:
        """The row with these labels, as from a labels file; a None leaves what there is, and the
        dataset "" takes the dataset away."""
        record = replace(
            self.record,
            dataset=self.dataset if dataset is None else dataset or None,
            dataset_raw=dataset or self.record.dataset_raw,
            label_source="labels",
            author=author or self.author,
            run=run or self.run,
        )
        return replace(self, record=record)

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The keys of `to_json`."""
        record = (name for name in RECORD_COLUMNS if name not in ("id", *_FIRST))
        return ("model", *_FIRST, *record, *_LAST)

    def to_json(self) -> dict[str, Any]:
        """The documented keys of `ls`, then everything else."""
        values = {name: getattr(self.record, name) for name in RECORD_COLUMNS}
        values |= {name: getattr(self, name) for name in (*_FIRST, *_LAST)}
        values |= {"model": self.id, "notes": list(self.record.notes), "recipes": [*self.recipes]}
        return {name: values[name] for name in self.columns()}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a second run compares with a model's files, to skip it if nothing changed."""

    status: str
    code: str | None
    reason: str | None
    signature: str
    source: str
    bytes_total: int
    verified: str | None
    content_sha256: str | None
    dataset: str | None
    dataset_raw: str | None
    label_source: str | None
    recipes: tuple[str, ...]
    indexed_at: str = ""

    @classmethod
    def of_row(cls, row: Mapping[str, Any], recipes: Sequence[str], indexed_at: str = "") -> Known:
        """What a row with `KNOWN_COLUMNS` says of a model."""
        values = {name: row[name] for name in KNOWN_COLUMNS}
        return cls(**values, recipes=tuple(recipes), indexed_at=indexed_at)

    @classmethod
    def of_outcome(cls, outcome: Outcome, indexed_at: str) -> Known:
        """What the catalog says of a model whose outcome was recorded at a time."""
        fingerprints = outcome.fingerprints if isinstance(outcome, Indexed) else ()
        return cls.of_row(outcome_row(outcome), [f.recipe.id for f in fingerprints], indexed_at)

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


KNOWN_COLUMNS = tuple(f.name for f in fields(Known) if f.name not in ("recipes", "indexed_at"))
"""Fields of `Known` that are columns of models."""


def may_record(outcome: Outcome, known: Known | None) -> bool:
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
    columns = ", ".join(f"m.{name}" for name in (*RECORD_COLUMNS, *_ROW_COLUMNS))
    order = page.sql if page is not None else " ORDER BY m.base, m.id"
    rows = session.execute(
        f"SELECT {columns}, strftime(m.indexed_at, '%Y-%m-%dT%H:%M:%SZ') FROM models m "
        f"WHERE {where}{order}",
        values,
    )
    n_fields, names = len(RECORD_COLUMNS), (*_ROW_COLUMNS, "indexed_at")
    listed = [(row[:n_fields], dict(zip(names, row[n_fields:], strict=True))) for row in rows]
    recipes = _recipes_by_key(session, [values["key"] for _, values in listed])
    return [
        ModelRow(record=model_record(record), recipes=recipes.get(values["key"], ()), **values)
        for record, values in listed
    ]


def model_record(values: Sequence[Any]) -> ModelRecord:
    """The record whose fields a row has, in their order."""
    row = dict(zip(RECORD_COLUMNS, values, strict=True))
    return ModelRecord(**{**row, "notes": tuple(row["notes"] or ())})


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


def _recipes_by_key(session: Session, keys: list[int]) -> dict[int, tuple[str, ...]]:
    recipes: dict[int, tuple[str, ...]] = {}
    for recipe, table in tables(session):
        keys_there = session.column(
            f"SELECT model FROM {table} WHERE model IN (SELECT unnest(?::BIGINT[]))", [keys]
        )
        for key in keys_there:
            recipes[key] = (*recipes.get(key, ()), recipe)
    return recipes


def select_labels(session: Session, keys: Sequence[int]) -> dict[int, ModelLabel]:
    """What is known of the training of the models with these keys; those that are there."""
    listed = ", ".join(str(int(key)) for key in keys)
    if not listed:
        return {}
    sql = f"SELECT key, dataset, author, run, {GUESSED} FROM models WHERE key IN ({listed})"
    return {int(key): ModelLabel(*label) for key, *label in session.execute(sql)}


def select_stored(session: Session, id: str, base: str | None) -> list[Stored]:
    """The indexed models of that id, at most one per family."""
    rows = session.execute(
        "SELECT key, base, kind, dataset FROM models "
        "WHERE id = ? AND status = 'indexed' AND (base = ? OR ? IS NULL)",
        [id, base, base],
    )
    return [Stored(key, id, *rest) for key, *rest in rows]


def insert_models(
    session: Session, outcomes: Sequence[tuple[int, Outcome]], at: str | None = None
) -> None:
    """Write one row for each model, under its key; `at` is when they were read, None for now."""
    rows = [{"key": key, **outcome_row(outcome)} for key, outcome in outcomes]
    read_at = f"* REPLACE (coalesce(?::TIMESTAMP, {NOW}) AS indexed_at)"
    insert_rows(session, "models", rows, read_at, [at])


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
        f"SELECT {', '.join(_LABELS)} FROM models WHERE key = ? AND label_source = 'labels'", [key]
    )
    return replace(model, **dict(zip(_LABELS, row[0], strict=True))) if row else model


def relabel_models(session: Session, base: str, records: Sequence[ModelRecord]) -> None:
    """Bring labels, authors and runs up to date; models without a row are passed over."""
    rows = [{name: getattr(record, name) for name in ("id", *_LABELS)} for record in records]
    update_models(session, [{"base": base, **row} for row in rows], ("base", "id"))


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


def settle_copies(session: Session, base: str) -> None:
    """Make the models of a family that have the same weight files copies of the oldest of them, of
    the first id where their age is unknown: whichever was read first."""
    session.execute(
        "WITH originals AS ("
        "  SELECT content_sha256, arg_min(id, (coalesce(created_at, '~'), id)) AS original "
        "  FROM models WHERE base = $1 AND status = 'indexed' AND content_sha256 IS NOT NULL "
        "  GROUP BY content_sha256"
        "), settled AS ("
        "  SELECT key, CASE WHEN original <> id THEN original END AS twin FROM models "
        "  LEFT JOIN originals USING (content_sha256) WHERE base = $1 AND status = 'indexed'"
        ") UPDATE models SET duplicate_of = twin FROM settled "
        "WHERE models.key = settled.key AND duplicate_of IS DISTINCT FROM twin",
        [base],
    )


def new_keys(session: Session, n: int) -> list[int]:
    """Keys that no model has had; rising."""
    return sorted(session.column(f"SELECT nextval('model_keys') FROM range({int(n)})"))


def require_model(session: Session, key: int) -> None:
    """Refuse a key that no model has; raises `StoreError` if the model was removed or
    re-indexed."""
    if not session.execute("SELECT 1 FROM models WHERE key = ?", [key]):
        raise StoreError("the model was removed or re-indexed during this call")


def describe_slots(session: Session, key: int) -> list[dict[str, Any]]:
    """What a model changed in each matrix, in slot order, ready for JSON; without NumPy, whose
    import takes as long as `show`."""
    measured = "fro_norm, relative_norm, sigma, energy, stable_rank, noise_floor, zero_share"
    rows = session.execute(
        f"SELECT stack, layer, role, rows, columns, {measured} FROM slot_statistics "
        "WHERE model = ?",
        [key],
    )
    names = measured.split(", ")
    return [
        {"slot": str(slot), "shape": list(values[:2])} | dict(zip(names, values[2:], strict=True))
        for slot, values in sorted((Slot(*row[:3]), row[3:]) for row in rows)
    ]


def group_failures(rows: Sequence[ModelRow]) -> list[dict[str, Any]]:
    """Refused models by reason code, the most frequent first."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        code = row.code or "internal"
        meaning = REASONS[code].meaning if code in REASONS else ""
        empty = {"code": code, "status": row.status, "meaning": meaning, "models": []}
        group = groups.setdefault(code, empty)
        reason = (row.reason or "").removeprefix(f"{row.id}: ")
        names = {"model": row.id, "base": row.base, "base_raw": row.record.base_raw}
        group["models"].append(names | {"reason": reason, "source": row.record.source})
    return sorted(groups.values(), key=lambda g: (-len(g["models"]), g["code"]))


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


def select_alike(session: Session, column: str, text: str, base: str | None = None) -> list[str]:
    """Different values of a column, those first that are most like a text, of a large catalog not
    all."""
    return session.column(
        f"SELECT DISTINCT {column} AS value, contains(lower(value), lower($1)) AS holds, "
        "greatest(jaro_winkler_similarity(lower(value), lower($1)), jaro_winkler_similarity("
        "lower(split_part(value, '/', -1)), lower(split_part($1, '/', -1)))) AS likeness "
        "FROM models WHERE value IS NOT NULL AND ($2 IS NULL OR base = $2) "
        f"ORDER BY holds DESC, likeness DESC, value LIMIT {MOST_ALIKE}",
        [text, base],
    )
