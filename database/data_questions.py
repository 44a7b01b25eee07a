"""Questions about data: which models were trained on it, which kept data a model is near to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, ModelError, RequestError
from ..options import Place, Question, argument, option, record
from ..store import Filters
from .data_making import DataMaking, DataReading
from .data_score_table import DataScoresTable
from .queries import ONLY_FAMILY, Family, find_family, require_labels
from .tables import DataTable, NearestDataTable, Table, TrainedModelTable

if TYPE_CHECKING:
    from ..records import DataSet
    from ..search import TrainedModels
    from .opened import Opened

NAME = re.compile(r"[\w][\w .+@-]{0,99}")
"""What a kept data set may be called."""

MEANING = (
    "trained on this data, or on data like it: alike data gives alike gradients. "
    "It is no proof that a model saw any one example."
)
"""What an answer says at most; printed with every one of them."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A data set, and what was said of its reading."""

    data: DataSet
    description: str
    left_out: tuple[str, ...] = ()


@record
class FindTrainedOn(Filters, DataReading):
    """The `k` fine-tunes of a base that were most likely trained on a data set.

    The base runs once over the examples, forward and backward. The negated gradient is compared
    with every model's ΔW as if it were a full fine-tune's; no label of a model is used, but
    where labels of near models disagree `fdr` is higher. It says: trained on this data, or on
    data like it.

    Returns:
        A row for each model, nearest first: `rank`, `model`, `verdict`, `z`, `z_error`, `fdr`,
        `cosine` and labels. The document has `query` (with `control`: the same texts, their
        labels permuted), `comparison` (with the control: `effect`, `low`, `high`, `p` and
        `verdict` of each model) and `meaning`.

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

    def answer(self, db: Opened) -> TrainedModelTable:
        from ..search import check_searchable, find_trained_on

        catalog = db._catalog
        if self.keep is not None:
            _check_name(self.keep)
            if catalog.read_only:
                raise RequestError(f"{db.path} is opened to read only: nothing can be kept in it")
        require_labels(catalog, self)
        family = find_family(catalog, self.base)
        check_searchable(catalog, family, recipe=self.recipe, filters=self)
        asked, against = self._asked(DataMaking(catalog, family, self, db._track))
        if self.keep is not None:
            catalog.data_sets.save(asked.data)
        answer = find_trained_on(catalog, asked.data, k=self.k, filters=self, control=against)
        document = {"query": _query(asked, answer), **answer.to_json(), "meaning": MEANING}
        if answer.comparison is not None:
            document["comparison"] = answer.comparison.to_json() | {"left_out": [*asked.left_out]}
        return TrainedModelTable(document)

    def _asked(self, making: DataMaking) -> tuple[_Asked, DataSet | None]:
        """The data set and its control, each kept or made of a file's examples."""
        from ..search.data_control import check_control
        from ..training_data import matched_examples

        data, control, keep = self.data, self.control, self.keep
        kept = _kept(making, data)
        kept_control = None if control is None else _kept(making, control)
        if control is not None and kept is None and kept_control is None:
            name, other = _names_apart(Path(data), Path(control))
            examples, others, left_out = matched_examples(
                making.read(data, name), making.read(control, other)
            )
            made = making.make(examples, keep or name, beside=others)
            against = making.make(others, other, beside=examples)
            return _Asked(made, examples.describe(), left_out), against
        if kept is not None and control is None:
            self._refuse_reading()
        asked = (
            _Asked(kept, "a kept data set; no file was read")
            if kept is not None
            else _made(making, data, keep)
        )
        if control is None:
            return asked, None
        against = kept_control or _made(making, control, None).data
        check_control(asked.data, against)
        return asked, against

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
class FindTrainedOnEach(Filters, DataReading):
    """Several data sets beside every model of a family: z of each pair.

    Each is run through the base, which is loaded once, and compared as `find_models` does;
    the others of the list count as other data. One that cannot be read stops no other.

    Returns:
        A row for each data set: `data`, `examples`, `loss`, `verdict`, `nearest`, `z`, `fdr`,
        `control`. The document has z with every model. `save` writes a table or a picture.

    Raises:
        RequestError: the filters or k are wrong.
        DataError: the folder has no data files, or none of them can be read.
        StudyError: the base cannot be loaded.

    >>> scores = db.data.find_models_of_each(["reviews.csv"], k=2)
    >>> [row["data"] for row in scores], len(scores.to_json()["data"][0]["z"])
    (['reviews'], 4)
    """

    data: Place | Sequence[Place] = argument(
        help="A folder, each file and each folder in it being a data set of its own; or several "
        "files and folders."
    )
    k: int = option("-k", default=10, least=1, help="Number of nearest models that are listed.")

    def answer(self, db: Opened) -> DataScoresTable:
        from ..search import find_trained_on_each
        from ..training_data import data_set_names, data_sets_in

        catalog, data, track = db._catalog, self.data, db._track
        is_folder = isinstance(data, str | Path)
        paths = (
            data_sets_in(Path(data).expanduser())
            if isinstance(data, str | Path)
            else tuple(Path(one).expanduser() for one in data)
        )
        if not paths:
            raise RequestError("name a folder of data sets, or several files")
        family = find_family(catalog, self.base)
        require_labels(catalog, self)
        catalog.find_recipe(self.recipe, family)
        making = DataMaking(catalog, family, self, track)
        sets: list[DataSet] = []
        failed: list[dict[str, str]] = []
        names = data_set_names(paths)
        for path, name in zip(track(paths, "data sets", total=len(paths)), names, strict=True):
            try:
                sets.append(making.make(making.read(path), name))
            except (DataError, RequestError, ModelError) as err:
                failed.append({"data": name, "reason": str(err)})
        if not sets:
            where_from = f"{data}: " if is_folder else ""
            raise DataError(f"{where_from}no data set could be read; {failed[0]['reason']}")
        scores = find_trained_on_each(catalog, sets, k=self.k, filters=self)
        return DataScoresTable({**scores.to_json(), "failed": failed, "meaning": MEANING})


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

    model: str = argument(help="Id of the model.")

    def answer(self, db: Opened) -> NearestDataTable:
        from ..search import find_data

        base = db._catalog.find_base(self.base)
        found = find_data(db._catalog, self.model, base=base, recipe=self.recipe)
        return NearestDataTable({**found.to_json(), "meaning": MEANING})


@record
class KeptData(Question):
    """The kept data sets: a row each with `name`, `base`, `loss`, `examples`, `sha256`, ….

    >>> len(db.data())
    0
    """

    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DataTable:
        listed = db._catalog.data_sets.listed(db._catalog.find_base(self.base))
        return DataTable({"data": listed})


@record
class OneDataSet(Question):
    """A kept data set."""

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
        return Table({**_described(data), "norm": data.fingerprint.norm, "sketches": parts})


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


def _kept(making: DataMaking, data: Place) -> DataSet | None:
    """A kept data set of that name, where no file has it."""
    catalog, base = making.catalog, making.base
    kept = {row["name"] for row in catalog.data_sets.listed(base)}
    if str(data) not in kept or Path(data).exists():
        return None
    found = catalog.data_sets.load(str(data), base)
    wanted = catalog.find_recipe(making.reading.recipe, base)
    if found.fingerprint.recipe.id != wanted.id:
        raise RequestError(
            f"{data} was kept under recipe {found.fingerprint.recipe.id}, and models are "
            f"compared under {wanted.id}: name its file, and keep it again"
        )
    return found


def _names_apart(data: Path, control: Path) -> tuple[str, str]:
    """The names of two files, with their folders where they are equal."""
    if data.name != control.name:
        return data.name, control.name
    return data.as_posix(), control.as_posix()


def _made(making: DataMaking, data: Place, keep: str | None) -> _Asked:
    """A file's examples as a data set."""
    examples = making.read(data)
    return _Asked(making.make(examples, keep or Path(data).name), examples.describe())


def _query(asked: _Asked, answer: TrainedModels) -> dict[str, Any]:
    """What people and programs are told of the data set that was asked."""
    data = asked.data
    return {
        "texts": data.name,
        "n_texts": data.examples,
        "base": data.base,
        "loss": data.loss,
        "sha256": data.sha256,
        "control": answer.control_json(),
        "counts": dict(data.counts),
        "settings": _plain(data.settings),
        "reading": asked.description,
    }


def _described(data: DataSet) -> dict[str, Any]:
    """What is kept of a data set, but its numbers."""
    return {
        "data": data.name,
        "base": data.base,
        "loss": data.loss,
        "examples": data.examples,
        "sha256": data.sha256,
        "counts": dict(data.counts),
        "settings": _plain(data.settings),
    }


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if value not in (None, "", {})}


def _check_name(name: str) -> None:
    """Raises `RequestError` for a name that could be taken for a file."""
    if not NAME.fullmatch(name):
        raise RequestError(
            f"{name!r}: a data set's name has letters, digits, spaces and . + @ - _, at most 100"
        )
