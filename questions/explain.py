"""Which matrices carry the similarity of two models: `explain`."""

from __future__ import annotations

from ..options import argument, record
from ..results import Document, Shown, Table, count, percent
from .face.opened import Family, Opened
from .face.searches import Query, Searches
from .terminal.command_line import asking


class ExplanationTable(Table):
    """The slots that carry the similarity of two models, the largest contribution first."""

    columns = ("slot", "contribution", "share")
    _key = "slots"


@record
class Explain(Family):
    """Show which roles, layers and matrices carry the cosine of two models.

    Raises:
        RequestError: the recipe keeps no sketches of single slots.

    >>> db.explain("imdb-0", "imdb-1").to_json()["similarity"] > 0.5
    True
    """

    model: Query = argument(help="A model as `find_similar` takes it, but not a list or a vector.")
    other: str = argument(help="Id of another model.")

    def answer(self, db: Opened) -> ExplanationTable:
        from ..search import explain_pair

        base = db._catalog.find_base(self.base)
        start = Searches(db._catalog, base, self.recipe).from_any(self.model)
        return ExplanationTable(explain_pair(db._catalog, start, self.other, recipe=self.recipe))


def show_explanation(document: Document, *, rows: int = 8) -> Shown:
    yield f"{document['model']}: cosine {document['similarity']:.3f}, carried by"
    for title, name in (("role", "role"), ("layer", "layer"), ("feature", "block")):
        ranked = sorted(document[f"by_{name}"], key=lambda t: -t["contribution"])[:rows]
        shown = ", ".join(f"{t[name]} {percent(t['share'])}" for t in ranked)
        yield f"  {title:8}{shown}"
    slots = ", ".join(f"{s['slot']} {percent(s['share'])}" for s in document["slots"][:rows])
    yield f"  {'slot':8}{slots}"
    for key, whose in (("only_query", "the query"), ("only_model", "this model")):
        if document[key]:
            yield f"  {count(len(document[key]), 'slot')} changed only by {whose}"


command = asking(Explain, show_explanation, "explain someone/bert-imdb someone/bert-reviews")
