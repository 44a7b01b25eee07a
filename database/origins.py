"""Questions about where models come from."""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Place, Question, argument, option, record
from ..store import write_user_file
from .opened import find_family
from .tables import Table

if TYPE_CHECKING:
    from ..pictures import Width
    from .opened import Opened


@record
class Lineage(Question):
    """Who descends from whom inside a family, by weights and times.

    Returns:
        A row for each edge: `parent` (the base, where no indexed model is likely enough), `child`,
        `probability`, `kind` (`fine-tune`, `duplicate`, `quantised`, `merge`), `weight` (of a
        parent of a merge), `explained` (share of the child's update) and `cosine`. The document
        also has `claims`: what cards say beside it.

    Raises:
        UnknownRecipe: the recipe keeps no linear sketches.

    >>> {row["parent"] for row in db.lineage()} == {db.bases[0]}
    True
    """

    base: str | None = argument(
        default=None, metavar="[BASE]", help="The family, where the catalog has several."
    )
    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )

    def answer(self, db: Opened) -> LineageTable:
        from ..provenance import trace_lineage

        catalog = db._catalog
        base = find_family(catalog, self.base)
        return LineageTable(catalog.look(lambda: trace_lineage(catalog, base, self.recipe)))


def check_lineage_ending(path: Place) -> None:
    """Raises `RequestError` for a file name that no picture of a lineage can have."""
    from ..pictures import check_lineage_ending

    check_lineage_ending(Path(path))


class LineageTable(Table):
    """The edges of a lineage, in order of child.

    A document also has `base`, `models`, `without_parent` (models that hang at the base), `level`
    (the probability below which they do), `claims` (`model`, `card`, `weights`, `says`, `note`),
    `not_compared` (`model`, `reason`) and `times`.
    """

    columns = ("child", "parent", "kind", "probability", "weight")
    _key = "edges"

    def save(self, path: Place, *, width: Width = "full") -> Path:
        """Draw the tree into a .svg, .png or .html file, or write it for Graphviz (.dot).

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        from ..pictures import check_lineage_ending, draw_lineage, graphviz_lineage, save_picture

        target, document = Path(path), self.to_json()
        check_lineage_ending(target)
        if target.suffix.lower() == ".dot":
            write_user_file(target, graphviz_lineage(document).encode("utf-8", "replace"))
            return target
        draw = partial(draw_lineage, document, width)
        return save_picture(draw, target, title=f"Lineage of {document['base']}")
