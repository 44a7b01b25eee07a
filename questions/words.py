"""The words that a model was trained on: `words`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EmptyCatalog, RequestError, UnknownModel
from ..options import Place, Question, argument, option, record
from ..records import Footprint
from ..results import Document, Shown, Table, count
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking

if TYPE_CHECKING:
    from ..search.footprints import Word
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
        from ..search.footprints import NO_TOKENIZER

        catalog = db._catalog
        asked = WordsOfModel.find(catalog, self.model, self.base)
        base, footprint, words = asked.base, asked.footprint, asked.seen(private=self.all)
        document: dict[str, Any] = {
            "model": asked.model,
            "base": base,
            "kind": footprint.kind,
            "touched": len(footprint.tokens),
            "vocabulary": footprint.vocabulary,
            "share": footprint.share,
            "note": footprint.note,
        }
        if self.against is not None:
            try:
                other = WordsOfModel.find(catalog, self.against, self.base or base)
            except UnknownModel:  # its family has none of that id
                other = WordsOfModel.find(catalog, self.against, self.base)
            theirs = other.seen(private=self.all)
            mine, other_words = ({word.text for word in some} for some in (words, theirs))
            words = [word for word in words if word.text not in other_words]
            document["against"] = other.model
            document["only_other"] = _rows([w for w in theirs if w.text not in mine][: self.k])
        if not words and footprint.tokens.size and not catalog.footprints.family_tokenizer(base):
            document["note"] = NO_TOKENIZER.format(base=base)
        answers = asked.answers()
        document["answers_to"] = answers[: self.k]
        sentence = _first_sentence(footprint, words, answers, document.get("against"))
        return WordTable({**document, "sentence": sentence, "seen": _rows(words[: self.k])})


@dataclass(frozen=True, slots=True)
class WordsOfModel:
    """A model whose footprint is known, and its base."""

    catalog: Catalog
    base: str
    model: str
    footprint: Footprint
    kind: str

    @classmethod
    def find(cls, catalog: Catalog, model: Place, spelling: str | None) -> WordsOfModel:
        """A stored model, or a folder or Hub id, which is read now."""
        base, name = catalog.find_base(spelling), str(model)
        try:
            row = catalog.model(name, base)
        except (UnknownModel, EmptyCatalog):
            from ..indexer import guess_base, is_model_path

            if not is_model_path(name):
                raise
            base = base or guess_base(catalog, name)
            footprint, kind = _read(catalog, name, base)
            if footprint.tokenizer in (None, catalog.footprints.family_tokenizer(base)):
                # else its tokens cannot be named by the family's
                footprint = replace(footprint, tokenizer=None, own_tokenizer=b"")
            return cls(catalog, base, name, footprint, kind)
        stored = catalog.footprints.of(row.key)
        if stored is None:
            why = (
                "it was indexed without; `deltadex index` reads the embeddings of a family's models"
                if row.status == "indexed"
                else f"it is not indexed ({row.code}: {row.reason}), and its input embedding was "
                "not read or names no words"
            )
            raise RequestError(f"{row.id} has no footprint: {why}")
        return cls(catalog, row.base, row.id, stored, row.kind)

    def seen(self, *, private: bool = False) -> list[Word]:
        """The words that the footprint names, the most telling first; `private`: also names and
        what has digits."""
        from ..search.footprints import FamilyFootprints

        if self.footprint.kind in KINDS:
            return []
        family = FamilyFootprints.read(self.catalog, self.base)
        if self.footprint.tokenizer is None and family.tokenizer is None:
            return []
        vocabulary = family.vocabulary(self.footprint)
        return family.words(self.footprint, vocabulary, model=self.model, private=private)

    def answers(self) -> list[dict[str, Any]]:
        """The words that the model's update answers to; empty where that is not known."""
        from ..search.responses import FamilyResponses

        catalog = self.catalog

        def answer() -> list[tuple[str, float]]:
            view = catalog.family(self.base, catalog.find_recipe(None, self.base))
            found = FamilyResponses.of(catalog, view)
            if found is None:
                return []
            rows = view.rows([self.model])
            if len(rows):
                key = int(view.keys[rows[0]])
                return found.words(key) if found.has(key) else []
            fresh = found.of_fresh(self.footprint, self.kind)
            return [] if fresh is None else found.listed(fresh)

        if not catalog.footprints.lexicons(self.base):
            return []
        words = [(word, strength) for word, strength in catalog.look(answer) if strength > 0]
        return [{"word": word, "strength": round(strength, 3)} for word, strength in words]


def _read(catalog: Catalog, name: str, base: str) -> tuple[Footprint, str]:
    """A folder is read whole where the family knows what updates answer to."""
    from ..indexer import fingerprint_query, footprint_query

    if Path(name).is_dir() and catalog.footprints.lexicons(base):
        with suppress(RequestError):
            made = fingerprint_query(catalog, name, base, catalog.find_recipe(None, base))
            if made.footprint is not None:
                return made.footprint, made.model.kind
    return footprint_query(catalog, name, base), "full"


def words_of_model(catalog: Catalog, base: str, model: str) -> list[str]:
    """The words that `words` names first of a stored model; none where nothing tells them. NumPy is
    imported for those that have some."""
    if not catalog.tells_words(base, model):
        return []
    from ..search.responses import surest_words

    asked = WordsOfModel.find(catalog, model, base)
    try:
        seen = [word.text for word in asked.seen()]
    except RequestError:  # of another tokenizer than is kept
        seen = []
    return surest_words(seen, [row["word"] for row in asked.answers()], NAMED)


def _first_sentence(
    footprint: Footprint, words: Sequence[Word], answers: Sequence[Document], against: str | None
) -> str:
    """What an answer says first, of all words that it has."""
    answered = [row["word"] for row in answers]
    if footprint.kind in KINDS:
        why = KINDS[footprint.kind].format(note=footprint.note)
        if answered:
            return f"Its update answers most to: {', '.join(answered[:NAMED])}, …. {why}"
        return why if footprint.lexicon else f"{why} {UNASKED}"
    from ..search.responses import surest_words

    partly = f" Known of {footprint.share:.1%} of the vocabulary." if footprint.share < 1 else ""
    named = ", ".join(surest_words([word.text for word in words], answered, NAMED))
    sure = "at least " if footprint.kind == "tied" or footprint.share < 1 else ""
    other = "" if against is None else f" that {against} did not see"
    if not words:
        return f"Trained on text of which no whole word{other} can be shown.{partly}"
    return f"Trained on text with {sure}{count(len(words), 'word')}{other}: {named}, ….{partly}"


def _rows(words: Sequence[Word]) -> list[dict[str, Any]]:
    return [{"word": word.text, "strength": round(word.strength, 3)} for word in words]


def show_words(document: Document) -> Shown:
    yield f"{document['model']}: {document['sentence']}"
    if document["note"]:
        yield f"note: {document['note']}"
    if document["touched"]:
        of = f"{document['touched']:,} of {document['vocabulary']:,} tokens were touched"
        yield f"{of} ({document['touched'] / document['vocabulary']:.1%})"
    for key, title in (
        ("seen", ""),
        ("answers_to", "its update answers most to:"),
        ("only_other", f"words that only {document.get('against')} saw:"),
    ):
        if words := [row["word"] for row in document.get(key, ())]:
            yield from filter(None, (title, listed_words(words)))


def listed_words(words: Sequence[str]) -> str:
    more = len(words) - WORDS_SHOWN
    tail = f" … and {more} more" if more > 0 else ""
    return ", ".join(words[:WORDS_SHOWN]) + tail


command = asking(
    Words, show_words, "words someone/bert-imdb", "words ./my-fine-tune --against someone/bert-imdb"
)
