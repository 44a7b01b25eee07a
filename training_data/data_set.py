"""A data set as a query that can be kept: its gradient, in groups, and with labels permuted.

And two of them made comparable: as many examples of each, and none that is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from ..errors import RequestError
from ..indexer import Layout
from ..records import (
    GROUP,
    LABELLED_LOSSES,
    PERMUTED,
    WHOLE,
    DataFingerprint,
    DataSet,
    Recipe,
)
from ..study.network import TaskModel
from .data_query import FEWEST, DataQueryOptions, Progress, fingerprint_data
from .examples import Example, ExampleSet, places_of_every_class

PERMUTED_EXAMPLES = 128
"""Of the control with permuted labels: a quarter of the usual examples."""

FEWEST_MATCHED = 4 * FEWEST
"""Of each of two data sets that are compared: four groups."""


def wants_labels(examples: ExampleSet, options: DataQueryOptions) -> bool:
    """Whether an encoder is fine-tuned on these with a head for labels."""
    if options.loss is None:
        return examples.kind in ("classes", "numbers")
    return options.loss in LABELLED_LOSSES


def make_data_set(
    model: TaskModel,
    examples: ExampleSet,
    *,
    name: str,
    base: str,
    recipe: Recipe,
    layout: Layout,
    options: DataQueryOptions,
    progress: Progress | None = None,
    beside: ExampleSet | None = None,
) -> DataSet:
    """The data set as a query. Nothing of it holds a text or the name of a class.

    Args:
        base: The family's name in the catalog.
        recipe, layout: Of the family.
        beside: A data set that it will be compared with, group by group: a head of classes or
            numbers is fitted on both, so that it favours neither.

    Raises:
        RequestError: the base or the examples lack what a loss needs.
        ModelError: the base's layer matrices are not known, or its gradient is not finite.
    """
    others = () if beside is None else beside.examples
    made = fingerprint_data(
        model, examples.examples, recipe, layout, options, progress, beside=others
    )
    sketches = {WHOLE: made.sketches}
    sketches |= {f"{GROUP} {number}": part for number, part in enumerate(made.parts)}
    control = _with_permuted_labels(examples.examples, options.seed)
    if made.loss in LABELLED_LOSSES and len({example.label for example in control}) > 1:
        alone = replace(options, parts=1, loss=made.loss)
        permuted = fingerprint_data(model, control, recipe, layout, alone)
        sketches[f"{PERMUTED} 0"] = permuted.sketches
    return DataSet(
        name=name,
        base=base,
        loss=made.loss,
        sha256=examples.sha256,
        examples=made.examples,
        settings={
            **asdict(options),
            "loss": made.loss,
            "draw_seed": examples.seed,
            "split": examples.split,
            **_shared_head(made.loss, examples, beside),
            "columns": {found.part: found.column for found in examples.found},
        },
        counts=_counts(examples, made),
        fingerprint=made.fingerprint,
        sketches=sketches,
    )


def _shared_head(loss: str, examples: ExampleSet, beside: ExampleSet | None) -> dict[str, str]:
    """Which two files a head was fitted on, the same for either of them."""
    if beside is None or loss not in LABELLED_LOSSES:
        return {}
    return {"head": " + ".join(sorted(one.sha256[:12] for one in (examples, beside)))}


def _with_permuted_labels(examples: Sequence[Example], seed: int) -> list[Example]:
    """The first `PERMUTED_EXAMPLES`, every class among them if they can hold it."""
    labels = [example.label for example in examples]
    places = places_of_every_class(labels, PERMUTED_EXAMPLES)
    order = np.random.default_rng([seed, len(places)]).permutation(len(places)).tolist()
    return [
        replace(examples[place], label=labels[places[other]])
        for place, other in zip(places, order, strict=True)
    ]


def _counts(examples: ExampleSet, made: DataFingerprint) -> dict[str, object]:
    return {
        "rows": examples.rows,
        "skipped": {skip.reason: skip.rows for skip in examples.skipped},
        "classes": made.classes,
        "predicted": made.predicted,
        "tokens": made.tokens,
        "mean_loss": made.mean_loss,
    }


def matched_examples(
    data: ExampleSet, control: ExampleSet
) -> tuple[ExampleSet, ExampleSet, tuple[str, ...]]:
    """The two with as many examples of each, and sentences about what was left out.

    Left out are examples that are in both, and those of a class that one of the files lacks. Both
    keep the beginning of their draw, with one example at least of each class.

    Raises:
        RequestError: they are the same file, have other columns or classes, or too few differ.
    """
    if data.sha256 == control.sha256:
        raise RequestError(f"{control.source} is the same file as {data.source}")
    if data.kind != control.kind:
        raise RequestError(
            f"{data.source} has {data.kind}, {control.source} {control.kind}: name the columns of "
            "both alike with --text and --label"
        )
    classes, others = ({count.name for count in one.classes} for one in (data, control))
    alone = classes ^ others
    if alone and len(classes & others) < 2:
        raise RequestError(
            f"{data.source} has the classes {_listed(classes)}, {control.source} "
            f"{_listed(others)}: a control has the same"
        )
    texts = [
        {_content(example) for example in one.examples if example.label not in alone}
        for one in (data, control)
    ]
    shared = texts[0] & texts[1]
    left = [
        [
            example
            for example in one.examples
            if example.label not in alone and _content(example) not in shared
        ]
        for one in (data, control)
    ]
    n = min(map(len, left))
    notes = []
    if alone:
        notes.append(f"left out: classes that only one of the two has ({_listed(alone)})")
    if shared:
        notes.append(
            f"left out: {len(shared)} of {len(data.examples)} examples "
            f"({len(shared) / len(data.examples):.0%}) that {control.source} has too; a control "
            "shares none"
        )
    if n < FEWEST_MATCHED:
        raise RequestError(
            f"{data.source} and {control.source} have {n} examples each to compare"
            f"{'; '.join(['', *notes])}; at least {FEWEST_MATCHED} are needed"
        )
    first, second = (
        replace(one, examples=_beginning(examples, n, are_classes=bool(one.classes)))
        for one, examples in zip((data, control), left, strict=True)
    )
    return first, second, tuple(notes)


def _beginning(examples: Sequence[Example], n: int, *, are_classes: bool) -> tuple[Example, ...]:
    labels = [example.label if are_classes else None for example in examples]
    return tuple(examples[place] for place in places_of_every_class(labels, n))


def _content(example: Example) -> tuple[str, str, str]:
    return example.text, example.pair, example.completion


def _listed(names: set[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:most])
    return shown + (", …" if len(names) > most else "")
