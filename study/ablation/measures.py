"""What every subset of terms predicts: masked tokens, senses and tags of words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from torch import nn

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord, count
from ..network.language_head import head_logits
from . import subsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(JsonRecord):
    """How probes are trained: Adam, cross-entropy, a fixed number of epochs.

    Attributes:
        learning_rates: Of which each subset takes the one with most right validation items.
        runs: Trainings that differ in initial weights and in the order of items.
        seed: Of the first run; all subsets of a run start from the same weights.
    """

    epochs: int = 20
    batch: int = 256
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    weight_decay: float = 0.01
    runs: int = 3
    seed: int = 0


TRAIN_TEST = (0.8, 0.0, 0.2)
SLOW_RATES = (3e-4, 1e-3, 3e-3, 1e-2)

TRAININGS = {
    "masked-trained": Training(batch=256),
    "senses-mlp": Training(batch=128, learning_rates=SLOW_RATES),
    "tagging": Training(batch=128, learning_rates=SLOW_RATES),
}

HEAD_TOKENS = 256
"""Tokens given to the head at a time: 31 MB of scores for 30 000 words."""
TIE_DECIMALS = 9
"""Cosines equal to this many decimals are ties; the earlier training item comes first."""


def masked_accuracy(items: subsets.Items, head: nn.Module) -> subsets.SubsetPredictions:
    """The token with the highest score of the model's own head on each subset's sum; the items'
    labels are the ids of the right tokens."""
    items.check("masked tokens")
    targets = np.array(items.labels, dtype=np.int64)
    device = next(head.parameters()).device

    def predict(subset: subsets.Subset) -> subsets.Predicted:
        total = torch.from_numpy(subset.sum(items.terms)).to(device)
        predicted = []
        for rows in torch.split(total, HEAD_TOKENS):
            scores = head_logits(head, rows)
            if scores.isnan().any():
                raise StudyError(
                    f"masked tokens: the head scores NaN on {subset.label!r}; "
                    "run it in float32 and eval mode"
                )
            predicted.append(scores.argmax(dim=1).cpu().numpy())
        return np.concatenate(predicted)[None], None

    return subsets.predict_subsets(
        items,
        "masked-own",
        predict,
        test=np.arange(len(targets)),
        targets=targets,
        baseline=np.full(len(targets), subsets.commonest(targets)),
        settings={"baseline": "commonest target"},
    )


def trained_masked_accuracy(items: subsets.Items, training: Training) -> subsets.SubsetPredictions:
    """Predictions on the test tokens of a linear layer trained on each subset's sum.

    Its classes are the targets that occur in the training part. A token that does not occur there
    counts as wrong for every subset.
    """
    items.check("masked tokens")
    classes = ItemClasses.of(items, np.array(items.labels, dtype=np.int64), "masked tokens")
    test = classes.target[classes.split.test]
    settings = {
        "baseline": "commonest training target",
        "classes": len(classes.known),
        "test_targets_never_trained": int(np.sum(~np.isin(test, classes.known))),
    }
    return classes.predict_trained(items, "masked-trained", training, None, settings)


def tagging_probe(items: subsets.Items, training: Training) -> subsets.SubsetPredictions:
    """The tags of test words by a network dim → dim → tags with ReLU, trained on each subset.

    Tags are coded in sorted order. A tag that only the test part has always counts as wrong.
    """
    items.check("tagging")
    tags, targets = np.unique(np.array(items.labels, dtype=str), return_inverse=True)
    classes = ItemClasses.of(items, targets.astype(np.int64), "tagging")
    settings = {"baseline": "commonest training tag", "tags": tags.tolist()}
    return classes.predict_trained(items, "tagging", training, items.dim, settings)


def word_sense_probe(items: subsets.Items, training: Training) -> subsets.SubsetPredictions:
    """The sense of each test word by a network dim → dim → senses with ReLU.

    All lemmas share the network; the answer is the likeliest sense of the word's lemma that occurs
    in the training part (after Mickus, Paperno, Constant 2022, 5.2). A word whose lemma does not
    occur there gets no prediction.
    """
    items.check("word senses")
    classes = ItemClasses.of_senses(items, subsets.TRAIN_VALIDATE_TEST)
    settings = classes.sense_settings() | {"hidden": items.dim}
    return classes.predict_trained(items, "senses-mlp", training, items.dim, settings)


def word_sense_knn(items: subsets.Items, *, k: int = 5) -> subsets.SubsetPredictions:
    """The sense of each test word by vote of its `k` nearest training words of the lemma.

    Neighbours are nearest by cosine. The sense with most votes wins; of equal senses the one with
    the nearest word. Lemmas with one sense in the data are dropped. A word whose lemma does not
    occur in the training part gets no prediction. There is no leave-one-out, as on balanced
    senses it brings vectors without information below chance. Without terms all words are
    equally near, and the lemma's commonest training sense is predicted.
    """
    items.check("word senses")
    classes = ItemClasses.of_senses(items, TRAIN_TEST)
    baseline, pairs = classes.baseline(), list(classes.by_lemma())

    def predict(subset: subsets.Subset) -> subsets.Predicted:
        if not subset.members:
            return baseline[None], None
        total = subset.sum(items.terms)
        voted = np.full((1, len(total)), subsets.NONE, dtype=np.int64)
        for queries, known in pairs:
            voted[0, queries] = vote(total[queries], total[known], classes.target[known], k)
        return voted[:, classes.split.test], None

    return subsets.predict_subsets(
        items,
        "senses-knn",
        predict,
        test=classes.split.test,
        targets=classes.target,
        baseline=baseline,
        settings=classes.sense_settings()
        | {"split": classes.split.sizes(), "k": k, "distance": "cosine"},
    )


def vote(
    queries: Float32[np.ndarray, "queries dim"],
    known: Float32[np.ndarray, "known dim"],
    senses: Int64[np.ndarray, " known"],
    k: int,
) -> Int64[np.ndarray, " queries"]:
    """The sense with most votes among the k nearest known words, or all if there are fewer."""
    cosines = np.round(_unit(queries) @ _unit(known).T, TIE_DECIMALS)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    near = senses[nearest]  # (queries, k), nearest first
    votes = np.count_nonzero(near[:, :, None] == near[:, None, :], axis=2)
    winner: Int64[np.ndarray, " queries"] = near[np.arange(len(near)), votes.argmax(axis=1)]
    return winner


def _unit(rows: Float32[np.ndarray, "words dim"]) -> Float64[np.ndarray, "words dim"]:
    """Rows of length 1; a zero row stays, with cosine 0 to all."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths > 0, lengths, 1.0)


@dataclass(frozen=True, slots=True)
class ItemClasses:
    """The classes of items as codes, a sense's of one lemma, and which items are learnt from.

    The code of a lemma is 0 where classes do not depend on it. Occurrences of lemmas with one
    sense are in no part of the split, but counted.
    """

    lemma: Int64[np.ndarray, " items"]
    target: Int64[np.ndarray, " items"]
    split: subsets.ItemSplit
    n_dropped: int = 0

    @classmethod
    def of(
        cls,
        items: subsets.Items,
        target: Int64[np.ndarray, " items"],
        what: str,
        *,
        shares: tuple[float, float, float] = subsets.TRAIN_VALIDATE_TEST,
        lemma: Int64[np.ndarray, " items"] | None = None,
        used: Bool[np.ndarray, " items"] | None = None,
    ) -> ItemClasses:
        """The classes and the split; a part without items, or one class alone, is refused."""
        used = np.ones(len(target), dtype=bool) if used is None else used
        split = subsets.split_by_text(items.text, seed=items.seed, shares=shares).only(used)
        parts = {"training": split.train, "test": split.test}
        if shares[1]:
            parts["validation"] = split.validation
        empty = [name for name, part in parts.items() if not len(part)]
        if empty:
            raise StudyError(f"{what}: no {empty[0]} items among {len(target)}; give more texts")
        if len(np.unique(target[split.train])) < 2:
            only = items.labels[split.train[0]]
            raise StudyError(f"{what}: the training part has one class, {only}; give more texts")
        lemma = np.zeros_like(target) if lemma is None else lemma
        return cls(lemma, target, split, int(np.count_nonzero(~used)))

    @classmethod
    def of_senses(cls, items: subsets.Items, shares: tuple[float, float, float]) -> ItemClasses:
        """Codes in order of appearance; lemmas with one sense are dropped."""
        lemmas = _codes(items.lemmas)
        senses = _codes(list(zip(items.lemmas, items.labels, strict=True)))
        first_of_sense = np.unique(senses, return_index=True)[1]
        polysemous = np.bincount(lemmas[first_of_sense])[lemmas] > 1
        if not polysemous.any():
            raise StudyError(
                f"word senses: none of {count(int(lemmas.max()) + 1, 'lemma')} has two senses; "
                "give occurrences of words in different senses"
            )
        return cls.of(items, senses, "word senses", shares=shares, lemma=lemmas, used=polysemous)

    @property
    def known(self) -> Int64[np.ndarray, " classes"]:
        return np.unique(self.target[self.split.train])

    def allowed(self) -> Bool[np.ndarray, "lemmas classes"]:
        """Which of the known classes are answers for a lemma: its own, or all if it has none."""
        train = self.split.train
        allowed = np.zeros((int(self.lemma.max()) + 1, len(self.known)), dtype=bool)
        allowed[self.lemma[train], np.searchsorted(self.known, self.target[train])] = True
        allowed[~allowed.any(axis=1)] = True
        return allowed

    def by_lemma(
        self,
    ) -> Iterator[tuple[Int64[np.ndarray, " queries"], Int64[np.ndarray, " known"]]]:
        """(test items, training items) of each lemma that has both."""
        train, test = self.split.train, self.split.test
        for code in np.intersect1d(self.lemma[train], self.lemma[test]):
            yield test[self.lemma[test] == code], train[self.lemma[train] == code]

    def baseline(self) -> Int64[np.ndarray, " test"]:
        """The commonest training class of each test item's lemma; `NONE` without one."""
        guess = np.full(len(self.lemma), subsets.NONE, dtype=np.int64)
        for queries, known in self.by_lemma():
            guess[queries] = subsets.commonest(self.target[known])
        baseline: Int64[np.ndarray, " test"] = guess[self.split.test]
        return baseline

    def sense_settings(self) -> dict[str, object]:
        used = np.concatenate([self.split.train, self.split.validation, self.split.test])
        return {
            "baseline": "commonest training sense of the lemma",
            "lemmas": len(np.unique(self.lemma[used])),
            "monosemous_words_dropped": self.n_dropped,
        }

    def predict_trained(
        self,
        items: subsets.Items,
        key: str,
        training: Training,
        hidden: int | None,
        settings: dict[str, object],
    ) -> subsets.SubsetPredictions:
        """Predictions on the test items of probes that are trained on each subset's sum; the
        commonest training class for the empty one, which has nothing but frequencies."""
        split, baseline = self.split, self.baseline()
        seen = np.isin(self.lemma[split.test], self.lemma[split.train])

        def predict(subset: subsets.Subset) -> subsets.Predicted:
            if not subset.members:
                return np.tile(baseline, (training.runs, 1)), None
            predicted, rate = self.trained(subset.sum(items.terms), training, hidden)
            return np.where(seen, predicted, subsets.NONE), rate

        return subsets.predict_subsets(
            items,
            key,
            predict,
            test=split.test,
            targets=self.target,
            baseline=baseline,
            settings=settings
            | {"split": split.sizes(), "training": {"optimiser": "Adam"} | training.to_json()},
        )

    def trained(
        self, rows: Float32[np.ndarray, "items dim"], training: Training, hidden: int | None
    ) -> tuple[Int64[np.ndarray, "runs test"], float]:
        """What probes dim → hidden → classes with ReLU (or dim → classes) answer for the test
        items in each run, and the learning rate, which the first run chooses.

        Rows are divided by the root mean square of all training entries, so that the same rates
        suit short and long terms. An answer is the likeliest of the lemma's classes.
        """
        train, validation, test = self.split.train, self.split.validation, self.split.test
        squares = np.square(rows[train], dtype=np.float64)
        scaled = rows / np.float32(math.sqrt(squares.mean()) or 1.0)
        allowed = self.allowed()

        def fit(rate: float, seed: int) -> MLPClassifier:
            probe = MLPClassifier(
                () if hidden is None else (hidden,),
                learning_rate_init=rate,
                alpha=training.weight_decay,
                batch_size=min(training.batch, len(train)),
                max_iter=training.epochs,
                n_iter_no_change=np.inf,  # a fixed number of epochs
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                return probe.fit(scaled[train], self.target[train])

        def answers(probe: MLPClassifier, part: Int64[np.ndarray, " part"]) -> np.ndarray:
            shares = probe.predict_proba(scaled[part])
            best = np.where(allowed[self.lemma[part]], shares, -1.0).argmax(axis=1)
            codes: np.ndarray = probe.classes_[best]
            return codes

        def right(rate: float) -> int:
            return int(np.sum(answers(probes[rate], validation) == self.target[validation]))

        probes = {rate: fit(rate, training.seed) for rate in training.learning_rates}
        rate = max(probes, key=right)
        rest = [fit(rate, training.seed + run) for run in range(1, training.runs)]
        return np.stack([answers(probe, test) for probe in (probes[rate], *rest)]), rate


def _codes(values: Sequence[object]) -> Int64[np.ndarray, " words"]:
    first: dict[object, int] = {}
    return np.array([first.setdefault(value, len(first)) for value in values], dtype=np.int64)
