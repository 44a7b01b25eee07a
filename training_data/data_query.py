"""Examples as a query that can be kept: a backward pass of the base, in groups of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import nn

from ..errors import ModelError, RequestError
from ..indexer import Layout
from ..records import (
    GROUP,
    LABELLED_LOSSES,
    PERMUTED,
    WHOLE,
    DataFingerprint,
    DataSet,
    LossName,
    Recipe,
)
from ..study.network import TaskModel
from .examples import Example, ExampleSet, places_of_every_class
from .gradients import GradientSums, columns_of, layer_matrices
from .losses import EncodedExample, Loss, choose_loss

PARTS = 8
"""Disjoint groups of examples, each with a fingerprint of its own."""

FEWEST = 8
SPECTRUM_POWERS: dict[LossName, float] = {
    "causal": 0.0,
    "seq2seq": 0.0,
    "masked": 0.0,
    "classification": 0.5,
    "regression": 0.5,
    "contrastive": 0.5,
}
"""What singular values of a gradient are raised to: see `gradients.py`. Tokens of a
vocabulary give gradients of many directions that hold data; a few classes give few. Measured for
`causal` and `classification`; the others follow the nearer of the two."""

Progress = Callable[[int, int], object]
"""Told how many examples of how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataQueryOptions:
    """How a data set becomes a fingerprint: with `loss` instead of the base's usual one, texts cut
    to `max_tokens`, in disjoint groups (fewer of few examples). The seed decides groups, masks and
    dropout. `streamed` keeps sketches of the gradients and not the gradients; None decides by
    size."""

    loss: LossName | None = None
    max_tokens: int = 128
    batch_size: int = 16
    parts: int = PARTS
    seed: int = 0
    streamed: bool | None = None


DEFAULT = DataQueryOptions()


def fingerprint_data(
    model: TaskModel,
    examples: Sequence[Example],
    recipe: Recipe,
    layout: Layout = (),
    options: DataQueryOptions = DEFAULT,
    progress: Progress | None = None,
    beside: Sequence[Example] = (),
) -> DataFingerprint:
    """The fingerprint of −∇ of the mean loss over examples, as if it were a full fine-tune's ΔW,
    whatever their order; a head is fitted on the classes of examples `beside` them too. Peak: the
    model, the activations of one batch, and up to 500 MiB.

    Raises RequestError where the base or the examples lack what a loss needs, or too few are left;
    ModelError where the base's layer matrices are not known, or its gradient is not finite.
    """
    if recipe.share < 1:
        raise RequestError(
            f"recipe {recipe.id} reads some rows of a model; a data set needs a recipe that reads "
            "whole matrices: index the family without --budget"
        )
    fitted_on = [*examples, *beside]
    loss = choose_loss(
        model, fitted_on, max_tokens=options.max_tokens, seed=options.seed, wanted=options.loss
    )
    encoded = loss.encode(sorted(examples, key=_sort_key))
    if len(encoded) < FEWEST:
        raise RequestError(
            f"{len(encoded)} examples have something to predict; at least {FEWEST} are needed"
        )
    loss.prepare(loss.encode(sorted(fitted_on, key=_sort_key)), options.batch_size)
    power = SPECTRUM_POWERS[loss.name]
    matrices = layer_matrices(model.whole, model.config.to_dict())
    columns = columns_of(matrices, options.streamed)
    total = GradientSums(matrices, columns, model.device)
    parts = []
    run = _Run(model, loss, options)
    groups = _groups(encoded, options)
    for number, group in enumerate(groups):
        sums = GradientSums(matrices, columns, model.device)
        with sums.collecting(model.whole), _dropout(model.whole, loss, options.seed + number):
            predicted = run.backward(group)
        part = sums.pooled(recipe, layout, scale=1.0 / predicted, power=power)
        parts.append({stats.slot: stats.sketch for stats in part.statistics() if stats.sketch})
        total.add_sums(sums)
        if progress is not None:
            progress(sum(len(done) for done in groups[: number + 1]), len(encoded))
    pool = total.pooled(recipe, layout, scale=1.0 / run.predicted, power=power)
    fingerprint = pool.fingerprint()
    if not fingerprint.norm > 0.0:
        raise ModelError("no-update", f"{model.name}: the gradient of these examples is 0")
    return DataFingerprint(
        fingerprint=fingerprint,
        slots=pool.statistics(),
        linear=pool.linear_sketch(),
        parts=tuple(parts),
        loss=loss.name,
        mean_loss=run.loss_sum / run.predicted,
        examples=len(encoded),
        predicted=run.predicted,
        tokens=sum(len(example.ids) for example in encoded),
        classes=len(getattr(loss, "classes", ())),
    )


@dataclass(slots=True)
class _Run:
    """Losses of all groups so far."""

    model: TaskModel
    loss: Loss
    options: DataQueryOptions
    loss_sum: float = 0.0
    predicted: int = 0

    def backward(self, group: Sequence[EncodedExample]) -> int:
        """Run a group forward and backward, in batches of like length; how many are predicted."""
        in_order = sorted(group, key=lambda example: len(example.ids))
        predicted = 0
        for first in range(0, len(in_order), self.options.batch_size):
            batch = in_order[first : first + self.options.batch_size]
            loss, n_predicted = self.loss.total(batch)
            value = float(loss.detach())
            if not np.isfinite(value):
                raise ModelError("non-finite", f"{self.model.name}: the loss is {value}")
            loss.backward()  # type: ignore[no-untyped-call]
            self.loss_sum += value
            predicted += n_predicted
        self.predicted += predicted
        return predicted


def _sort_key(example: Example) -> tuple[str, str, str, str]:
    return example.text, example.pair, example.completion, str(example.label)


def _groups(
    encoded: Sequence[EncodedExample], options: DataQueryOptions
) -> list[list[EncodedExample]]:
    """Disjoint groups of equal size, at random but with each class in equal shares."""
    n_groups = max(1, min(options.parts, len(encoded) // FEWEST))
    order = np.random.default_rng(options.seed).permutation(len(encoded)).tolist()
    order.sort(key=lambda row: encoded[row].value)  # stable: at random inside of a class
    return [[encoded[row] for row in order[number::n_groups]] for number in range(n_groups)]


@contextmanager
def _dropout(model: nn.Module, loss: Loss, seed: int) -> Iterator[None]:
    """With dropout for losses that need it, by a seed that nothing else is drawn from."""
    if not loss.needs_dropout:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        try:
            yield
        finally:
            model.eval()


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
    """The data set as a query of a family's recipe and layout; nothing of it holds a text or the
    name of a class. A head of classes or numbers is fitted also on the data set `beside` that it
    will be compared with, so that it favours neither. Raises as `fingerprint_data`."""
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
    head = {}
    if beside is not None and made.loss in LABELLED_LOSSES:
        # the same for either of the two files that it was fitted on
        head["head"] = " + ".join(sorted(one.sha256[:12] for one in (examples, beside)))
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
            **head,
            "columns": {found.part: found.column for found in examples.found},
        },
        counts={
            "rows": examples.rows,
            "skipped": {skip.reason: skip.rows for skip in examples.skipped},
            "classes": made.classes,
            "predicted": made.predicted,
            "tokens": made.tokens,
            "mean_loss": made.mean_loss,
        },
        fingerprint=made.fingerprint,
        sketches=sketches,
    )


def _with_permuted_labels(examples: Sequence[Example], seed: int) -> list[Example]:
    """The first `PERMUTED_EXAMPLES`, every class among them if they can hold it."""
    labels = [example.label for example in examples]
    places = places_of_every_class(labels, PERMUTED_EXAMPLES)
    order = np.random.default_rng([seed, len(places)]).permutation(len(places)).tolist()
    return [
        replace(examples[place], label=labels[places[other]])
        for place, other in zip(places, order, strict=True)
    ]


def matched_examples(
    data: ExampleSet, control: ExampleSet
) -> tuple[ExampleSet, ExampleSet, tuple[str, ...]]:
    """The two with as many examples of each, and sentences about what was left out: examples that
    are in both, and those of a class that one of the files lacks. Both keep the beginning of their
    draw, with one example at least of each class.

    Raises RequestError: they are the same file, have other columns or classes, or too few differ.
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
