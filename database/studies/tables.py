"""What the calls of studies return: documents that are also tables, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import Document, Row, Table, html_table

if TYPE_CHECKING:
    from ...study.pictures import Picture, Width


class ProfileTable(Table):
    """Profiles of models, a row for each; `failed` lists models that have none."""

    columns = ("model", "base", "known")
    _key = "profiles"


class Study(Table):
    """A study's report, and the picture of it."""

    def __init__(self, document: Document, title: str, draw: Callable[[Width], Picture]) -> None:
        super().__init__(document)
        self._title, self._draw = title, draw

    def save_picture(self, path: str | Path, *, width: Width = "full") -> Path:
        """Draw the report into a .png, .svg or .html file; a page has a table of values, too.

        Args:
            width: `full` is 180 mm, `column` 85 mm; text has the same size on both.

        Raises:
            StudyError: another ending, or the file cannot be written.
        """
        from ...study.pictures import save_picture

        target = Path(path)
        table = html_table(*self._cells(self._page_rows())) if target.suffix == ".html" else ""
        save_picture(lambda: self._draw(width), target, title=self._title, table=table)
        return target

    def _page_rows(self) -> Sequence[Row]:
        """The rows of the table below the picture in a page."""
        return self._rows()


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


class CkaStudy(Study):
    """CKA by layer: `layer`, `against_layer`, `debiased` with `standard_error`, `cka` (biased)."""

    columns = ("layer", "against_layer", "debiased", "standard_error", "cka")
    _key = "layers"


class LogitLensStudy(Study):
    """What each layer would predict with the model's own head, a row for each layer.

    `agreement` (share of tokens whose top token is the last layer's), `bits_per_token`,
    `bits_per_character`, `kl` (bits), `decided` (share of tokens that no later layer changes).
    """

    columns = ("layer", "agreement", "bits_per_token", "bits_per_character", "kl", "decided")
    _key = "layers"


class LayerStudy(Study):
    """What tells layers apart: a row for the layer classifier and for every control of it."""

    columns = ("title", "accuracy", "standard_error", "converged")
    _key = "controls"
