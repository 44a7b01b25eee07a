"""Data sets as questions: which models were trained on one, which kept ones a model is near to."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError, offered
from ..options import Place, Question, argument, as_kind, option, record
from ..records import LABELLED_LOSSES, LossName
from ..store import Filters
from .data_words import (
    MOST_EXAMPLES,
    WordMatches,
    match_words,
    texts_of,
    with_words,
    words_answer,
)
from .families import (
    AskedFamilies,
    FamilyAnswer,
    described,
    joint_answer,
)
from .opened import ONLY_FAMILY, Family, Track, find_family, require_labels
from .tables import DataTable, NearestDataTable, Table, TrainedModelTable

if TYPE_CHECKING:
    from ..records import DataSet
    from ..store import Catalog
    from ..study.network import TaskModel
    from ..training_data import DataQueryOptions, ExampleSet
    from .opened import Opened

NAME = re.compile(r"[\w][\w .+@-]{0,99}")
"""What a kept data set may be called."""

MEANING = (
    "trained on this data, or on data like it: alike data gives alike gradients. "
    "It is no proof that a model saw any one example."
)
"""What an answer says at most; printed with every one of them."""


@record
class DataReading(Family):
    """How examples are read and a gradient is computed from them."""

    stability = "provisional"

    _: KW_ONLY
    text: str | None = option(
        default=None,
        metavar="COLUMN",
        shown_default="found by names and values",
        help="The column of texts or messages.",
    )
    label: str | None = option(
        default=None, metavar="COLUMN", help='The column of labels; "" uses none.'
    )
    pair: str | None = option(
        default=None, metavar="COLUMN", help="The column of the second text of a pair."
    )
    completion: str | None = option(
        default=None, metavar="COLUMN", help="The column of completions or answers to the text."
    )
    split: str | None = option(
        default=None, shown_default="train", help="Split to read, of a folder with several."
    )
    max_examples: int = option(
        default=512,
        least=8,
        help="Number of examples, at most, drawn by a hash of their texts.",
    )
    seed: int = option(default=0, help="Random seed of the draw and of groups.")
    loss: LossName | None = option(
        default=None, help="Loss in place of the one that the base and the labels suggest."
    )
    max_tokens: int = option(default=128, least=2, help="Cut each text to this many tokens.")
    batch_size: int = option(default=16, least=1, help="Run this many texts at once.")
    device: str = option(default="cpu", help="Device of torch: cpu, cuda, cuda:1, ….")
    dtype: Literal["float32", "bfloat16"] = option(
        default="float32", help="Type of the base's weights."
    )

    def changed(self) -> list[str]:
        """Options of the reading that are not the default."""
        return [
            name
            for name in inspect.get_annotations(DataReading)
            if name != "_" and getattr(self, name) != getattr(DataReading, name)
        ]


@dataclass(frozen=True)
class DataMaking:
    """Makes data sets of one family under the same settings; the base is loaded once."""

    catalog: Catalog
    base: str
    reading: DataReading
    track: Track
    _models: dict[bool, TaskModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from ..study.study import usable_device

        usable_device(self.reading.device)  # refused before a data set is read

    def read(self, place: Place, name: str | None = None) -> ExampleSet:
        """The examples of a file or folder; without labels that no loss uses."""
        path, label = Path(place).expanduser(), self.reading.label
        if not os.path.exists(path):
            raise RequestError(f"{path}: no such file, and no data set of that name is kept")
        if not self._takes_labels:
            examples, loss = self._read(path, "", name), self.reading.loss
            if loss is not None or self._model(examples).head == "next":
                note = f'labels in column "{label}" are not used: the loss is {loss or "causal"}'
                return replace(examples, notes=(*examples.notes, note)) if label else examples
        return self._read(path, label, name)  # also for a decoder whose checkpoint has no head

    def _read(self, path: Path, label: str | None, name: str | None) -> ExampleSet:
        from ..training_data import ColumnChoice, chat_template, read_examples

        reading = self.reading
        return read_examples(
            path,
            as_kind(ColumnChoice, replace(reading, label=label)),
            max_examples=reading.max_examples,
            seed=reading.seed,
            split=reading.split,
            template=chat_template(self._tokenizer),
            name=name,
        )

    def make(self, examples: ExampleSet, name: str, *, beside: ExampleSet | None = None) -> DataSet:
        """The data set of some examples; `beside` are those that it is compared with."""
        from ..training_data import make_data_set

        options = self._options
        advance = iter(self.track(range(options.parts), "groups of examples", total=options.parts))
        made = make_data_set(
            self._model(examples),
            examples,
            name=name,
            base=self.base,
            recipe=self.catalog.find_recipe(self.reading.recipe, self.base),
            options=options,
            progress=lambda done, total: next(advance, None),
            beside=beside,
        )
        next(advance, None)
        return made

    @cached_property
    def _tokenizer(self) -> Any:
        from ..study.network import load_tokenizer

        return load_tokenizer(self.base)

    @cached_property
    def _takes_labels(self) -> bool:
        """Whether the loss may use labels, as far as the options and the architecture say."""
        from ..study.network import predicts_next_token

        loss = self.reading.loss
        if loss is None:
            return not predicts_next_token(self.base, self._tokenizer)
        return loss in (*LABELLED_LOSSES, "seq2seq")

    @property
    def _options(self) -> DataQueryOptions:
        from ..training_data import DataQueryOptions

        return as_kind(DataQueryOptions, self.reading)

    def _model(self, examples: ExampleSet) -> TaskModel:
        from ..study.network import load_task_model
        from ..study.study import usable_device
        from ..training_data import require_same_base, wants_labels

        labelled = wants_labels(examples, self._options)
        if labelled not in self._models:
            model = load_task_model(
                self.base,
                device=usable_device(self.reading.device),
                dtype=self.reading.dtype,
                labelled=labelled,
            )
            family = self.catalog.base(self.base)
            require_same_base(model, family.architecture, family.shapes)
            self._models[labelled] = model
        return self._models[labelled]


@record
class FindTrainedOn(Filters, DataReading):
    """The `k` fine-tunes of a base that were most likely trained on a data set.

    The words of the file are compared with those that each model was trained on, where its input
    embedding tells them: nothing is run. For models without, the base runs once over the examples,
    forward and backward, and the negated gradient is compared with every model's ΔW as if it were a
    full fine-tune's; no label of a model is used, but where labels of near models disagree
    `probability` is lower. It says: trained on this data, or on data like it.

    Returns:
        A row for each model, nearest first: `rank`, `model`, `verdict`, `probability`, `z`,
        `z_error`, `fdr`, `cosine` and labels; with a footprint `touched` (tokens that it saw),
        `missing` (of them, tokens that are not in the file), `missing_by_chance` (how many other
        data of that size would lack) and `accident`. The document has `query` (with `control`: the
        same texts, their labels permuted), `comparison` (with the control: `effect`, `low`, `high`,
        `p` and `verdict` of each model) and `meaning`.

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
            from ..study.study import usable_device

            usable_device(self.device)  # refused before a data set is read
        words, examples = self._matched(catalog)
        of_gradients = {"label", "loss", "max_examples", "max_tokens", "batch_size", "dtype"}
        is_asked = (
            bool(of_gradients & set(self.changed())) or (self.keep, self.control) != (None,) * 2
        )
        is_enough = words is not None and words.is_complete and not is_asked
        if words is not None and examples is not None and (self.quick or is_enough):
            return TrainedModelTable(words_answer(words, examples, self.k))
        if self.quick:
            raise RequestError("no model has a footprint to compare the file's words with")
        families = AskedFamilies(db, base=self.base, recipe=self.recipe, filters=self)
        asked = families.ask(partial(self._answer, catalog, db._track))
        document = joint_answer(asked, families.left_out, self.k)
        if words is not None and words.matches:
            document["neighbours"] = with_words(document["neighbours"], words, self.k)
            document["verdict"] = document["neighbours"][0]["verdict"]
        return TrainedModelTable({**document, "meaning": MEANING})

    def _matched(self, catalog: Catalog) -> tuple[WordMatches | None, ExampleSet | None]:
        """How the file's words match the footprints of the models; None where no model has one, or
        DATA is a kept data set, whose texts are not kept."""
        bases = catalog.bases() if self.base is None else [find_family(catalog, self.base)]
        path = Path(self.data).expanduser()
        if self.only_kept or not path.exists() or not any(map(catalog.footprints.ids, bases)):
            return None, None
        from ..training_data import ColumnChoice, read_examples

        examples = read_examples(
            path,
            as_kind(ColumnChoice, self),
            max_examples=MOST_EXAMPLES,
            seed=self.seed,
            split=self.split,
        )
        return match_words(catalog, bases, self, texts_of(examples)), examples

    def _answer(self, catalog: Catalog, track: Track, base: str) -> FamilyAnswer:
        """What one family answers; its data set is kept."""
        from ..search import find_trained_on

        data, control, reading, lost = self._read(DataMaking(catalog, base, self, track))
        if self.keep is not None:
            catalog.data_sets.save(data)
        found = find_trained_on(catalog, data, k=self.k, filters=self, control=control)
        return FamilyAnswer(data, found, reading, lost)

    def _read(self, making: DataMaking) -> tuple[DataSet, DataSet | None, str, tuple[str, ...]]:
        """The data set and its control, each kept or made of a file's examples; what was said of
        the reading, and what was left out of both."""
        from ..search.trained_on import check_control
        from ..training_data import matched_examples

        data, control, keep = self.data, self.control, self.keep
        kept = _kept(making, data, only=self.only_kept)
        kept_control = None if control is None else _kept(making, control)
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


@record
class FindData(Family):
    """The kept data sets nearest to a stored model: what it may have been trained on.

    Returns:
        A row for each kept data set of the model's family: `data`, `z`, `z_error`, `fdr`,
        `verdict`, nearest first.

    Raises:
        RequestError: no data set is kept for the family.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.nearest("imdb-0")[0]["data"]
    'reviews'
    """

    stability = "provisional"

    model: str = argument(help="Id of the model.")

    def answer(self, db: Opened) -> NearestDataTable:
        from ..search import find_data

        base = db._catalog.find_base(self.base)
        found = find_data(db._catalog, self.model, base=base, recipe=self.recipe)
        return NearestDataTable({**found, "meaning": MEANING})


@record
class KeptData(Question):
    """The kept data sets: a row each with `name`, `base`, `loss`, `examples`, `sha256`, ….

    >>> len(db.data())
    0
    """

    stability = "provisional"

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DataTable:
        listed = db._catalog.data_sets.listed(db._catalog.find_base(self.base))
        return DataTable({"data": listed})


@record
class OneDataSet(Question):
    """A kept data set."""

    stability = "provisional"

    name: str = argument(help="Name that the data set was kept under.")
    base: str | None = option(default=None, help=ONLY_FAMILY)


@record
class ShowData(OneDataSet):
    """Everything that is kept of a data set, but its numbers.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.show("reviews").to_json()["counts"]["classes"]
    2
    """

    def answer(self, db: Opened) -> Table:
        data = db._catalog.data_sets.load(self.name, db._catalog.find_base(self.base))
        parts = {part: len(slots) for part, slots in data.sketches.items()}
        return Table({**described(data), "norm": data.fingerprint.norm, "sketches": parts})


@record
class RemoveData(OneDataSet):
    """Forget a kept data set. One row: `removed` and `base`.

    >>> _ = db.data.find_models("reviews.csv", k=1, keep="reviews")
    >>> db.data.remove("reviews").to_json()["removed"]
    'reviews'
    """

    def answer(self, db: Opened) -> Table:
        row = db._catalog.data_sets.remove(self.name, db._catalog.find_base(self.base))
        return Table({"removed": row["name"], "base": row["base"]})


def _kept(making: DataMaking, data: Place, *, only: bool = False) -> DataSet | None:
    """A kept data set of that name, where no file has it; with `only`, whatever files there are."""
    catalog, base = making.catalog, making.base
    kept = {row["name"] for row in catalog.data_sets.listed(base)}
    if only and str(data) not in kept:
        raise RequestError(f"no kept data set {str(data)!r}{offered(str(data), kept, 'kept')}")
    if str(data) not in kept or (not only and Path(data).exists()):
        return None
    found = catalog.data_sets.load(str(data), base)
    wanted = catalog.find_recipe(making.reading.recipe, base)
    if found.fingerprint.recipe.id != wanted.id:
        raise RequestError(
            f"{data} was kept under recipe {found.fingerprint.recipe.id}, and models are "
            f"compared under {wanted.id}: name its file, and keep it again"
        )
    return found
