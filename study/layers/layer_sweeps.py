"""The layer classifier's accuracy by context length, by number of texts, and by model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...arrays import Bool, Int64
from ..report_json import JsonRecord
from .layer_classifier import LayerClassifier, fit_classifier
from .layer_rows import SPLIT_STREAM, Split
from .layer_scores import Score, difference_error

SAME_TEXTS = "every row is scored on the same held-back texts"
SAMPLED_TEXTS = f"{SAME_TEXTS}, as far as they have a sampled token"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint(JsonRecord):
    """The classifier's accuracy at one value of what is varied.

    Attributes:
        value: Tokens that a text is cut to, or texts that the classifier learns from.
        n_reaching: Texts with at least so many tokens; None where texts are varied.
        n_texts: Texts with rows, held-back ones too.
        n_tokens: Tokens with rows, those of held-back texts too.
        score: Of a classifier trained for this point.
        difference: Its accuracy less that of the first point; None at the first.
        difference_error: Standard error of the difference, paired by text.
    """

    value: int
    n_reaching: int | None
    n_texts: int
    n_tokens: int
    score: Score = field(repr=False)
    difference: float | None
    difference_error: float | None

    def to_json(self) -> dict[str, Any]:
        """The fields, with those of the score beside them."""
        return JsonRecord.to_json(self) | self.score.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(JsonRecord):
    """Accuracies at ascending values.

    Attributes:
        variable: What is varied: tokens of a text, or texts to learn from.
        n_examined: Texts that were looked at for their length; None where texts are varied.
        held_back: How the points' held-back texts are related, in words.
        skipped: Values that could not be measured, and why.
    """

    variable: Literal["context", "texts"]
    n_examined: int | None
    held_back: str
    points: tuple[SweepPoint, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPoint(JsonRecord):
    """The layer classifier's accuracy on one model, beside its size.

    Attributes:
        n_parameters: Of the model without its head; shared ones count once.
        n_layers: Blocks.
        dim: Width of the hidden states.
        above_chance: (accuracy − chance) / (1 − chance), which does not depend on the number of
            layers: 0 at chance, 1 without an error (Bennett, Alpert and Goldstein 1954).
    """

    model: str
    n_parameters: int
    n_layers: int
    dim: int
    score: Score = field(repr=False)

    @property
    def above_chance(self) -> float:
        return (self.score.accuracy - self.score.chance) / (1.0 - self.score.chance)

    def to_json(self) -> dict[str, Any]:
        """The fields, with those of the score beside them."""
        return JsonRecord.to_json(self) | {"above_chance": self.above_chance} | self.score.to_json()


def texts_sweep(
    split: Split, sizes: Sequence[int], classifier: LayerClassifier, *, seed: int = 0
) -> Sweep:
    """Accuracies of classifiers that learn from some of the training texts; more texts hold all
    fewer texts.

    A text brings all tokens that it has in the sample, so that rows grow with texts.
    """
    texts = np.unique(split.train.text)
    keys = np.random.default_rng([seed, SPLIT_STREAM + 1]).random(int(texts[-1]) + 1)[texts]
    order = texts[np.argsort(keys, kind="stable")]
    points: list[_Scored] = []
    skipped = []
    for size in sorted(set(sizes)):
        if size > len(order):
            skipped.append(f"{size} texts: the classifier learns from {len(order)}")
            continue
        part = split.train.only(np.isin(split.train.text, order[:size]))
        points.append(_Scored(size, None, Split(part, split.test), start=classifier))
    return Sweep(
        variable="texts",
        n_examined=None,
        held_back=SAME_TEXTS,
        points=_points(points),
        skipped=tuple(skipped),
    )


def context_points(
    splits: Iterable[tuple[int, int, Split]],
) -> tuple[SweepPoint, ...]:
    """Accuracies at (context length, texts that reach it, rows)."""
    scored: list[_Scored] = []
    for context, n_reaching, split in splits:
        start = scored[-1].classifier if scored else None
        scored.append(_Scored(context, n_reaching, split, start=start))
    return _points(scored)


class _Scored:
    """A classifier of one point, and which held-back rows it gets right."""

    def __init__(
        self,
        value: int,
        n_reaching: int | None,
        split: Split,
        *,
        start: LayerClassifier | None,
    ) -> None:
        self.value, self.n_reaching = value, n_reaching
        self.classifier = fit_classifier(split.train, start=start)
        predicted = self.classifier.predict(split.test.vectors)
        self.score = self.classifier.score_of(predicted, split.test)
        self.right: Bool[np.ndarray, " rows"] = predicted == split.test.layer
        self.text: Int64[np.ndarray, " rows"] = split.test.text
        self.n_texts = split.train.n_texts + split.test.n_texts
        self.n_tokens = split.train.n_tokens + split.test.n_tokens


def _points(scored: Sequence[_Scored]) -> tuple[SweepPoint, ...]:
    def point(place: int, one: _Scored) -> SweepPoint:
        first = scored[0]
        return SweepPoint(
            value=one.value,
            n_reaching=one.n_reaching,
            n_texts=one.n_texts,
            n_tokens=one.n_tokens,
            score=one.score,
            difference=one.score.accuracy - first.score.accuracy if place else None,
            difference_error=(
                difference_error(one.right, one.text, first.right, first.text) if place else None
            ),
        )

    return tuple(point(place, one) for place, one in enumerate(scored))
