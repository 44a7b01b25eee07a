"""Which loss a base and a data set allow, or what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from ...errors import RequestError
from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example
from ..examples.labels import as_number
from .contrastive import ContrastiveLoss
from .fitted_head import FittedHeadLoss
from .language_model import CausalLoss
from .loss import Loss
from .masked_words import MaskedLoss
from .sequence_to_sequence import SequenceToSequenceLoss

LOSSES: tuple[LossName, ...] = get_args(LossName)

NOTHING = "there is nothing to predict; name another column as label, or draw more examples"


def choose_loss(
    model: TaskModel,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    seed: int = 0,
    wanted: LossName | None = None,
) -> Loss:
    """The loss that fine-tunes of this base would minimise on these examples.

    A base that predicts the next token takes its own loss, whatever labels there are; an encoder
    takes labels where there are some.

    Args:
        wanted: Instead of the base's usual loss.

    Raises:
        RequestError: what the base or the examples lack.
    """
    name = wanted or _usual(model, examples)
    _require_head(model, name)
    if name == "causal":
        return CausalLoss(model, max_tokens)
    if name == "seq2seq":
        if not any(example.completion or example.label is not None for example in examples):
            raise RequestError(
                f"{model.name} writes one text from another, and the data set has no second text: "
                "name the column of answers"
            )
        return SequenceToSequenceLoss(model, max_tokens)
    if name == "masked":
        return MaskedLoss(model, max_tokens, seed)
    if name == "contrastive":
        return ContrastiveLoss(model, max_tokens)
    labels = [example.label for example in examples if example.label is not None]
    if name == "regression":
        _require_numbers(labels)
        return FittedHeadLoss(model, max_tokens, "regression")
    return FittedHeadLoss(model, max_tokens, "classification", _classes(model, labels))


def _usual(model: TaskModel, examples: Sequence[Example]) -> LossName:
    """By the base's head; for encoders, labels come first."""
    if model.head == "next":
        return "causal"
    if model.head == "translated":
        return "seq2seq"
    labels = {example.label for example in examples if example.label is not None}
    if labels:
        is_number = all(isinstance(label, float) for label in labels)
        return "regression" if is_number else "classification"
    if model.head == "masked":
        return "masked"
    if model.missing_head in (None, "masked"):
        return "contrastive"
    raise RequestError(
        f"{model.name} was saved without its language-model head, and the data set has no labels: "
        "name a base with its head, or the column of labels"
    )


def _require_head(model: TaskModel, name: LossName) -> None:
    needed = {"causal": "next", "seq2seq": "translated", "masked": "masked"}.get(name)
    if needed is not None and model.head != needed:
        why = (
            "its checkpoint lacks the head"
            if model.missing_head == needed
            else "it has no such head"
        )
        raise RequestError(f"{model.name}: no {name} loss: {why}")


def _require_numbers(labels: Sequence[str | float]) -> None:
    numbers = {as_number(str(label)) for label in labels}
    if not numbers or None in numbers:
        raise RequestError("a regression needs a column of numbers as labels")
    if len(numbers) < 2:
        raise RequestError(f"every label is {labels[0]} in {len(labels)} examples: {NOTHING}")


def _classes(model: TaskModel, labels: Sequence[str | float]) -> tuple[str, ...]:
    classes = tuple(sorted({str(label) for label in labels}))
    if not classes:
        raise RequestError(
            f"{model.name}: a classification needs labels: name the column that has them"
        )
    if len(classes) == 1:
        raise RequestError(f"every label is {classes[0]!r} in {len(labels)} examples: {NOTHING}")
    return classes
