"""What the calls of studies return: documents that are also tables, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import Document, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ProfileTable(Table):
    """Profiles of models, a row for each; `failed` lists models that have none."""

    columns = ("model", "base", "known")
    _key = "profiles"


class Study(Table):
    """A study's report, and the picture of it."""

    def __init__(self, document: Document, title: str, draw: Callable[[], Figure]) -> None:
        super().__init__(document)
        self._title, self._draw = title, draw

    def save_picture(self, path: str | Path) -> Path:
        """Draw the report into a .png, .svg or .html file.

        Raises:
            StudyError: another ending, or the file cannot be written.
        """
        from ...study.pictures import save_picture

        save_picture(self._draw, Path(path), title=self._title)
        return Path(path)


class RankStudy(Study):
    """Ranks of an update, a row for each slot; the document has curves by role and depth."""

    _key = "slots"


class ComponentStudy(Study):
    """What hidden states are made of: `stack`, `layer`, and the importance of each term, 0…1."""

    def _rows(self) -> Sequence[Row]:
        return [
            {"stack": name, "layer": layer, **dict(zip(stack["terms"], importance, strict=True))}
            for name, stack in self._document["stacks"].items()
            for layer, importance in zip(stack["layers"], stack["importance"], strict=True)
        ]


class GeometryStudy(Study):
    """The shape of hidden states, a row for each group of texts."""

    columns = ("group", "tokens")
    _key = "groups"


class LayerStudy(Study):
    """What tells layers apart: a row for the layer classifier and for every control of it."""

    columns = ("title", "accuracy", "standard_error", "converged")
    _key = "controls"


class AblationStudy(Study):
    """What subsets of terms predict: a row for each measure and subset."""

    columns = ("measure", "subset", "value", "sd", "low", "high", "difference", "items")

    def _rows(self) -> Sequence[Row]:
        return [
            {"measure": measure["key"], "score": measure["score"], "items": measure["n_items"]}
            | {key: value for key, value in score.items() if key != "terms"}
            for measure in self._document["measures"]
            for score in measure["subsets"]
        ]
