"""A labels file: a user's table of each model's dataset, author and training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import SourceError, nearest_names
from ...records import ModelRecord
from ...tables import TextFile, errors_as, open_named_csv
from ..untrusted_text import shown
from .member import Member
from .paths import read_text_file, resolved

COLUMNS = ("model", "dataset", "author", "run")

UNMATCHED_SHOWN = 3
"""Rows that are named in the message; the JSON document has all."""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A line: None where the column is absent, "" where the cell is empty."""

    model: str
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMatches:
    """Which rows of a labels file name a model of the family.

    Attributes:
        unmatched: What the other rows name, in order.
        nearest: The most similar model of each of the first unmatched names, if any.
    """

    path: Path
    rows: int
    unmatched: tuple[str, ...]
    nearest: Mapping[str, str]

    @property
    def matched(self) -> int:
        return self.rows - len(self.unmatched)

    def __str__(self) -> str:
        """`labels.csv: 52 rows, 31 matched; 21 name no model here, nearest …`."""
        line = f"{self.path.name}: {self.rows} rows, {self.matched} matched"
        if not self.unmatched:
            return line
        names = [
            f"{shown(name)} → {shown(self.nearest[name])}" if name in self.nearest else shown(name)
            for name in self.unmatched[:UNMATCHED_SHOWN]
        ]
        listed = ", ".join(names) + (", …" if len(self.unmatched) > UNMATCHED_SHOWN else "")
        how = "nearest: " if self.nearest else ""
        return f"{line}; {len(self.unmatched)} name no model here, {how}{listed}"

    def to_json(self) -> dict[str, object]:
        """Counts, and every row without a model."""
        return {"rows": self.rows, "matched": self.matched, "unmatched": list(self.unmatched)}


@dataclass(frozen=True, slots=True)
class Labels:
    """Rows by model id and by the folder that the id means beside the file."""

    path: Path
    by_id: Mapping[str, LabelRow]
    by_folder: Mapping[Path, LabelRow]

    def row_of(self, record: ModelRecord, folder: Path | None) -> LabelRow | None:
        """The row of a model; a path beside the file comes before an equal id."""
        row = self.by_folder.get(folder) if folder else None
        return row or self.by_id.get(record.id)

    def apply(self, record: ModelRecord, folder: Path | None) -> ModelRecord:
        """The record with its row's labels, which override other sources."""
        row = self.row_of(record, folder)
        if row is None:
            return record
        if row.dataset is not None:
            record = replace(
                record, dataset=row.dataset or None, dataset_raw=row.dataset or record.dataset_raw
            )
        return replace(
            record,
            label_source="labels",
            author=row.author or record.author,
            run=row.run or record.run,
        )

    def match(self, members: Sequence[Member]) -> LabelMatches:
        """Which rows name a member.

        Raises:
            SourceError: none does, though there are rows.
        """
        rows = (self.row_of(member.record, member.folder) for member in members)
        matched = {row.model for row in rows if row is not None}
        unmatched = tuple(name for name in self.by_id if name not in matched)
        ids = [member.record.id for member in members]
        matches = LabelMatches(
            path=self.path,
            rows=len(self.by_id),
            unmatched=unmatched,
            nearest=_nearest(unmatched[:UNMATCHED_SHOWN], ids),
        )
        if unmatched and not matched:
            listed = ", ".join(shown(id) for id in ids[:UNMATCHED_SHOWN])
            more = ", …" if len(ids) > UNMATCHED_SHOWN else ""
            raise SourceError(
                f"{matches}; a row's model is an id or a path beside the file; the models here "
                f"are: {listed}{more}"
            )
        return matches


def read_labels(path: Path) -> Labels:
    """The labels in a table with a `model` column and any of `dataset`, `author`, `run`.

    Columns are separated by commas, semicolons or tabs, as the first line shows.

    Raises:
        SourceError: unreadable file, no `model` column, or one model with two labels.
    """
    by_id: dict[str, LabelRow] = {}
    by_folder: dict[Path, LabelRow] = {}
    content = read_text_file(path, "a labels file").encode()
    with errors_as(SourceError):
        file = TextFile(path, content=content)
        table = open_named_csv(file, ("model",), is_ragged=True, is_quoted=False)
        for number, row in table.rows(COLUMNS):
            if isinstance(row, str):
                continue
            cells = {name: str(cell).strip() for name, cell in row.items() if cell is not None}
            model = cells.get("model", "").rstrip("/")
            if not model:
                continue
            label = LabelRow(model, *map(cells.get, COLUMNS[1:]))
            if by_id.setdefault(model, label) != label:
                raise SourceError(f"{path}, line {number}: its model has two labels")
            if (folder := resolved(path.parent / model)) is not None:
                by_folder[folder] = label
    return Labels(path, by_id, by_folder)


def _nearest(names: Sequence[str], ids: Sequence[str]) -> dict[str, str]:
    near = {name: nearest_names(name, ids) for name in names}
    return {name: ids[0] for name, ids in near.items() if ids}
