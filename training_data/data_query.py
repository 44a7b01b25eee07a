"""From examples to a fingerprint: one backward pass of the base, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..errors import ModelError, RequestError
from ..indexer import Layout
from ..records import DataFingerprint, LossName, Recipe
from ..study.network import TaskModel
from .examples import Example
from .gradients import GradientSums, columns_of, layer_matrices
from .losses import EncodedExample, Loss, choose_loss

PARTS = 8
"""Disjoint groups of examples, each with a fingerprint of its own."""

FEWEST = 8
"""Examples with something to predict."""

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
    """How a data set becomes a fingerprint.

    Attributes:
        loss: Instead of the base's usual loss.
        max_tokens: Of each text; further ones are cut.
        batch_size: Examples that are run at once.
        parts: Disjoint groups of examples; fewer where there are few examples.
        seed: Of what examples a group has, of masks and dropout.
        streamed: Keep sketches of the gradients and not the gradients; None decides by size.
    """

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
    """The fingerprint of −∇ of the mean loss over examples, as if it were a full fine-tune's ΔW.

    The order of the examples does not matter. Peak: the model, the activations of one batch, and
    up to 500 MiB.

    Args:
        recipe: Of the family that is asked.
        layout: Of the family, for recipes that depend on it.
        beside: Examples of another data set; a head is fitted on both, for the classes of both.

    Raises:
        RequestError: the base or the examples lack what a loss needs, or too few are left.
        ModelError: the base's layer matrices are not known, or its gradient is not finite.
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
