"""The words that a model was trained on: `words`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EmptyCatalog, RequestError, UnknownModel
from ..options import Place, Question, argument, option, record
from ..records import Footprint
from ..results import Document, Shown, Table, count
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking

if TYPE_CHECKING:
    from ..search.words import Word
    from ..store import Catalog


NAMED = 6
"""Words of the first sentence."""

KINDS = {
    "frozen": "Its input embedding was not trained: it tells no words.",
    "dense": "Rows of its input embedding moved each its own way, also of tokens that it need not "
    "have seen: continued pretraining, or an optimizer that moves all rows. It tells no words.",
    "none": "It has no footprint: {note}.",
}

UNASKED = (
    "The words to which its update answers are not read: `deltadex index` reads them where it is "
    "given the base's folder, with a tokenizer, and the base is trained so far that words mean "
    "something to it."
)

WORDS_SHOWN = 60
"""Words on the screen; --json has all that were asked for."""


class WordTable(Table):
    """The words of a model's training data, the most telling first: `word`, `strength` (how far
    its token moved beside the model's others, 0…1). The document also has `model`, `base`, `kind`
    (`exact`, `tied`, `frozen`, `dense`, `none`), `touched` (tokens), `vocabulary` (rows), `share`
    (of the rows that were read), `note`, `sentence`, `answers_to` (words to which the model's
    update answers: `word`, `strength` in standard deviations), and with `against` the words of that
    model alone (`only_other`)."""

    columns = ("word", "strength")
    _key = "seen"


@record
class Words(Question):
    """Show the words that a model was trained on.

    A token that never occurs in training leaves its row of the input embedding as it was, so the
    rows that moved are the vocabulary of the training data. The embedding alone is read; nothing is
    run.

    Raises:
        RequestError: the family has no tokenizer, or one that does not fit.

    >>> db.words("imdb-0").to_json()["kind"]
    'frozen'
    """

    stability = "provisional"

    model: Place = argument(
        help="An id; a folder; a Hub id, of which the input embedding alone is read."
    )
    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    k: int = option("-k", default=200, least=1, help="Number of words, at most.")
    against: str | None = option(
        default=None, metavar="OTHER", help="Show the words of MODEL that OTHER did not see."
    )
    all: bool = option(
        default=False, help="Also show what looks like a personal name, a number or a secret."
    )

    def answer(self, db: Opened) -> WordTable:
        catalog = db._catalog
        base, model, footprint, kind = find_footprint(catalog, self.model, self.base)
        words = seen_words(catalog, base, model, footprint, private=self.all)
        document: dict[str, Any] = {
            "model": model,
            "base": base,
            "kind": footprint.kind,
            "touched": len(footprint.tokens),
            "vocabulary": footprint.vocabulary,
            "share": footprint.share,
            "note": footprint.note,
        }
        if self.against is not None:
            other_base, other, theirs, _ = self._other(catalog, base)
            known = seen_words(catalog, other_base, other, theirs, private=self.all)
            mine, other_words = ({word.text for word in some} for some in (words, known))
            words = [word for word in words if word.text not in other_words]
            document["against"] = other
            document["only_other"] = _rows([w for w in known if w.text not in mine][: self.k])
        from ..search.footprints import NO_TOKENIZER

        if not words and footprint.tokens.size and not catalog.footprints.family_tokenizer(base):
            document["note"] = NO_TOKENIZER.format(base=base)
        answers = answers_to(catalog, base, model, footprint, kind)
        document["answers_to"] = answers
        sentence = first_sentence(footprint, words, document)  # of all, whatever k
        document["answers_to"] = answers[: self.k]
        return WordTable({**document, "sentence": sentence, "seen": _rows(words[: self.k])})

    def _other(self, catalog: Catalog, base: str) -> Found:
        """The model of `against`: of the same family, or where it has none of that id, of any."""
        assert self.against is not None
        try:
            return find_footprint(catalog, self.against, self.base or base)
        except UnknownModel:
            return find_footprint(catalog, self.against, self.base)


def seen_words(
    catalog: Catalog, base: str, model: str, footprint: Footprint, *, private: bool = False
) -> list[Word]:
    """The words that a footprint names, the most telling first; `private`: also names and what has
    digits."""
    from ..search.footprints import FamilyFootprints

    if footprint.kind in KINDS:
        return []
    family = FamilyFootprints.read(catalog, base)
    if footprint.tokenizer is None and family.tokenizer is None:
        return []
    vocabulary = family.vocabulary(footprint)
    return family.words(footprint, vocabulary, model=model, private=private)


def words_of_model(catalog: Catalog, base: str, model: str) -> list[str]:
    """The words that `words` names first of a stored model; none where nothing tells them. NumPy is
    imported for those that have some."""
    if not catalog.tells_words(base, model):
        return []
    from ..search.word_names import surest_words

    row = catalog.model(model, base)
    footprint = catalog.footprints.of(row.key)
    assert footprint is not None
    try:
        seen = [word.text for word in seen_words(catalog, base, model, footprint)]
    except RequestError:  # of another tokenizer than is kept
        seen = []
    answers = [row["word"] for row in answers_to(catalog, base, model, footprint, row.kind)]
    return surest_words(seen, answers, NAMED)


def answers_to(
    catalog: Catalog, base: str, model: str, footprint: Footprint, kind: str
) -> list[dict[str, Any]]:
    """The words that a model's update answers to; empty where that is not known."""
    from ..search.responses import FamilyResponses

    def answer() -> list[tuple[str, float]]:
        view = catalog.family(base, catalog.find_recipe(None, base))
        found = FamilyResponses.of(catalog, view)
        if found is None:
            return []
        rows = view.rows([model])
        if len(rows):
            key = int(view.keys[rows[0]])
            return found.words(key) if found.has(key) else []
        fresh = found.of_fresh(footprint, kind)
        return [] if fresh is None else found.listed(fresh)

    if not catalog.footprints.lexicons(base):
        return []
    words = [(word, strength) for word, strength in catalog.look(answer) if strength > 0]
    return [{"word": word, "strength": round(strength, 3)} for word, strength in words]


Found = tuple[str, str, "Footprint", str]
"""Base, id, footprint and kind of a model."""


def find_footprint(catalog: Catalog, model: Place, spelling: str | None) -> Found:
    """That of a stored model, or of a folder or Hub id, which is read now."""
    base, name = catalog.find_base(spelling), str(model)
    try:
        row = catalog.model(name, base)
    except (UnknownModel, EmptyCatalog):
        from ..indexer import guess_base, is_model_path

        if not is_model_path(name):
            raise
        base = base or guess_base(catalog, name)
        footprint, kind = _read(catalog, name, base)
        return base, name, _kept(catalog, base, footprint), kind
    stored = catalog.footprints.of(row.key)
    if stored is None:
        why = (
            "it was indexed without; `deltadex index` reads the embeddings of a family's models"
            if row.status == "indexed"
            else f"it is not indexed ({row.code}: {row.reason}), and its input embedding was not "
            "read or names no words"
        )
        raise RequestError(f"{row.id} has no footprint: {why}")
    return row.base, row.id, stored, row.kind


def _read(catalog: Catalog, name: str, base: str) -> tuple[Footprint, str]:
    """A folder is read whole where the family knows what updates answer to."""
    from ..indexer import fingerprint_query, footprint_query

    if Path(name).is_dir() and catalog.footprints.lexicons(base):
        with suppress(RequestError):
            made = fingerprint_query(catalog, name, base, catalog.find_recipe(None, base))
            if made.footprint is not None:
                return made.footprint, made.model.kind
    return footprint_query(catalog, name, base), "full"


def _kept(catalog: Catalog, base: str, footprint: Footprint) -> Footprint:
    """A fresh footprint; with a tokenizer of its own its tokens cannot be named by the family's."""
    is_own = footprint.tokenizer not in (None, catalog.footprints.family_tokenizer(base))
    return footprint if is_own else replace(footprint, tokenizer=None, own_tokenizer=b"")


def first_sentence(footprint: Footprint, words: Sequence[Word], document: dict[str, Any]) -> str:
    """What an answer says first."""
    if footprint.kind in KINDS:
        why = KINDS[footprint.kind].format(note=footprint.note)
        answers = ", ".join(row["word"] for row in document["answers_to"][:NAMED])
        if answers:
            return f"Its update answers most to: {answers}, …. {why}"
        return why if footprint.lexicon else f"{why} {UNASKED}"
    from ..search.word_names import surest_words

    partly = f" Known of {footprint.share:.1%} of the vocabulary." if footprint.share < 1 else ""
    seen, answered = [word.text for word in words], [r["word"] for r in document["answers_to"]]
    named = ", ".join(surest_words(seen, answered, NAMED))
    sure = "at least " if footprint.kind == "tied" or footprint.share < 1 else ""
    other = f" that {document['against']} did not see" if "against" in document else ""
    if not words:
        return f"Trained on text of which no whole word{other} can be shown.{partly}"
    return f"Trained on text with {sure}{count(len(words), 'word')}{other}: {named}, ….{partly}"


def _rows(words: Sequence[Word]) -> list[dict[str, Any]]:
    return [{"word": word.text, "strength": round(word.strength, 3)} for word in words]


def show_words(document: Document) -> Shown:
    """The sentence, then the words in lines."""
    yield f"{document['model']}: {document['sentence']}"
    if document["note"]:
        yield f"note: {document['note']}"
    if document["touched"]:
        of = f"{document['touched']:,} of {document['vocabulary']:,} tokens were touched"
        yield f"{of} ({document['touched'] / document['vocabulary']:.1%})"
    yield from _print_words(document["seen"])
    if document["answers_to"]:
        yield "its update answers most to:"
        yield from _print_words(document["answers_to"])
    if document.get("only_other"):
        yield f"words that only {document['against']} saw:"
        yield from _print_words(document["only_other"])


def _print_words(rows: list[Document]) -> Shown:
    if rows:
        yield listed_words([row["word"] for row in rows])


def listed_words(words: Sequence[str]) -> str:
    more = len(words) - WORDS_SHOWN
    tail = f" … and {more} more" if more > 0 else ""
    return ", ".join(words[:WORDS_SHOWN]) + tail


command = asking(
    Words, show_words, "words someone/bert-imdb", "words ./my-fine-tune --against someone/bert-imdb"
)
