"""A file of examples becomes a fingerprint, which a catalog may keep."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import RequestError, offered
from ...options import Place, as_kind, option, record
from ...records import LABELLED_LOSSES, DataSet, LossName
from ..face.opened import Family, Track

if TYPE_CHECKING:
    from ...data import ExampleSet
    from ...store import Catalog
    from ...study.network.language_head import TaskModel


NAME = re.compile(r"[\w][\w .+@-]{0,99}")
"""What a kept data set may be called."""


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
        default=512, least=8, help="Number of examples, at most, drawn by a hash of their texts."
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

    def kept(self, data: Place, *, only: bool = False) -> DataSet | None:
        """A kept data set of that name, where no file has it; with `only`, whatever files are."""
        catalog, base = self.catalog, self.base
        kept = {row["name"] for row in catalog.data_sets.listed(base)}
        if only and str(data) not in kept:
            raise RequestError(f"no kept data set {str(data)!r}{offered(str(data), kept, 'kept')}")
        if str(data) not in kept or (not only and Path(data).exists()):
            return None
        found = catalog.data_sets.load(str(data), base)
        wanted = catalog.find_recipe(self.reading.recipe, base)
        if found.fingerprint.recipe.id != wanted.id:
            raise RequestError(
                f"{data} was kept under recipe {found.fingerprint.recipe.id}, and models are "
                f"compared under {wanted.id}: name its file, and keep it again"
            )
        return found

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
        from ...data import ColumnChoice, chat_template, read_examples

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
        from ...data import DataQueryOptions, make_data_set

        options = as_kind(DataQueryOptions, self.reading)
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
        from ...study.network.language_head import load_tokenizer

        return load_tokenizer(self.base)

    @cached_property
    def _takes_labels(self) -> bool:
        """Whether the loss may use labels, as far as the options and the architecture say."""
        from ...study.network.language_head import predicts_next_token

        loss = self.reading.loss
        if loss is None:
            return not predicts_next_token(self.base, self._tokenizer)
        return loss in (*LABELLED_LOSSES, "seq2seq")

    def _model(self, examples: ExampleSet) -> TaskModel:
        from ...data import DataQueryOptions, require_same_base, wants_labels
        from ...study.network.language_head import load_task_model
        from ...study.study import usable_device

        labelled = wants_labels(examples, as_kind(DataQueryOptions, self.reading))
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
