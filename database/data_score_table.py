"""Data sets and models with the z of each pair, as a table, a CSV file or a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError
from ..store import write_user_file
from .tables import Document, Row, Table

if TYPE_CHECKING:
    from ..pictures import DataScores, Width

ENDINGS = (".csv", ".png", ".svg", ".html")


class DataScoresTable(Table):
    """Several data sets, a row each, with the nearest model.

    A document also has `models` (the columns of every row's `z`), `compared`, `calibration`,
    `failed` (data sets that could not be read, with the reason) and `meaning`.
    """

    columns = ("data", "examples", "loss", "verdict", "nearest", "z", "fdr", "control")

    def _rows(self) -> Sequence[Row]:
        return [_row(entry) for entry in self._document["data"]]

    @property
    def failed(self) -> list[Row]:
        """`data` and `reason` of each data set that could not be read."""
        return list(self._document["failed"])

    def save(self, path: str | Path, *, width: Width = "full") -> Path:
        """Write every z as CSV, or the highest of them as a picture; the ending decides.

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        target = Path(path)
        check_scores_ending(target)
        if target.suffix.lower() == ".csv":
            write_user_file(target, self._csv().encode())
            return target
        from ..pictures import draw_data_scores, save_picture

        scores = _drawn(self._document)
        draw = partial(draw_data_scores, scores, width)
        return save_picture(draw, target, title=f"Data sets and fine-tunes of {scores.base}")

    def _csv(self) -> str:
        """A line for each data set, a column for each model."""
        text = io.StringIO(newline="")
        lines = [[entry["data"], *entry["z"]] for entry in self._document["data"]]
        csv.writer(text, lineterminator="\n").writerows(
            [["data", *self._document["models"]], *lines]
        )
        return text.getvalue()


def _row(entry: Document) -> Row:
    nearest = entry["nearest"][0] if entry["nearest"] else {}
    return {
        **{name: entry[name] for name in ("data", "examples", "loss", "verdict")},
        "nearest": nearest.get("model"),
        "z": nearest.get("z"),
        "fdr": nearest.get("fdr"),
        "control": entry["control"] and entry["control"]["z"],
    }


def _drawn(document: Document) -> DataScores:
    """What a picture shows of the document.

    Raises:
        RequestError: no model passes the filters.
    """
    import numpy as np

    from ..pictures import DataScores

    models, rows = document["models"], document["data"]
    if not models:
        raise RequestError("nothing to draw: no model passes the filters")
    column = {model: place for place, model in enumerate(models)}
    standing = np.zeros((len(rows), len(models)), dtype=np.bool_)
    for place, entry in enumerate(rows):
        for near in entry["nearest"]:
            standing[place, column[near["model"]]] = near["verdict"] != "no model stands out"
    return DataScores(
        base=document["base"],
        data=tuple(entry["data"] for entry in rows),
        models=tuple(models),
        z=np.array([entry["z"] for entry in rows], dtype=np.float64),
        standing=standing,
    )


def check_scores_ending(target: Path) -> None:
    """Refuse a file name before any work is done for it.

    Raises:
        RequestError: neither a table's nor a picture's ending.
    """
    if target.suffix.lower() not in ENDINGS:
        raise RequestError(f"{target}: the name ends in one of {', '.join(ENDINGS)}")
