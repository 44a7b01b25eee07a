"""Classifiers trained on sums of terms: a linear layer, or one hidden layer before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ...arrays import Float32, Int64
from ...errors import StudyError
from ..report_json import JsonRecord
from .term_subsets import (
    NONE,
    SubsetPredictions,
    check_terms,
    codes_of,
    commonest,
    subset_sums,
    term_subsets,
)
from .text_split import Split, check_split

PREDICT_ROWS = 1024
"""Rows scored at a time: bounds rows × classes."""

WHAT = "tagging"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(JsonRecord):
    """How probes are trained: AdamW, cross-entropy, a fixed number of epochs.

    Attributes:
        learning_rates: Each subset takes the rate that is best on the validation items.
        runs: Trainings that differ in initial weights and in the order of items.
        seed: Of the first run; all subsets of a run start from the same weights.
        device: The device of torch.
    """

    epochs: int = 20
    batch: int = 2048
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    weight_decay: float = 0.01
    runs: int = 5
    seed: int = 0
    device: str = field(default="cpu", repr=False)

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.runs) < 1:
            raise ValueError(
                f"epochs, batch and runs must be at least 1, "
                f"got {self.epochs}, {self.batch}, {self.runs}"
            )
        if not self.learning_rates or min(self.learning_rates) <= 0 or self.weight_decay < 0:
            raise ValueError(
                "learning_rates must be positive and weight_decay not negative, "
                f"got {self.learning_rates}, {self.weight_decay}"
            )

    def settings(self) -> dict[str, object]:
        """Everything that is needed to train again, for JSON."""
        return {"optimiser": "AdamW"} | self.to_json()


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows and their class codes; `NONE` for a class that the probe does not have."""

    rows: Float32[np.ndarray, "items dim"]
    codes: Int64[np.ndarray, " items"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A trained classifier of rows of numbers, which are divided by `scale` first."""

    layers: torch.nn.Module
    scale: float
    device: str

    def predict(self, rows: Float32[np.ndarray, "items dim"]) -> Int64[np.ndarray, " items"]:
        """The class of the highest score; of equal scores the first."""
        predicted = [scores.argmax(dim=1).numpy() for scores in self._scores(rows)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *predicted])

    def quality(self, data: Labelled) -> tuple[float, float]:
        """(accuracy, minus the mean cross-entropy over items of known class)."""
        accuracy = float(np.mean(self.predict(data.rows) == data.codes))
        known = data.codes != NONE
        if not known.any():
            return accuracy, -math.inf
        codes = torch.split(torch.from_numpy(data.codes[known]), PREDICT_ROWS)
        total = sum(
            float(torch.nn.functional.cross_entropy(scores, target, reduction="sum"))
            for scores, target in zip(self._scores(data.rows[known]), codes, strict=True)
        )
        return accuracy, -math.inf if math.isnan(total) else -total / np.count_nonzero(known)

    def _scores(self, rows: Float32[np.ndarray, "items dim"]) -> Iterator[torch.Tensor]:
        """Scores of the classes, `PREDICT_ROWS` rows at a time."""
        for start in range(0, len(rows), PREDICT_ROWS):
            block = torch.from_numpy(rows[start : start + PREDICT_ROWS]).to(self.device)
            with torch.no_grad():
                scores = self.layers(block / self.scale).cpu()
            yield scores


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
    measure: str,
    settings: Mapping[str, object],
) -> SubsetPredictions:
    """Predictions on the test items of probes that are trained on each subset's sum.

    Args:
        classes: Targets that occur in the training part, ascending; others are never predicted.
        hidden: Width of the hidden layer; None for a linear layer.
    """
    subsets, codes = term_subsets(names), codes_of(targets, classes)
    predicted = np.empty((training.runs, len(subsets), len(split.test)), dtype=np.int64)
    rates: dict[str, float] = {}
    for row, total in enumerate(subset_sums(terms, subsets)):
        train, validation = (
            Labelled(total[part], codes[part]) for part in (split.train, split.validation)
        )
        probes, rate = train_runs(train, validation, len(classes), training, hidden)
        rates[subsets[row].label] = rate
        for run, probe in enumerate(probes):
            predicted[run, row] = probe.predict(total[split.test])
    return SubsetPredictions(
        measure=measure,
        names=tuple(names),
        predicted=classes[predicted],
        targets=targets[split.test],
        baseline=np.full(len(split.test), commonest(targets[split.train])),
        text=text[split.test],
        settings={**settings, "training": training.settings(), "chosen_learning_rates": rates},
    )


def train_runs(
    train: Labelled, validation: Labelled, n_classes: int, training: Training, hidden: int | None
) -> tuple[list[Probe], float]:
    """A probe for each run, and the learning rate that was best on the validation items.

    The rate is chosen with the first run's seed: by accuracy, then by cross-entropy, then the
    first of the list.
    """
    firsts = [
        train_probe(train, n_classes, training, rate, training.seed, hidden)
        for rate in training.learning_rates
    ]
    best = 0  # without a choice there may be no validation items
    if len(firsts) > 1:
        best = max(range(len(firsts)), key=lambda i: firsts[i].quality(validation))
    rate = training.learning_rates[best]
    rest = [
        train_probe(train, n_classes, training, rate, training.seed + run, hidden)
        for run in range(1, training.runs)
    ]
    return [firsts[best], *rest], rate


def train_probe(
    train: Labelled,
    n_classes: int,
    training: Training,
    learning_rate: float,
    seed: int,
    hidden: int | None,
) -> Probe:
    """A linear layer dim → classes, or dim → hidden → classes with ReLU between.

    Rows are divided by the root mean square of all training entries, so that the same learning
    rates suit short and long terms. Torch's global generator is not changed.
    Peak: the rows, and batch × classes three times.
    """
    scale = float(np.sqrt(np.mean(np.square(train.rows, dtype=np.float64)))) or 1.0
    dim = train.rows.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # of the initial weights
        layers = (
            torch.nn.Linear(dim, n_classes)
            if hidden is None
            else torch.nn.Sequential(
                torch.nn.Linear(dim, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, n_classes)
            )
        ).to(training.device)
    rows = torch.from_numpy(train.rows).to(training.device) / scale
    codes = torch.from_numpy(train.codes).to(training.device)
    optimiser = torch.optim.AdamW(
        layers.parameters(), lr=learning_rate, weight_decay=training.weight_decay
    )
    order = torch.Generator().manual_seed(seed)
    for _ in range(training.epochs):
        shuffled = torch.randperm(len(codes), generator=order).to(training.device)
        for batch in torch.split(shuffled, training.batch):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(layers(rows[batch]), codes[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return Probe(layers, scale, training.device)


TRAINING = Training(batch=128, runs=5)


def tagging_probe(
    terms: Float32[np.ndarray, "terms words dim"],
    tags: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training = TRAINING,
) -> SubsetPredictions:
    """The tags of test words by a network dim → dim → tags with ReLU, trained on each subset.

    Tags are coded in sorted order. A tag that only the test part has always counts as wrong.
    The split is the same in all runs.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        split: Training, validation and test words; drawn by text, 80/10/10, if not given.
        training: At least 3 runs, so that their spread means something.

    Raises:
        StudyError: one tag only, NaN terms, or an empty part of the split.
    """
    check_terms(terms, names, WHAT)
    if training.runs < 3:
        raise ValueError(f"training.runs must be at least 3, got {training.runs}")
    kinds, targets = np.unique(np.array(tags, dtype=str), return_inverse=True)
    targets = targets.astype(np.int64)
    several_rates = len(training.learning_rates) > 1
    split, text = check_split(
        split, len(targets), WHAT, text=text, seed=split_seed, validation=several_rates
    )
    classes = np.unique(targets[split.train])
    if len(classes) < 2:
        raise StudyError(
            f"{WHAT}: the training part has one tag, {str(kinds[classes[0]])!r}; "
            "give words of two tags or more"
        )
    return probe_subsets(
        terms,
        targets,
        classes,
        names,
        split,
        training,
        hidden=terms.shape[2],
        text=text,
        measure="tagging, one hidden layer",
        settings={
            "baseline": "commonest training tag",
            "split": split.sizes(),
            "tags": kinds.tolist(),
        },
    )
