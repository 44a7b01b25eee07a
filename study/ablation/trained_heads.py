"""Heads that scikit-learn trains on sums of terms, with one search of their learning rate."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from ...arrays import Bool, Float32, Float64, Int64
from ..report_json import JsonRecord
from .subset_predictions import NONE, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(JsonRecord):
    """How heads are trained: Adam, cross-entropy, a fixed number of epochs.

    Attributes:
        learning_rates: Of which each subset takes one, by the validation items (`train_heads`).
        weight_decay: scikit-learn's `alpha`.
        runs: Trainings that differ in initial weights and in the order of items.
        seed: Of the first run; all subsets of a run start from the same weights.
    """

    epochs: int = 20
    batch: int = 256
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    weight_decay: float = 0.01
    runs: int = 3
    seed: int = 0

    def settings(self) -> dict[str, object]:
        """Everything that is needed to train again, for JSON."""
        return {"optimiser": "Adam"} | self.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRows:
    """Rows, their class codes, and the code of each row's lemma.

    Attributes:
        codes: `NONE` for a class that is not learnt.
        allowed: The classes of each lemma, the only ones that are answers.
    """

    rows: Float32[np.ndarray, "items dim"]
    codes: Int64[np.ndarray, " items"]
    lemma: Int64[np.ndarray, " items"]
    allowed: Bool[np.ndarray, "lemmas classes"]

    def only(self, items: Int64[np.ndarray, " part"]) -> CodedRows:
        """Some of the items."""
        return CodedRows(
            rows=self.rows[items],
            codes=self.codes[items],
            lemma=self.lemma[items],
            allowed=self.allowed,
        )


class Head:
    """A network dim → hidden → classes with ReLU, or dim → classes, in training: one for all
    items, or one for each lemma, which shares nothing with the others.

    Rows are divided by the root mean square of all training entries, so that the same learning
    rates suit short and long terms. The softmax of training is over all classes of a network; an
    answer is the likeliest of the lemma's.
    """

    def __init__(
        self,
        data: CodedRows,
        training: Training,
        learning_rate: float,
        seed: int,
        *,
        hidden: int | None,
        of_lemmas: bool,
    ) -> None:
        squares = np.square(data.rows, dtype=np.float64)
        self.scale = np.float32(math.sqrt(squares.mean()) or 1.0)
        self.of_lemmas = of_lemmas
        self.networks: dict[int, tuple[CodedRows, MLPClassifier]] = {}
        for lemma in np.unique(self._lemmas(data)).tolist():
            part = data.only(np.flatnonzero(self._lemmas(data) == lemma))
            self.networks[lemma] = (
                part,
                MLPClassifier(
                    () if hidden is None else (hidden,),
                    learning_rate_init=learning_rate,
                    alpha=training.weight_decay,
                    batch_size=min(training.batch, len(part.codes)),
                    n_iter_no_change=np.inf,  # a fixed number of epochs
                    warm_start=True,
                    random_state=np.random.RandomState(seed),
                ),
            )

    def _lemmas(self, data: CodedRows) -> Int64[np.ndarray, " items"]:
        return data.lemma if self.of_lemmas else np.zeros_like(data.lemma)

    def train(self, epochs: int) -> None:
        """Train so many epochs more."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for part, network in self.networks.values():
                if len(np.unique(part.codes)) > 1:
                    network.set_params(max_iter=epochs).fit(part.rows / self.scale, part.codes)

    def scores(self, data: CodedRows) -> Float64[np.ndarray, "items classes"]:
        """ln of the share of each class; −∞ for those of other lemmas, and without training."""
        scores = np.full((len(data.rows), data.allowed.shape[1]), -np.inf)
        for lemma in np.unique(self._lemmas(data)).tolist():
            here = np.flatnonzero(self._lemmas(data) == lemma)
            if lemma not in self.networks:
                continue
            part, network = self.networks[lemma]
            classes = np.unique(part.codes)
            shares = np.ones((len(here), 1))
            if len(classes) > 1:
                shares = network.predict_proba(data.rows[here] / self.scale)
            scores[np.ix_(here, classes)] = np.log(np.maximum(shares, np.finfo(np.float32).tiny))
        scores[~data.allowed[data.lemma]] = -np.inf
        return scores

    def quality(self, data: CodedRows) -> tuple[float, float]:
        """(accuracy, mean ln of the right class's share, of classes that were learnt)."""
        scores = self.scores(data)
        accuracy = float(np.mean(scores.argmax(axis=1) == data.codes))
        learnt = np.flatnonzero(data.codes != NONE)
        own = scores[learnt, data.codes[learnt]] - np.logaddexp.reduce(scores[learnt], axis=1)
        return accuracy, float(own.mean()) if len(own) else -math.inf


def train_and_predict(
    data: CodedRows, split: Split, training: Training, *, hidden: int | None, of_lemmas: bool
) -> tuple[Int64[np.ndarray, "runs test"], float]:
    """The codes that the heads of all runs predict for the test items, and their learning rate."""
    heads, rate = train_heads(
        data.only(split.train),
        data.only(split.validation),
        training,
        hidden=hidden,
        of_lemmas=of_lemmas,
    )
    test = data.only(split.test)
    return np.stack([head.scores(test).argmax(axis=1) for head in heads]), rate


def train_heads(
    train: CodedRows,
    validation: CodedRows,
    training: Training,
    *,
    hidden: int | None,
    of_lemmas: bool,
) -> tuple[list[Head], float]:
    """A trained head for each run, and the learning rate that was chosen.

    The rate is chosen with the first run's seed by successive halving (Jamieson & Talwalkar 2016):
    all rates train for a share of the epochs, the better half of them twice as long, until one is
    left, which trains to the end. Better is a higher accuracy on the validation items, then a
    lower cross-entropy, then an earlier place in the list.
    Cost for 4 rates: as 2 trainings, and 1 for each further run.
    """

    def start(rate: float, seed: int) -> Head:
        return Head(train, training, rate, seed, hidden=hidden, of_lemmas=of_lemmas)

    heads = {rate: start(rate, training.seed) for rate in training.learning_rates}
    trained = 0
    for left in range((len(heads) - 1).bit_length(), -1, -1):
        epochs = -(-training.epochs // 2**left)
        for head in heads.values():
            head.train(epochs - trained)
        trained = epochs
        if left:
            qualities = {rate: head.quality(validation) for rate, head in heads.items()}
            best = sorted(heads, key=lambda rate: qualities[rate], reverse=True)
            stay = best[: -(-len(heads) // 2)]
            heads = {rate: head for rate, head in heads.items() if rate in stay}
    ((rate, first),) = heads.items()
    rest = [start(rate, training.seed + run) for run in range(1, training.runs)]
    for head in rest:
        head.train(training.epochs)
    return [first, *rest], rate
