"""Which models were trained from which: `lineage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...options import Place, Question, argument, option, record
from ...results import Table
from ...store import write_user_file
from ..face.opened import Opened, find_family
from ..terminal.command_line import Common, Drawing, command_with, open_database, print_document
from ..terminal.written import check_ending, is_table_file, save_table
from .screen import show_lineage

if TYPE_CHECKING:
    from ...figures import Width
    from ...store import Catalog


class LineageTable(Table):
    """The edges of a lineage, in order of child.

    A document also has `base`, `models`, `without_parent` (models that hang at the base), `level`
    (the probability below which they do), `claims` (`model`, `card`, `weights`, `says`, `note`),
    `not_compared` (`model`, `reason`) and `times`.
    """

    columns = ("child", "parent", "kind", "probability", "weight")
    _key = "edges"

    def save(self, path: Place, *, width: Width = "full") -> Path:
        """Draw the tree into a .svg, .png or .html file, write it for Graphviz (.dot), or its edges
        as a table (.csv, .md, .tex).

        Raises:
            RequestError: another ending, or there is no such folder.
            StoreFull: the file cannot be written.
        """
        from ...figures import save_picture
        from .picture import check_lineage_ending, draw_lineage, graphviz_lineage

        target, document = Path(path), self.to_json()
        if is_table_file(target):
            return save_table(self, target)
        check_lineage_ending(target)
        if target.suffix.lower() == ".dot":
            write_user_file(target, graphviz_lineage(document).encode("utf-8", "replace"))
            return target
        draw = partial(draw_lineage, document, width)
        return save_picture(draw, target, title=f"Lineage of {document['base']}")


@record
class Lineage(Question):
    """Show which models of a family were trained from which, by weights and times.

    Every edge has a probability; a model of which none is likely enough hangs at the base. Cards
    are no evidence: what they say is shown beside it.

    Returns:
        A row for each edge: `parent` (the base, where no indexed model is likely enough), `child`,
        `probability`, `kind` (`fine-tune`, `duplicate`, `quantised`, `merge`), `weight` (of a
        parent of a merge), `explained` (share of the child's update) and `cosine`; `touched`,
        `missing` and `kept` (tokens of the parent's training, those that the child lacks, and those
        that moved as far in it); `words` (of the child's training data). The document also has
        `claims`: what cards say beside it.

    Raises:
        UnknownRecipe: the recipe keeps no linear sketches.

    >>> [(row["child"], row["kind"]) for row in db.lineage()][0]
    ('imdb-0', 'fine-tune')
    """

    stability = "provisional"

    base: str | None = argument(
        default=None, metavar="[BASE]", help="The family, where the catalog has several."
    )
    _: KW_ONLY
    recipe: str | None = option(
        default=None, shown_default="sketch", help="Name or id of a recipe."
    )

    def answer(self, db: Opened) -> LineageTable:
        from ...provenance import trace_lineage

        catalog = db._catalog
        base = find_family(catalog, self.base)

        def answer() -> dict[str, Any]:
            document = trace_lineage(catalog, base, self.recipe)
            return document | {"edges": _with_words(catalog, base, document["edges"])}

        return LineageTable(catalog.look(answer))


def _with_words(
    catalog: Catalog, base: str, edges: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    from ...search.word_names import WordNames

    view = catalog.family(base, catalog.find_recipe(None, base))
    words = WordNames.of(catalog, view).of_models([edge["child"] for edge in edges])
    return [{**edge, "words": words.get(edge["child"], [])} for edge in edges]


@command_with(
    Lineage,
    Drawing,
    examples=(
        "lineage bert-base-uncased",
        "lineage bert-base-uncased -o tree.svg",
        "lineage --json",
    ),
)
def command(common: Common, asked: Lineage, drawing: Drawing) -> None:
    if drawing.output is not None:
        from .picture import check_lineage_ending

        check_ending(drawing.output, check_lineage_ending)
    with open_database(common) as db:
        table = asked.answer(db)
    document = table.to_json()
    if drawing.output is not None:
        document["picture"] = str(table.save(drawing.output, width=drawing.width))
    print_document(document, partial(show_lineage, everything=drawing.everything), common)
