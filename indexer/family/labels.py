"""A labels file: a user's own word on which model was trained on what, by whom, in which run."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import SourceError
from ...records import ModelRecord
from ..words import shown
from .paths import resolved
from .text_file import read_text_file


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One line: None where the column is absent, "" where it says unknown."""

    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class Labels:
    """Rows by model id and by the folder that the id means beside the file."""

    by_id: Mapping[str, LabelRow]
    by_folder: Mapping[Path, LabelRow]

    def apply(self, record: ModelRecord, folder: Path | None) -> ModelRecord:
        """The record with whatever the file says of it; the file overrides other sources."""
        row = self.by_folder.get(folder) if folder else None
        row = row or self.by_id.get(record.id)
        if row is None:
            return record
        if row.dataset is not None:
            record = replace(
                record,
                dataset=row.dataset or None,
                dataset_raw=row.dataset or record.dataset_raw,
            )
        return replace(
            record,
            label_source="labels",
            author=row.author or record.author,
            run=row.run or record.run,
        )


NO_LABELS = Labels({}, {})


def read_labels(path: Path) -> Labels:
    """The labels in a CSV with a `model` column and any of `dataset`, `author`, `run`.

    Raises:
        SourceError: unreadable file, no `model` column, or one model with two labels.
    """
    by_id: dict[str, LabelRow] = {}
    by_folder: dict[Path, LabelRow] = {}
    try:
        reader = csv.DictReader(io.StringIO(read_text_file(path, "a labels file"), newline=""))
        if "model" not in (reader.fieldnames or ()):
            raise SourceError(
                f"{path}: no column 'model'; a labels file has model,dataset,author,run"
            )
        for row in reader:
            model = (row.get("model") or "").strip().rstrip("/")
            if not model:
                continue
            label = LabelRow(*(_cell(row, c) for c in ("dataset", "author", "run")))
            if by_id.setdefault(model, label) != label:
                line = f"{path}, line {reader.line_num}: {shown(model)} has two labels"
                raise SourceError(line)
            if (folder := resolved(path.parent / model)) is not None:
                by_folder[folder] = label
    except csv.Error as err:
        raise SourceError(f"{path}: cannot be read as a labels file: {err}") from err
    return Labels(by_id, by_folder)


def _cell(row: Mapping[str, str | None], column: str) -> str | None:
    value = row.get(column)
    return None if value is None else value.strip()
