"""Which models were trained from which: `lineage`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OFFERED
from ...options import Place, Question, argument, option, record
from ...results import Descent, Row, Shown, Table, count
from ...store import write_user_file
from ..face.opened import Opened, find_family
from ..terminal.command_line import Common, Drawing, command_with, open_database, print_document
from ..terminal.written import check_ending, is_table_file, save_table

if TYPE_CHECKING:
    from ...figures import Width

MOST_LINES = 100
"""Models up to which a tree is shown whole."""

SHOWN_OF_EACH = 6
"""Models below one, of a larger tree: those that have most below themselves; and those that stand
alone, of which nothing else is said, up to which each has a line."""

DEEPEST = 60
"""Models in a line up to which a tree is shown."""

CLAIMS_SHOWN = 20

WHOLE = 0.99
"""Sum of a merge's weights from which nothing is left for the base."""

MARKS = {"duplicate": "copy", "quantised": "rounded copy", "merge": "merge", "fine-tune": ""}


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
        from ...search.responses import WordNames

        catalog = db._catalog
        base = find_family(catalog, self.base)

        def answer() -> dict[str, Any]:
            document = trace_lineage(catalog, base, self.recipe)
            view = catalog.family(base, catalog.find_recipe(None, base))
            edges = document["edges"]
            words = WordNames.of(catalog, view).of_models([edge["child"] for edge in edges])
            named = [{**edge, "words": words.get(edge["child"], [])} for edge in edges]
            return document | {"edges": named}

        return LineageTable(catalog.look(answer))


def show_lineage(document: Mapping[str, Any], *, everything: bool = False) -> Shown:
    """The tree as text, folded where it is large, then what cards say otherwise, then what was not
    compared."""
    left_out = [row for row in document["not_compared"] if row["reason"].startswith("not-read")]
    if n_unread := len(left_out) + len(partly := document.get("partly_read", [])):
        yield f"{count(n_unread, 'model')} not read, or in part: see below"
    yield from _tree(document, everything=everything)
    yield (
        f"{count(document['models'], 'model')}; {document['without_parent']} without a known "
        f"parent (no edge with a probability of {document['level']:g} or more)"
    )
    if document["times"]["future"]:
        yield f"{count(document['times']['future'], 'time')} in the future ignored"
    notes = [f"{row['model']}: {row['note']}" for row in document["claims"] if row["note"]]
    notes += [f"{row['model']}: not compared: {row['reason']}" for row in document["not_compared"]]
    notes += [f"{row['model']} {row['note']}" for row in partly]
    yield from notes if everything else notes[:CLAIMS_SHOWN]
    if not everything and len(notes) > CLAIMS_SHOWN:
        yield f"… and {len(notes) - CLAIMS_SHOWN} more; --all shows them"
    if "picture" in document:
        yield f"picture: {document['picture']}"


def _tree(document: Mapping[str, Any], *, everything: bool) -> Iterator[str]:
    tree = Descent.of(document)
    most = None if everything or document["models"] <= MOST_LINES else SHOWN_OF_EACH

    def shown(name: str, level: int) -> list[Row | str]:
        edges, alone = tree.below(name), []
        if name == document["base"] and not everything:
            single = [edge for edge in edges if tree.sizes[edge["child"]] == 1]
            alone = [e["child"] for e in single if not (MARKS[e["kind"]] or e["words"])]
        if len(alone) > SHOWN_OF_EACH:
            edges = [edge for edge in edges if edge["child"] not in alone]
        rows: list[Row | str] = [*edges[:most]] if level < DEEPEST else []
        n_left = sum(tree.sizes[edge["child"]] for edge in edges[len(rows) :])
        rows += [f"… and {count(n_left, 'more model')}"] if n_left else []
        if len(alone) > SHOWN_OF_EACH:
            few = ", ".join(alone[:OFFERED])
            rows.append(f"{len(alone)} models alone: {few}, …; --all shows them")
        return rows

    yield document["base"]
    for (*lasts, is_last), row in tree.walk(document["base"], shown):
        branch = "".join("    " if last else "│   " for last in lasts)
        branch += "└── " if is_last else "├── "
        if not isinstance(row, str):
            row = _line(row, tree.others.get(row["child"], ()), document["base"])
        yield branch + row


def _line(edge: Mapping[str, Any], others: Sequence[Mapping[str, Any]], base: str) -> str:
    words = [MARKS[edge["kind"]]] if MARKS[edge["kind"]] else []
    if edge["weight"] is not None:
        words[-1] = f"merge, weight {edge['weight']:.2f}"
        words += [f"with {other['parent']} {other['weight']:.2f}" for other in others]
        if sum(row["weight"] for row in (edge, *others)) < WHOLE:
            words.append("the rest of the base's weights")
    if edge["parent"] != base:
        words.append(f"p {edge['probability']:.2f}")
    if edge["words"]:
        words.append(f"words: {', '.join(edge['words'])}")
    return "  ".join([edge["child"], *([", ".join(words)] if words else [])])


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
