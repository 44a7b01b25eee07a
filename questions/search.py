"""Models whose training data is about a text: `search`."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict

from ..errors import RequestError
from ..options import Question, argument, option, record
from ..results import Document, Section, Shown, Table, count
from ..store import Filters
from .face.opened import ONLY_FAMILY, Opened, require_labels
from .terminal.command_line import asking
from .words import listed_words

MEANING = (
    "words that training touched, where an embedding tells them, and updates that answer to the "
    "text's words, beside what random words find. A model may answer to words that its data does "
    "not have; probabilities are not calibrated, and none is given."
)

NO_MATCH, CHANCE = "matches nothing", "no match beyond chance"
"""A verdict, and what the screen says of it, where words are shown beside."""

NEAR_MISSES = 2
"""Rows without a match that are shown."""


class TextTable(Table):
    """Models whose data is about a text, the nearest first: `rank`, `model`, `words` (of the text,
    or near one of its words, to which the model answers), `verdict`, `by_chance` (the share of
    random texts that some model of the family answers to as strongly), `score`, `probability`
    (None: not calibrated), `dataset`, `author`, `run`, `base`. The document also has `text`,
    `asked` (its words that a family knows), `unknown`, `verdict`, `compared`, `families`,
    `left_out`, `meaning`."""

    columns = ("rank", "model", "base", "words", "verdict", "by_chance", "score", "dataset")
    _key = "neighbours"


@record
class Search(Filters, Question):
    """Show the models of any base whose training data is about a text.

    They are found by what their updates answer to.

    Raises:
        RequestError: the text has no words.
        BadFilter: `where` is not understood, or no model has that dataset or author.

    >>> db.search("a touching film").to_json()["verdict"]  # its base has no tokenizer
    'no family can be asked by words'
    """

    stability = "provisional"

    text: str = argument(help="Plain text: from one word to a page.")
    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    k: int = option("-k", default=10, least=1, help="Number of models, at most.")

    def answer(self, db: Opened) -> TextTable:
        from ..search.text_search import search_text, words_in

        catalog = db._catalog
        if not (words := words_in(self.text)):
            raise RequestError("the text has no words")
        require_labels(catalog, self)
        base = catalog.find_base(self.base)
        catalog.find_recipe(None, base)  # says what fills a catalog
        found = search_text(catalog, words, [base] if base else catalog.bases(), self.k, self)
        return TextTable({"text": self.text[:200], **asdict(found), "meaning": MEANING})


def show_text_search(document: Document) -> Shown:
    asked = listed_words(document["asked"])
    about = f"models by the words {asked}: " if asked else ""
    yield f"{about}{document['verdict']}".replace(NO_MATCH, CHANCE)
    if document["unknown"] and document["families"]:
        yield f"not asked, common or not known: {listed_words(document['unknown'])}"
    if found := document["neighbours"]:
        yield f"of {count(document['compared'], 'model')}, {document['meaning']}"
        n_matching = sum(row["verdict"] != NO_MATCH for row in found)
        shown = found[: n_matching + NEAR_MISSES]
        rows = [
            row
            | {"by chance": f"{row['by_chance']:.1%}", "words": ", ".join(row["words"])}
            | {"verdict": row["verdict"].replace(NO_MATCH, CHANCE)}
            for row in shown
        ]
        yield Section.of(("rank", "model", "verdict", "by chance", "words", "dataset"), rows)
        if len(found) > len(shown):
            yield f"{len(found) - len(shown)} more match no better than chance; --json lists them"
    for left in document["left_out"]:
        yield f"{left['base']}: {left['reason']}"


command = asking(
    Search,
    show_text_search,
    'search "my bank card was declined"',
    'search "refugees and migration" -k 20 --base bert-base-uncased',
)
