"""A data set as a query that can be kept: its gradient, in groups, and with labels permuted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

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
from .data_query import DataQueryOptions, Progress, fingerprint_data
from .examples import Example, ExampleSet
from .examples.sample import places_of_every_class

PERMUTED_EXAMPLES = 128
"""Of the control with permuted labels: a quarter of the usual examples."""


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
