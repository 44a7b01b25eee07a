"""Files of examples to data sets as queries, under one choice of settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..errors import RequestError
from ..records import LABELLED_LOSSES, LossName
from .opened import Place, Track

if TYPE_CHECKING:
    from ..records import DataSet
    from ..store import Catalog
    from ..study.network import TaskModel
    from ..training_data import DataQueryOptions, ExampleSet, Template

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


@dataclass(frozen=True)
class DataMaking:
    """Makes data sets of one family under the same settings; the base is loaded once."""

    catalog: Catalog
    base: str
    recipe: str | None
    reading: DataReading
    track: Track
    _models: dict[bool, TaskModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a device that is not here, before a data set is read.

        Raises:
            RequestError: no such device.
        """
        from ..study.study import usable_device

        usable_device(self._settings["device"])

    def read(self, place: Place, name: str | None = None) -> ExampleSet:
        """The examples of a file or folder, called by `name`; without labels that no loss uses.

        Raises:
            RequestError: there is none.
            DataError: it cannot be read, or has no texts.
        """
        path, label = Path(place).expanduser(), self._settings.get("label")
        if not path.exists():
            raise RequestError(f"{path}: no such file, and no data set of that name is kept")
        if self._takes_labels:
            return self._read(path, label, name)
        examples = self._read(path, "", name)
        loss = self._settings.get("loss")
        if loss is None and self._model(examples).head != "next":
            return self._read(path, label, name)  # a decoder whose checkpoint has no head
        if not label:
            return examples
        note = f'labels in column "{label}" are not used: the loss is {loss or "causal"}'
        return replace(examples, notes=(*examples.notes, note))

    def _read(self, path: Path, label: str | None, name: str | None) -> ExampleSet:
        from ..training_data import ColumnChoice, read_examples

        reading = self._settings
        return read_examples(
            path,
            ColumnChoice(
                text=reading.get("text"),
                label=label,
                pair=reading.get("pair"),
                completion=reading.get("completion"),
            ),
            max_examples=reading["max_examples"],
            seed=reading["seed"],
            split=reading.get("split"),
            template=self._template,
            name=name,
        )

    def make(self, examples: ExampleSet, name: str, *, beside: ExampleSet | None = None) -> DataSet:
        """The data set of some examples; `beside`: of the one that it is compared with.

        Raises:
            RequestError: the base or the examples lack what the loss needs.
        """
        from ..indexer.base import Base
        from ..indexer.index import stored_layout
        from ..training_data import make_data_set

        options = self._options
        steps = self.track(range(options.parts), "groups of examples", total=options.parts)
        advance = iter(steps)
        made = make_data_set(
            self._model(examples),
            examples,
            name=name,
            base=self.base,
            recipe=self.catalog.find_recipe(self.recipe, self.base),
            layout=stored_layout(self.catalog, Base(name=self.base)),
            options=options,
            progress=lambda done, total: next(advance, None),
            beside=beside,
        )
        next(advance, None)
        return made

    @cached_property
    def _settings(self) -> DataReading:
        """What was said of the reading, and the usual where nothing was."""
        return {**USUAL, **self.reading}

    @cached_property
    def _template(self) -> Template | None:
        """The chat template of the base's tokenizer."""
        from ..training_data import chat_template

        return chat_template(self._tokenizer)

    @cached_property
    def _tokenizer(self) -> Any:
        from ..study.network import load_tokenizer

        return load_tokenizer(self.base)

    @cached_property
    def _takes_labels(self) -> bool:
        """Whether the loss may use labels, as far as the options and the architecture say."""
        from ..study.network import predicts_next_token

        loss = self._settings.get("loss")
        if loss is None:
            return not predicts_next_token(self.base, self._tokenizer)
        return loss in (*LABELLED_LOSSES, "seq2seq")

    @property
    def _options(self) -> DataQueryOptions:
        from ..training_data import DataQueryOptions

        return DataQueryOptions(
            loss=self._settings.get("loss"),
            max_tokens=self._settings["max_tokens"],
            batch_size=self._settings["batch_size"],
            seed=self._settings["seed"],
        )

    def _model(self, examples: ExampleSet) -> TaskModel:
        from ..study.network import load_task_model
        from ..study.study import usable_device
        from ..training_data import require_same_base, wants_labels

        labelled = wants_labels(examples, self._options)
        if labelled not in self._models:
            model = load_task_model(
                self.base,
                device=usable_device(self._settings["device"]),
                dtype=self._settings["dtype"],
                labelled=labelled,
            )
            family = self.catalog.base(self.base)
            if family is not None:
                require_same_base(model, family.architecture, family.slots.get("shapes", {}))
            self._models[labelled] = model
        return self._models[labelled]
