"""Questions about data: which models were trained on it, which kept data a model is near to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..errors import RequestError
from ..records import LossName
from .opened import Opened, Place
from .tables import DataTable, NearestDataTable, Table, TrainedModelTable

if TYPE_CHECKING:
    from typing import Unpack

    from ..records import DataSet

NAME = re.compile(r"[\w][\w .+@-]{0,99}")
"""What a kept data set may be called."""

MEANING = (
    "trained on this data, or on data like it: alike data gives alike gradients. "
    "It is no proof that a model saw any one example."
)
"""What an answer says at most; printed with every one of them."""

Dtype = Literal["float32", "bfloat16"]


class DataReading(TypedDict, total=False):
    """How examples are read and a gradient is computed from them.

    Keys:
        text, label, pair, completion: Columns; by default found by their names and values. `""` as
            label uses no labels.
        split: Of a folder with several; `train` by default.
        max_examples: Drawn at random, by a hash of their texts; 512 by default.
        seed: Of the draw and of groups.
        loss: `causal`, `seq2seq`, `masked`, `classification`, `regression`, `contrastive`; by
            default what the base and the labels suggest.
        max_tokens: Of each text; 128 by default.
        batch_size: Examples at once; 16 by default.
        device: Of torch; `cpu` by default.
        dtype: Of the base's weights: `float32` or `bfloat16`.
    """

    text: str | None
    label: str | None
    pair: str | None
    completion: str | None
    split: str | None
    max_examples: int
    seed: int
    loss: LossName | None
    max_tokens: int
    batch_size: int
    device: str
    dtype: Dtype


USUAL: DataReading = {
    "max_examples": 512,
    "seed": 0,
    "max_tokens": 128,
    "batch_size": 16,
    "device": "cpu",
    "dtype": "float32",
}
"""What is not said otherwise."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A data set, and what was said of its reading."""

    data: DataSet
    description: str


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
        **reading: Unpack[DataReading],
    ) -> TrainedModelTable:
        """The `k` fine-tunes of a base that were most likely trained on a data set.

        The base runs once over the examples, forward and backward. The negated gradient is compared
        with every model's ΔW as if it were a full fine-tune's; no label of a model is used but to
        calibrate `fdr`. It says: trained on this data, or on data like it.

        Args:
            data: A file or folder (csv, tsv, jsonl, json, parquet, txt, a saved or downloaded
                `datasets` data set), or the name of a kept data set.
            base: The family, where the catalog has several.
            dataset, author, where: Only models that pass, as in `find_similar`.
            keep: A name under which the data set is kept: fingerprints, counts, hash and settings,
                none of its texts.

        Returns:
            A row for each model, nearest first: `rank`, `model`, `verdict`, `z`, `z_error`, `fdr`,
            `cosine` and labels. The document has `query`, `control` (the same texts with their
            labels permuted) and `meaning`.

        Raises:
            RequestError: the base or the data set lacks what a loss needs.
            DataError: the file cannot be read, or has no texts.
            StudyError: the base cannot be loaded.

        >>> found = db.find_trained_on("reviews.csv", k=2)
        >>> [set(row) >= {"model", "z", "fdr", "verdict"} for row in found]
        [True, True]
        """
        from ..search import check_searchable, find_trained_on
        from ..store import ModelFilter

        if k < 1:
            raise RequestError(f"k must be at least 1, got {k}")
        if keep is not None:
            _check_name(keep)
            if self._catalog.read_only:
                raise RequestError(f"{self.path} is opened to read only: nothing can be kept in it")
        wanted = ModelFilter(dataset=dataset, author=author, where=where)
        family = self._family_of(base)
        check_searchable(self._catalog, family, recipe=recipe, wanted=wanted)
        asked = self._data_set(data, family, recipe, keep, reading)
        if keep is not None:
            self._catalog.data_sets.save(asked.data)
        answer = find_trained_on(self._catalog, asked.data, k=k, wanted=wanted)
        return TrainedModelTable(
            {
                "query": _described(asked.data, asked.description),
                **answer.to_json(),
                "meaning": MEANING,
            }
        )

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
        return Table({**_described(data, ""), "norm": data.fingerprint.norm, "sketches": parts})

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

    def _data_set(
        self,
        data: Place,
        base: str,
        recipe: str | None,
        keep: str | None,
        reading: DataReading,
    ) -> _Asked:
        """A kept data set of that name, or a file's examples, run through the base."""
        kept = {row["name"] for row in self._catalog.data_sets.listed(base)}
        if str(data) in kept and not Path(data).exists():
            changed = [key for key, value in reading.items() if value not in (None, USUAL.get(key))]
            if keep is not None or changed:
                names = [*changed, *["keep"] * (keep is not None)]
                options = ", ".join(f"--{key.replace('_', '-')}" for key in names)
                raise RequestError(
                    f"{data} is a kept data set, which is not read again: leave out {options}, or "
                    "name its file"
                )
            return _Asked(self._kept(str(data), base, recipe), "a kept data set; no file was read")
        return self._make_data_set(Path(data).expanduser(), base, recipe, keep, reading)

    def _kept(self, name: str, base: str, recipe: str | None) -> DataSet:
        """Raises `RequestError` where it was kept under another recipe than the family's."""
        data, wanted = (
            self._catalog.data_sets.load(name, base),
            self._catalog.find_recipe(recipe, base),
        )
        if data.fingerprint.recipe.id != wanted.id:
            raise RequestError(
                f"{name} was kept under recipe {data.fingerprint.recipe.id}, and models are "
                f"compared under {wanted.id}: name its file, and keep it again"
            )
        return data

    def _make_data_set(
        self, path: Path, base: str, recipe: str | None, keep: str | None, reading: DataReading
    ) -> _Asked:
        from ..indexer.base import Base
        from ..indexer.index import stored_layout
        from ..indexer.parallel import choose_device
        from ..study.network import load_task_model, load_tokenizer
        from ..training_data import (
            ColumnChoice,
            DataQueryOptions,
            chat_template,
            make_data_set,
            read_examples,
            require_same_base,
            wants_labels,
        )

        if not path.exists():
            raise RequestError(f"{path}: no such file, and no data set of that name is kept")
        columns = ColumnChoice(
            text=reading.get("text"),
            label=reading.get("label"),
            pair=reading.get("pair"),
            completion=reading.get("completion"),
        )
        chosen = self._catalog.find_recipe(recipe, base)
        options = DataQueryOptions(
            loss=reading.get("loss"),
            max_tokens=reading.get("max_tokens", USUAL["max_tokens"]),
            batch_size=reading.get("batch_size", USUAL["batch_size"]),
            seed=reading.get("seed", USUAL["seed"]),
        )
        device = choose_device(reading.get("device", USUAL["device"]))
        examples = read_examples(
            path,
            columns,
            max_examples=reading.get("max_examples", USUAL["max_examples"]),
            seed=options.seed,
            split=reading.get("split"),
            template=chat_template(load_tokenizer(base)),
        )
        model = load_task_model(
            base,
            device=device,
            dtype=reading.get("dtype", USUAL["dtype"]),
            labelled=wants_labels(examples, options),
        )
        family = self._catalog.base(base)
        if family is not None:
            require_same_base(model, family.architecture, family.slots.get("shapes", {}))
        steps = self._track(range(options.parts), "groups of examples", total=options.parts)
        advance = iter(steps)
        made = make_data_set(
            model,
            examples,
            name=keep or path.name,
            base=base,
            recipe=chosen,
            layout=stored_layout(self._catalog, Base(name=base)),
            options=options,
            progress=lambda done, total: next(advance, None),
        )
        next(advance, None)
        return _Asked(made, examples.describe())


def _described(data: DataSet, description: str) -> dict[str, Any]:
    """What people and programs are told of a data set."""
    return {
        "data": data.name,
        "base": data.base,
        "loss": data.loss,
        "examples": data.examples,
        "sha256": data.sha256,
        "counts": dict(data.counts),
        "settings": _plain(data.settings),
        "reading": description,
    }


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if value not in (None, "", {})}


def _check_name(name: str) -> None:
    """Raises `RequestError` for a name that could be taken for a file."""
    if not NAME.fullmatch(name):
        raise RequestError(
            f"{name!r}: a data set's name has letters, digits, spaces and . + @ - _, at most 100"
        )
