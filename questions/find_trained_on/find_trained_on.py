"""Models that were trained on a data set: `find-trained-on`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import RequestError
from ...options import Place, argument, as_kind, option, record
from ...records import DataSet
from ...results import Document, Shown, Table, agree, count, names_of_bases
from ...store import Filters
from .. import terminal
from ..face.opened import Opened, Track, find_family, require_labels
from ..find_similar import calibrated_by, headline
from ..terminal.command_line import Common, command_with, print_answer
from .answers import (
    MOST_EXAMPLES,
    FamilyMatch,
    WordMatches,
    ask_families,
    joint_answer,
    match_words,
    words_answer,
)
from .making import NAME, DataMaking, DataReading

if TYPE_CHECKING:
    from ...data import ExampleSet
    from ...store import Catalog


MEANING = (
    "trained on this data, or on data like it: alike data gives alike gradients. "
    "It is no proof that a model saw any one example."
)
"""What an answer says at most; printed with every one of them."""

FROM_DATA = "probability from families like it; lower where labels of near models disagree"

WORDLESS = {
    "frozen": "whose input embedding was not trained",
    "dense": "all of whose embedding moved",
    "none": "whose embedding cannot be compared",
    "unread": "indexed without a footprint",
    "other": "named below",
}
"""Why models are not compared by words, by the kind of their footprint."""

OF_WORDS = ("touched", "missing", "missing_by_chance")
"""Columns of a file's words beside a footprint."""


class TrainedModelTable(Table):
    """The models nearest to a data set, nearest first.

    A row has `rank` (from 1), `model`, `base`, `dataset`, `author`, `run`, and the evidence:
    `verdict`, `probability` (that the model was trained on this data; None in families too small
    to say), `z` (deviations above this data set's scores with the family's strangers), `z_error`
    (over groups of the examples), `fdr` (0…1), `cosine` (−1…1), `score`; of a model with a
    footprint also `touched` (tokens that it saw), `missing` (of them, tokens that are not in the
    file), `missing_by_chance` (how many other data of that size would lack) and `accident`. A
    document also has
    `query` (with its `control`), `references`, `compared`, `calibration`, `comparison` (where a
    control was given: `effect`, `low`, `high`, `p` and `verdict` of each model), `families` (a row
    for each that was asked; what they say differently is None in the rest of the document),
    `left_out` (`base` and `reason` of those that could not be asked), and `meaning`: what an answer
    says at most.
    """

    columns: tuple[str, ...] = (
        *("rank", "model", "verdict", "probability", "z", "z_error", "fdr", "dataset", "author"),
    )
    _key = "neighbours"

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        if any(row.get("touched") is not None for row in document["neighbours"]):
            self.columns = (*self.columns[:3], *OF_WORDS, *self.columns[3:])
        if document["recipe"] is None and document["calibration"] is None:
            self.columns = ("rank", "model", "verdict", *OF_WORDS, "dataset", "author")
        if len(document["families"]) > 1:
            self.columns = ("rank", "base", *self.columns[1:])


@record
class FindTrainedOn(Filters, DataReading):
    """Find the models that were trained on a data set, or on data like it.

    DATA is a file (csv, tsv, jsonl, json, parquet, txt, also .gz), a folder of a `datasets` data
    set, or the name of a data set that was kept. Its words are compared with those that each model
    was trained on, where its input embedding tells them: nothing is run. For models without, the
    base runs once over the examples, forward and backward; a model whose update lies along the
    negated gradient was trained on alike data. No labelled model is needed; where labels of near
    models disagree, `probability` is lower. Alike data gives alike gradients: an answer never says
    that a model saw one certain example. --control takes texts of the same kind that no model can
    have seen, and tells a model of this data from a model of data like it.

    Of a catalog of several families every base is asked, one after the other, where --base names
    none. Their models make one list, by probability; a family that cannot be asked is named with
    the reason.

    Raises:
        RequestError: the base or the data set lacks what a loss needs.
        DataError: the file cannot be read, or has no texts.
        StudyError: the base cannot be loaded.

    >>> found = db.data.find_models("reviews.csv", k=2)
    >>> [set(row) >= {"model", "z", "fdr", "verdict"} for row in found]
    [True, True]
    """

    data: Place = argument(
        metavar="DATA",
        help="A file or folder (csv, tsv, jsonl, json, parquet, txt, a saved or downloaded "
        "`datasets` data set), or the name of a kept data set.",
    )
    k: int = option("-k", default=10, least=1, help="Show this many models.")
    _: KW_ONLY
    keep: str | None = option(
        default=None,
        metavar="NAME",
        help="Keep the data set under this name: fingerprints, counts, hash and settings, no text.",
    )
    control: Place | None = option(
        default=None,
        metavar="FILE_OR_NAME",
        help="Test whether models lie nearer to DATA than to these texts of the same kind, which "
        "no model has seen.",
    )
    quick: bool = option(
        default=False,
        help="Compare the file's words alone, with models that have a footprint: nothing is run.",
    )
    only_kept: bool = option(
        default=False, doors="python", help="Whether DATA is a kept data set, and never a file."
    )

    def answer(self, db: Opened) -> TrainedModelTable:
        catalog = db._catalog
        if self.quick and (self.keep is not None or self.control is not None):
            raise RequestError("--quick computes no gradient: leave out --keep and --control")
        if self.keep is not None:
            if not NAME.fullmatch(self.keep):
                raise RequestError(
                    f"{self.keep!r}: a data set's name has letters, digits, spaces and . + @ - _, "
                    "at most 100"
                )
            if catalog.read_only:
                raise RequestError(f"{db.path} is opened to read only: nothing can be kept in it")
        require_labels(catalog, self)
        if self.device != "cpu":
            from ...study.study import usable_device

            usable_device(self.device)  # refused before a data set is read
        words, examples = self._matched(catalog)
        of_gradients = {"label", "loss", "max_examples", "max_tokens", "batch_size", "dtype"}
        is_asked = (
            bool(of_gradients & set(self.changed())) or (self.keep, self.control) != (None,) * 2
        )
        is_enough = words is not None and words.ranked and not words.without and not is_asked
        if words is not None and examples is not None and (self.quick or is_enough):
            return TrainedModelTable(words_answer(words, examples, self.k))
        if self.quick:
            raise RequestError("no model has a footprint to compare the file's words with")
        ask = partial(self._answer, catalog, db._track, words)
        asked = ask_families(catalog, ask, base=self.base, recipe=self.recipe, filters=self)
        document = joint_answer(*asked, self.k, words)
        return TrainedModelTable({**document, "meaning": MEANING})

    def _matched(self, catalog: Catalog) -> tuple[WordMatches | None, ExampleSet | None]:
        """How the file's words match the footprints of the models; None where no model has one, or
        DATA is a kept data set, whose texts are not kept."""
        bases = catalog.bases() if self.base is None else [find_family(catalog, self.base)]
        path = Path(self.data).expanduser()
        if self.only_kept or not path.exists() or not any(map(catalog.footprints.ids, bases)):
            return None, None
        from ...data import ColumnChoice, read_examples

        examples = read_examples(
            path,
            as_kind(ColumnChoice, self),
            max_examples=MOST_EXAMPLES,
            seed=self.seed,
            split=self.split,
        )
        return match_words(catalog, bases, self, examples), examples

    def _answer(
        self, catalog: Catalog, track: Track, words: WordMatches | None, base: str
    ) -> FamilyMatch:
        """What one family answers; its data set is kept."""
        from ...search import find_trained_on

        start = time.monotonic()
        data, control, reading, lost = self._read(DataMaking(catalog, base, self, track))
        if self.keep is not None:
            catalog.data_sets.save(data)
        trained = () if words is None else words.trained
        among = [row["model"] for row in trained if row["base"] == base][: self.k]
        found = find_trained_on(catalog, data, k=self.k, filters=self, control=control, among=among)
        return FamilyMatch(data, found, reading, lost, time.monotonic() - start)

    def _read(self, making: DataMaking) -> tuple[DataSet, DataSet | None, str, tuple[str, ...]]:
        """The data set and its control, each kept or made of a file's examples; what was said of
        the reading, and what was left out of both."""
        from ...data import matched_examples
        from ...search.trained_on import check_control

        data, control, keep = self.data, self.control, self.keep
        kept = making.kept(data, only=self.only_kept)
        kept_control = None if control is None else making.kept(control)
        if control is not None and kept is None and kept_control is None:
            name, other = Path(data).name, Path(control).name
            if name == other:
                name, other = Path(data).as_posix(), Path(control).as_posix()
            examples, others, left_out = matched_examples(
                making.read(data, name), making.read(control, other)
            )
            made = making.make(examples, keep or name, beside=others)
            against = making.make(others, other, beside=examples)
            return made, against, examples.describe(), left_out
        if kept is not None and control is None:
            self._refuse_reading()
        if kept is not None:
            made, description = kept, "a kept data set; no file was read"
        else:
            examples = making.read(data)
            made = making.make(examples, keep or Path(data).name)
            description = examples.describe()
        if control is None:
            return made, None, description, ()
        against = kept_control or making.make(making.read(control), Path(control).name)
        check_control(made, against)
        return made, against, description, ()

    def _refuse_reading(self) -> None:
        """Raises `RequestError` for options of reading, where a kept data set is asked."""
        names = [*self.changed(), *["keep"] * (self.keep is not None)]
        if names:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            raise RequestError(
                f"{self.data} is a kept data set, which is not read again: leave out {options}, "
                "or name its file"
            )


def show_trained_models(document: Document) -> Shown:
    if "without_footprint" in document:
        yield from show_word_matches(document)
        return
    query, models, families = (document[key] for key in ("query", "neighbours", "families"))
    names = _names_of_several(document)
    if names:
        yield f"models of {len(names)} bases nearest to {query['texts']}"
        of_base = ("base", "loss", "examples", "compared", "nearest", "verdict", "z", "control")
        yield terminal.evidence_table(of_base, families, names)
    else:
        yield (
            f"models of {query['base']} nearest to {query['texts']}: "
            f"gradient of {count(query['n_texts'], 'example')}, loss: {query['loss']}"
        )
    yield from _of_bases(names, [(row["base"], row["reading"]) for row in families])
    if models:
        is_small = all(row["calibration"]["source"] == terminal.NULL for row in families)
        yield headline(models, document["compared"], is_small=is_small)
        yield from _of_bases(names, [(row["base"], known_of_data(row)) for row in families])
        if names:
            least = max(row["calibration"]["verdict_from"] for row in families)
            asked = count(len(families), "base")
            yield f"asked of {asked}, a verdict needs a probability of {least:.2f}"
        if query["control"]:
            yield (
                f"the same texts with permuted labels reach z {query['control']['z']:.1f}: of a "
                "model that is no higher, the texts may be alike and not what the labels teach"
            )
        has_words = any(model.get("touched") is not None for model in models)
        of_words = ("touched", "missing") if has_words else ()
        heads = ("rank", "model", *terminal.EVIDENCE_OF_DATA, *of_words, "dataset", "author")
        yield terminal.evidence_table(heads, models, names)
        if document["comparison"]:
            yield from _show_comparison(document, names)
    else:
        yield "no model passes the filters"
    yield from terminal.show_left_out(document)
    if models:
        yield f"It says at most: {document['meaning']}"


def _names_of_several(document: Document) -> dict[str, str]:
    """Of the bases of a document, where several were asked or have models in it."""
    rows = (*document["families"], *document["neighbours"])
    names = names_of_bases(sorted({row["base"] for row in rows}))
    return names if len(names) > 1 else {}


def _of_bases(names: Mapping[str, str], sentences: Sequence[tuple[str, str]]) -> Shown:
    """A sentence once, with the bases that it is of where others have another."""
    bases: dict[str, list[str]] = {}
    for base, sentence in sentences:
        bases.setdefault(sentence, []).append(names.get(base, base))
    for sentence, those in bases.items():
        yield sentence if len(bases) == 1 else f"{', '.join(those)}: {sentence}"


def known_of_data(family: Document) -> str:
    """What the probabilities of a family are known from, and by what else it is normalised."""
    calibration, n_others = family["calibration"], family.get("references") or 0
    is_known = calibration["source"] == "families like it"
    known = FROM_DATA if is_known else calibrated_by(calibration)
    others = f"; models normalised by {count(n_others, 'gradient')} of other data"
    return known + others * bool(n_others)


def _show_comparison(document: Document, names: Mapping[str, str]) -> Shown:
    comparison = document["comparison"]
    files = f"{document['query']['texts']} against the control {comparison['control']}"
    tested = [(row["base"], _tested(row["comparison"])) for row in document["families"]]
    if names:
        yield files
        yield from _of_bases(names, tested)
    else:
        yield f"{files}: {tested[0][1]}"
    yield from comparison["left_out"]
    heads = ("model", "verdict", "effect", "95 %", "p")
    yield terminal.evidence_table(heads, comparison["models"], names)


def _tested(comparison: Document) -> str:
    others = comparison["others"]
    null = (
        f"and {count(others, 'other model')}"
        if others
        else "alone: too few other models to see whether the two files differ for every model"
    )
    return (
        f"{count(comparison['examples'], 'example')} of each; tested by "
        f"{count(comparison['groups'], 'group')} of each {null}"
    )


def show_word_matches(document: Document) -> Shown:
    query, rows = document["query"], document["neighbours"]
    n, kinds = document["without_footprint"], document["without_words"]
    why = ", ".join(f"{kinds[kind]} {WORDLESS[kind]}" for kind in kinds)
    left_out = (
        f"; not compared: {count(n, 'model')} ({why}); leave out --quick to ask them by gradients"
    )
    yield f"models by the words of {query['texts']}: nothing was run{left_out * bool(n)}"
    yield query["reading"]
    n_trained = sum(row["probability"] is not None for row in rows)
    compared = count(document["compared"], "model")
    if not rows:
        yield f"no model of {compared} can be compared"
    elif n_trained:
        least = max(row["accident"] for row in rows if row["probability"] is not None)
        yield (
            f"{n_trained} of {compared} {agree(n_trained, 'was')} trained on this file, or on one "
            f"that contains it; by accident in less than {least:.0e} of other files"
        )
    else:
        yield f"of none of {compared} can it be said that this file trained it"
    heads = ("rank", "model", "touched", "missing", "by chance", "dataset", "author")
    yield terminal.evidence_table(heads, rows, _names_of_several(document))
    for left in document["left_out"]:
        yield left["reason"]
    yield f"It says at most: {document['meaning']}"


@command_with(
    FindTrainedOn,
    examples=(
        "find-trained-on reviews.csv --base sentence-transformers/all-MiniLM-L6-v2",
        "find-trained-on chats.jsonl --text messages --keep acme-chats",
        "find-trained-on reviews.csv --control reviews-of-this-week.csv",
    ),
)
def command(common: Common, asked: FindTrainedOn) -> None:
    read_only = None if asked.keep is None else False
    print_answer(common, asked, show_trained_models, read_only=read_only)
