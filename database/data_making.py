"""Files of examples to data sets as queries, under one choice of settings."""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError
from ..options import Place, option, record
from ..records import LABELLED_LOSSES, LossName
from .opened import Track
from .queries import Family

if TYPE_CHECKING:
    from ..records import DataSet
    from ..store import Catalog
    from ..study.network import TaskModel
    from ..training_data import DataQueryOptions, ExampleSet, Template

Dtype = Literal["float32", "bfloat16"]


@record
class DataReading(Family):
    """How examples are read and a gradient is computed from them."""

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
    dtype: Dtype = option(default="float32", help="Type of the base's weights in memory.")

    def changed(self) -> list[str]:
        """What is said of the reading that is not the default."""
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
        """Refuse a device that is not here, before a data set is read.

        Raises:
            RequestError: no such device.
        """
        from ..study.study import usable_device

        usable_device(self.reading.device)

    def read(self, place: Place, name: str | None = None) -> ExampleSet:
        """The examples of a file or folder, called by `name`; without labels that no loss uses.

        Raises:
            RequestError: there is none.
            DataError: it cannot be read, or has no texts.
        """
        path, label = Path(place).expanduser(), self.reading.label
        if not path.exists():
            raise RequestError(f"{path}: no such file, and no data set of that name is kept")
        if self._takes_labels:
            return self._read(path, label, name)
        examples = self._read(path, "", name)
        loss = self.reading.loss
        if loss is None and self._model(examples).head != "next":
            return self._read(path, label, name)  # a decoder whose checkpoint has no head
        if not label:
            return examples
        note = f'labels in column "{label}" are not used: the loss is {loss or "causal"}'
        return replace(examples, notes=(*examples.notes, note))

    def _read(self, path: Path, label: str | None, name: str | None) -> ExampleSet:
        from ..training_data import ColumnChoice, read_examples

        reading = self.reading
        return read_examples(
            path,
            ColumnChoice(
                text=reading.text, label=label, pair=reading.pair, completion=reading.completion
            ),
            max_examples=reading.max_examples,
            seed=reading.seed,
            split=reading.split,
            template=self._template,
            name=name,
        )

    def make(self, examples: ExampleSet, name: str, *, beside: ExampleSet | None = None) -> DataSet:
        """The data set of some examples; `beside`: of the one that it is compared with.

        Raises:
            RequestError: the base or the examples lack what the loss needs.
        """
        from ..training_data import make_data_set

        options = self._options
        steps = self.track(range(options.parts), "groups of examples", total=options.parts)
        advance = iter(steps)
        made = make_data_set(
            self._model(examples),
            examples,
            name=name,
            base=self.base,
            recipe=self.catalog.find_recipe(self.reading.recipe, self.base),
            layout=self.catalog.base(self.base).layout,
            options=options,
            progress=lambda done, total: next(advance, None),
            beside=beside,
        )
        next(advance, None)
        return made

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

        loss = self.reading.loss
        if loss is None:
            return not predicts_next_token(self.base, self._tokenizer)
        return loss in (*LABELLED_LOSSES, "seq2seq")

    @property
    def _options(self) -> DataQueryOptions:
        from ..training_data import DataQueryOptions

        return DataQueryOptions(
            loss=self.reading.loss,
            max_tokens=self.reading.max_tokens,
            batch_size=self.reading.batch_size,
            seed=self.reading.seed,
        )

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
