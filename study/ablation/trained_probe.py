"""Classifiers trained on sums of terms: a linear layer, or one hidden layer before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ...arrays import Bool, Float32, Int64
from .rate_search import Labelled, Training, train_runs
from .subset_results import Keep, SubsetResult, chosen_rates, keep_nothing
from .term_subsets import NONE, Subset, SubsetPredictions, codes_of, commonest, term_subsets
from .text_split import Split

PREDICT_ROWS = 1024
"""Rows scored at a time: bounds rows × classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeShape:
    """What a probe computes.

    Attributes:
        n_classes: Width of the output.
        hidden: Width of the hidden layer with ReLU; None for a linear layer.
        allowed: Classes of each lemma, the only ones that it is scored on; None for all of them.
    """

    n_classes: int
    hidden: int | None
    allowed: Bool[np.ndarray, "lemmas classes"] | None = None

    def layers(self, dim: int, seed: int) -> torch.nn.Module:
        """The layers with fresh weights; torch's global generator is not changed."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if self.hidden is None:
                return torch.nn.Linear(dim, self.n_classes)
            return torch.nn.Sequential(
                torch.nn.Linear(dim, self.hidden),
                torch.nn.ReLU(),
                torch.nn.Linear(self.hidden, self.n_classes),
            )


@dataclass(frozen=True, slots=True)
class Rows:
    """The training items as tensors, divided by the root mean square of all their entries.

    So the same learning rates suit short and long terms.
    """

    rows: Float32[torch.Tensor, "items dim"]
    codes: Int64[torch.Tensor, " items"]
    lemma: Int64[torch.Tensor, " items"]
    scale: float

    @classmethod
    def of(cls, data: Labelled, device: str) -> Rows:
        scale = float(np.sqrt(np.mean(np.square(data.rows, dtype=np.float64)))) or 1.0
        rows = torch.from_numpy(data.rows).to(device) / scale
        codes, lemma = (torch.from_numpy(a).to(device) for a in (data.codes, data.lemma))
        return cls(rows, codes, lemma, scale)


@dataclass(slots=True)
class LayerProbe:
    """A classifier in training. Peak: the rows, and batch × classes three times."""

    shape: ProbeShape
    data: Rows
    training: Training
    learning_rate: float
    seed: int
    _layers: torch.nn.Module = field(init=False)
    _optimiser: torch.optim.Optimizer = field(init=False)
    _order: torch.Generator = field(init=False)
    _allowed: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        device = self.training.device
        self._layers = self.shape.layers(self.data.rows.shape[1], self.seed).to(device)
        self._optimiser = torch.optim.AdamW(
            self._layers.parameters(),
            lr=self.learning_rate,
            weight_decay=self.training.weight_decay,
            fused=True,
        )
        self._order = torch.Generator().manual_seed(self.seed)
        if self.shape.allowed is not None:
            self._allowed = torch.from_numpy(self.shape.allowed).to(device)

    def train(self, epochs: int) -> None:
        """Train so many epochs more."""
        data = self.data
        for _ in range(epochs):
            shuffled = torch.randperm(len(data.codes), generator=self._order)
            for batch in torch.split(shuffled.to(data.codes.device), self.training.batch):
                self._optimiser.zero_grad()
                scores = self._score(data.rows[batch], data.lemma[batch])
                torch.nn.functional.cross_entropy(scores, data.codes[batch]).backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()

    def predict(self, data: Labelled) -> Int64[np.ndarray, " items"]:
        """The class of the highest score; of equal scores the first."""
        predicted = [scores.argmax(dim=1).numpy() for scores in self._scores(data)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *predicted])

    def quality(self, data: Labelled) -> tuple[float, float]:
        """(accuracy, minus the mean cross-entropy over items of known class)."""
        accuracy = float(np.mean(self.predict(data) == data.codes))
        known = data.part(np.flatnonzero(data.codes != NONE))
        if not len(known.codes):
            return accuracy, -math.inf
        codes = torch.split(torch.from_numpy(known.codes), PREDICT_ROWS)
        total = sum(
            float(torch.nn.functional.cross_entropy(scores, target, reduction="sum"))
            for scores, target in zip(self._scores(known), codes, strict=True)
        )
        return accuracy, -math.inf if math.isnan(total) else -total / len(known.codes)

    def _score(self, rows: torch.Tensor, lemma: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self._layers(rows)
        if self._allowed is None:
            return scores
        return scores.masked_fill(~self._allowed[lemma], -math.inf)

    def _scores(self, data: Labelled) -> Iterator[torch.Tensor]:
        """Scores of the classes, `PREDICT_ROWS` rows at a time."""
        device = self.training.device
        for start in range(0, len(data.rows), PREDICT_ROWS):
            here = slice(start, start + PREDICT_ROWS)
            rows, lemma = (torch.from_numpy(a[here]).to(device) for a in (data.rows, data.lemma))
            with torch.no_grad():
                yield self._score(rows / self.data.scale, lemma).cpu()


def probe_subsets(
    terms: Float32[np.ndarray, "terms items dim"],
    targets: Int64[np.ndarray, " items"],
    classes: Int64[np.ndarray, " classes"],
    names: Sequence[str],
    split: Split,
    training: Training,
    *,
    hidden: int | None,
    text: Int64[np.ndarray, " items"],
    key: str,
    measure: str,
    settings: Mapping[str, object],
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """Predictions on the test items of probes that are trained on each subset's sum.

    Without terms a probe has nothing but the frequencies of classes, so the empty subset predicts
    the commonest training class; nothing is trained for it.

    Args:
        classes: Targets that occur in the training part, ascending; others are never predicted.
        hidden: Width of the hidden layer; None for a linear layer.
        key: Of the measure, for `keep`.
    """
    codes, lemma = codes_of(targets, classes), np.zeros(len(targets), dtype=np.int64)
    shape = ProbeShape(n_classes=len(classes), hidden=hidden)
    baseline = np.full(len(split.test), commonest(targets[split.train]))

    def result(subset: Subset) -> SubsetResult:
        if not subset.members:
            return SubsetResult(np.tile(baseline, (training.runs, 1)))
        predicted, rate = train_and_predict(
            Labelled(subset.sum(terms), codes, lemma), split, shape, training
        )
        return SubsetResult(classes[predicted], rate)

    subsets = term_subsets(names)
    results = [keep(key, subset.label, lambda s=subset: result(s)) for subset in subsets]  # type: ignore[misc]
    return SubsetPredictions(
        measure=measure,
        names=tuple(names),
        predicted=np.stack([r.predicted for r in results], axis=1),
        targets=targets[split.test],
        baseline=baseline,
        text=text[split.test],
        settings={**settings, "training": training.settings(), **chosen_rates(subsets, results)},
    )


def train_and_predict(
    data: Labelled, split: Split, shape: ProbeShape, training: Training
) -> tuple[Int64[np.ndarray, "runs test"], float]:
    """Predictions on the test items of a probe for each run, and the learning rate."""
    rows = Rows.of(data.part(split.train), training.device)
    probes, rate = train_runs(
        lambda rate, seed: LayerProbe(shape, rows, training, rate, seed),
        data.part(split.validation),
        training,
    )
    test = data.part(split.test)
    return np.stack([probe.predict(test) for probe in probes]), rate
