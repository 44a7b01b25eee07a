"""Questions about data: which models were trained on it, which kept data a model is near to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from .data_making import USUAL, DataMaking, DataReading
from .opened import Opened, Place
from .tables import DataTable, NearestDataTable, Table, TrainedModelTable

if TYPE_CHECKING:
    from typing import Unpack

    from ..records import DataSet
    from ..search import TrainedModels

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


class DataQuestions(Opened):
    """What a `Database` answers about data sets."""

    def find_trained_on(
        self,
        data: Place,
        k: int = 10,
        *,
        base: str | None = None,
        recipe: str | None = None,
        dataset: str | None = None,
        author: str | None = None,
        where: str | None = None,
        keep: str | None = None,
        control: Place | None = None,
        **reading: Unpack[DataReading],
    ) -> TrainedModelTable:
        """The `k` fine-tunes of a base that were most likely trained on a data set.

        The base runs once over the examples, forward and backward. The negated gradient is compared
        with every model's ΔW as if it were a full fine-tune's; no label of a model is used, but
        where labels of near models disagree `fdr` is higher. It says: trained on this data, or on
        data like it.

        Args:
            data: A file or folder (csv, tsv, jsonl, json, parquet, txt, a saved or downloaded
                `datasets` data set), or the name of a kept data set.
            base: The family, where the catalog has several.
            dataset, author, where: Only models that pass, as in `find_similar`.
            keep: A name under which the data set is kept: fingerprints, counts, hash and settings,
                none of its texts.
            control: A file or a kept data set of texts of the same kind that no model has seen:
                each model is tested whether it lies nearer to the data than to these.

        Returns:
            A row for each model, nearest first: `rank`, `model`, `verdict`, `z`, `z_error`, `fdr`,
            `cosine` and labels. The document has `query` (with `control`: the same texts, their
            labels permuted), `comparison` (with the control: `effect`, `low`, `high`, `p` and
            `verdict` of each model) and `meaning`.

        Raises:
            RequestError: the base or the data set lacks what a loss needs.
            DataError: the file cannot be read, or has no texts.
            StudyError: the base cannot be loaded.

        >>> found = db.find_trained_on("reviews.csv", k=2)
        >>> [set(row) >= {"model", "z", "fdr", "verdict"} for row in found]
        [True, True]
        """
        from ..search import check_searchable, find_trained_on
        from ..store import Filters

        if k < 1:
            raise RequestError(f"k must be at least 1, got {k}")
        if keep is not None:
            _check_name(keep)
            if self._catalog.read_only:
                raise RequestError(f"{self.path} is opened to read only: nothing can be kept in it")
        filters = Filters(dataset=dataset, author=author, where=where)
        self._require_labels(dataset, author)
        family = self._family_of(base)
        check_searchable(self._catalog, family, recipe=recipe, filters=filters)
        asked, against = self._asked(data, control, family, recipe, keep, reading)
        if keep is not None:
            self._catalog.data_sets.save(asked.data)
        answer = find_trained_on(self._catalog, asked.data, k=k, filters=filters, control=against)
        document = {"query": _query(asked, answer), **answer.to_json(), "meaning": MEANING}
        if answer.comparison is not None:
            document["comparison"] = answer.comparison.to_json() | {"left_out": [*asked.left_out]}
        return TrainedModelTable(document)

    def find_data(
        self, model: str, *, base: str | None = None, recipe: str | None = None
    ) -> NearestDataTable:
        """The kept data sets nearest to a stored model: what it may have been trained on.

        Returns:
            A row for each kept data set of the model's family: `data`, `z`, `z_error`, `fdr`,
            `verdict`, nearest first.

        Raises:
            RequestError: no data set is kept for the family.

        >>> _ = db.find_trained_on("reviews.csv", k=1, keep="reviews")
        >>> db.find_data("imdb-0")[0]["data"]
        'reviews'
        """
        from ..search import find_data

        found = find_data(self._catalog, model, base=self.find_base(base), recipe=recipe)
        return NearestDataTable({**found.to_json(), "meaning": MEANING})

    def data(self, base: str | None = None) -> DataTable:
        """The kept data sets: a row each with `name`, `base`, `loss`, `examples`, `sha256`, ….

        >>> len(db.data())
        0
        """
        return DataTable({"data": self._catalog.data_sets.listed(self.find_base(base))})

    def show_data(self, name: str, base: str | None = None) -> Table:
        """Everything that is kept of a data set, but its numbers.

        >>> _ = db.find_trained_on("reviews.csv", k=1, keep="reviews")
        >>> db.show_data("reviews").to_json()["counts"]["classes"]
        2
        """
        data = self._catalog.data_sets.load(name, self.find_base(base))
        parts = {part: len(slots) for part, slots in data.sketches.items()}
        return Table({**_described(data), "norm": data.fingerprint.norm, "sketches": parts})

    def remove_data(self, name: str, base: str | None = None) -> Table:
        """Forget a kept data set. One row: `removed` and `base`.

        >>> _ = db.find_trained_on("reviews.csv", k=1, keep="reviews")
        >>> db.remove_data("reviews").to_json()["removed"]
        'reviews'
        """
        row = self._catalog.data_sets.remove(name, self.find_base(base))
        return Table({"removed": row["name"], "base": row["base"]})

    def _family_of(self, base: str | None) -> str:
        """The family that is searched.

        Raises:
            EmptyCatalog: there is none.
            RequestError: there are several, and none is named.
        """
        found = self.find_base(base)
        if found is not None:
            return found
        if len(self.bases) == 1:
            return self.bases[0]
        self._catalog.find_recipe(None)  # says that the catalog is empty, where it is
        raise RequestError(f"several families: add --base, one of: {', '.join(self.bases)}")

    def _asked(
        self,
        data: Place,
        control: Place | None,
        base: str,
        recipe: str | None,
        keep: str | None,
        reading: DataReading,
    ) -> tuple[_Asked, DataSet | None]:
        """The data set and its control, each kept or made of a file's examples."""
        from ..search.data_control import check_control
        from ..training_data import matched_examples

        making = DataMaking(self._catalog, base, recipe, reading, self._track)
        kept = self._kept(data, base, recipe)
        kept_control = None if control is None else self._kept(control, base, recipe)
        if control is not None and kept is None and kept_control is None:
            name, other = _names_apart(Path(data), Path(control))
            examples, others, left_out = matched_examples(
                making.read(data, name), making.read(control, other)
            )
            made = making.make(examples, keep or name, beside=others)
            against = making.make(others, other, beside=examples)
            return _Asked(made, examples.describe(), left_out), against
        if kept is not None and control is None:
            _refuse_reading(data, keep, reading)
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

    def _kept(self, data: Place, base: str, recipe: str | None) -> DataSet | None:
        """A kept data set of that name, where no file has it."""
        kept = {row["name"] for row in self._catalog.data_sets.listed(base)}
        if str(data) not in kept or Path(data).exists():
            return None
        found, wanted = (
            self._catalog.data_sets.load(str(data), base),
            self._catalog.find_recipe(recipe, base),
        )
        if found.fingerprint.recipe.id != wanted.id:
            raise RequestError(
                f"{data} was kept under recipe {found.fingerprint.recipe.id}, and models are "
                f"compared under {wanted.id}: name its file, and keep it again"
            )
        return found


def _refuse_reading(data: Place, keep: str | None, reading: DataReading) -> None:
    """Raises `RequestError` for options of reading, where a kept data set is asked."""
    changed = [key for key, value in reading.items() if value not in (None, USUAL.get(key))]
    names = [*changed, *["keep"] * (keep is not None)]
    if names:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in names)
        raise RequestError(
            f"{data} is a kept data set, which is not read again: leave out {options}, or name "
            "its file"
        )


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
