"""What every subset of terms predicts: masked tokens, senses and tags of words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord
from ..network.language_head import LanguageHead
from .subsets import (
    NONE,
    TRAIN_VALIDATE_TEST,
    Items,
    Split,
    Subset,
    SubsetPredictions,
    SubsetResult,
    commonest,
    predict_subsets,
    split_by_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(JsonRecord):
    """How heads are trained: Adam, cross-entropy, a fixed number of epochs.

    Attributes:
        learning_rates: Of which each subset takes one, by the validation items (`train_heads`).
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
        return {"optimiser": "Adam"} | self.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRows:
    """Rows, their class codes (`NONE` for a class that is not learnt), the code of each row's
    lemma, and the classes of each lemma, the only ones that are answers."""

    rows: Float32[np.ndarray, "items dim"]
    codes: Int64[np.ndarray, " items"]
    lemma: Int64[np.ndarray, " items"]
    allowed: Bool[np.ndarray, "lemmas classes"]

    def only(self, items: Int64[np.ndarray, " part"]) -> CodedRows:
        """Some of the items."""
        kept = {name: getattr(self, name)[items] for name in ("rows", "codes", "lemma")}
        return replace(self, **kept)


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
        scores = self.scores(data)
        accuracy = float(np.mean(scores.argmax(axis=1) == data.codes))
        learnt = np.flatnonzero(data.codes != NONE)
        own = scores[learnt, data.codes[learnt]] - np.logaddexp.reduce(scores[learnt], axis=1)
        return accuracy, float(own.mean()) if len(own) else -math.inf


def train_and_predict(
    data: CodedRows, split: Split, training: Training, *, hidden: int | None, of_lemmas: bool
) -> tuple[Int64[np.ndarray, "runs test"], float]:
    """The codes that the heads of all runs predict for the test items, and their learning rate."""
    train, validation = data.only(split.train), data.only(split.validation)
    heads, rate = train_heads(train, validation, training, hidden=hidden, of_lemmas=of_lemmas)
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


TRAIN_TEST = (0.8, 0.0, 0.2)
SLOW_RATES = (3e-4, 1e-3, 3e-3, 1e-2)

TRAININGS = {
    "masked-trained": Training(batch=256),
    "senses-mlp": Training(batch=128, learning_rates=SLOW_RATES),
    "senses-mlp-lemma": Training(batch=16),  # a lemma has tens of occurrences
    "tagging": Training(batch=128, learning_rates=SLOW_RATES),
}

LEMMA_HIDDEN = 64
HEAD_TOKENS = 256
"""Tokens given to the head at a time: 31 MB of scores for 30 000 words."""
TIE_DECIMALS = 9
"""Cosines equal to this many decimals are ties; the earlier training item comes first."""


def masked_accuracy(items: Items, head: LanguageHead) -> SubsetPredictions:
    """The token with the highest score of the model's own head on each subset's sum; the items'
    labels are the ids of the right tokens."""
    items.check("masked tokens")
    targets = np.array(items.labels, dtype=np.int64)

    def result(subset: Subset) -> SubsetResult:
        total = torch.from_numpy(subset.sum(items.terms)).to(head.device)
        predicted = []
        for rows in torch.split(total, HEAD_TOKENS):
            scores = head.scores(rows)
            if scores.isnan().any():
                raise StudyError(
                    f"masked tokens: the head scores NaN on {subset.label!r}; "
                    "run it in float32 and eval mode"
                )
            predicted.append(scores.argmax(dim=1).cpu().numpy())
        return SubsetResult(np.concatenate(predicted)[None])

    return predict_subsets(
        items,
        "masked-own",
        f"{items.settings['predicts']} tokens, the model's head",
        result,
        test=np.arange(len(targets)),
        targets=targets,
        baseline=np.full(len(targets), commonest(targets)),
        settings={"baseline": "commonest target"},
    )


def trained_masked_accuracy(items: Items, training: Training) -> SubsetPredictions:
    """Predictions on the test tokens of a linear layer trained on each subset's sum.

    Its classes are the targets that occur in the training part. A token that does not occur there
    counts as wrong for every subset.
    """
    what = "masked tokens"
    items.check(what)
    targets = np.array(items.labels, dtype=np.int64)
    classes = ItemClasses.of(items, targets, what, training)
    if len(classes.known) < 2:
        raise StudyError(
            f"{what}: the training part has one target, id {classes.known[0]}; give more texts"
        )
    test = classes.target[classes.split.test]
    return classes.predict_trained(
        items,
        "masked-trained",
        f"{items.settings['predicts']} tokens, linear layer trained",
        training,
        hidden=None,
        settings={
            "baseline": "commonest training target",
            "split": classes.split.sizes(),
            "classes": len(classes.known),
            "test_targets_never_trained": int(np.sum(~np.isin(test, classes.known))),
        },
    )


def tagging_probe(items: Items, training: Training) -> SubsetPredictions:
    """The tags of test words by a network dim → dim → tags with ReLU, trained on each subset.

    Tags are coded in sorted order. A tag that only the test part has always counts as wrong.
    """
    items.check("tagging")
    tags, targets = np.unique(np.array(items.labels, dtype=str), return_inverse=True)
    classes = ItemClasses.of(items, targets.astype(np.int64), "tagging", training)
    if len(classes.known) < 2:
        raise StudyError(
            f"tagging: the training part has one tag, {str(tags[classes.known[0]])!r}; "
            "give words of two tags or more"
        )
    return classes.predict_trained(
        items,
        "tagging",
        "tagging, one hidden layer",
        training,
        hidden=items.terms.shape[2],
        settings={
            "baseline": "commonest training tag",
            "split": classes.split.sizes(),
            "tags": tags.tolist(),
        },
    )


def word_sense_probe(
    items: Items, training: Training, *, of_lemmas: bool = False
) -> SubsetPredictions:
    """The sense of each test word by a network dim → dim → senses with ReLU.

    All lemmas share the network; the answer is the likeliest sense of the word's lemma that occurs
    in the training part (after Mickus, Paperno, Constant 2022, 5.2). A word whose lemma does not
    occur there gets no prediction.

    Args:
        of_lemmas: Each lemma has a network of its own, dim → 64 → senses; nothing is shared but
            the learning rate.
    """
    key = "senses-mlp-lemma" if of_lemmas else "senses-mlp"
    items.check("word senses")
    classes = ItemClasses.of_senses(items, TRAIN_VALIDATE_TEST, training)
    dim = items.terms.shape[2]
    hidden = min(LEMMA_HIDDEN, dim) if of_lemmas else dim
    return classes.predict_trained(
        items,
        key,
        f"word senses, two layers{' for each lemma' if of_lemmas else ', the first shared'}",
        training,
        hidden=hidden,
        of_lemmas=of_lemmas,
        settings={**classes.sense_settings(), "hidden": hidden},
    )


def word_sense_knn(items: Items, *, k: int = 5) -> SubsetPredictions:
    """The sense of each test word by vote of its `k` nearest training words of the lemma.

    Neighbours are nearest by cosine. The sense with most votes wins; of equal senses the one with
    the nearest word. Lemmas with one sense in the data are dropped. A word whose lemma does not
    occur in the training part gets no prediction. There is no leave-one-out, as on balanced
    senses it brings vectors without information below chance. Without terms all words are
    equally near, and the lemma's commonest training sense is predicted.
    """
    items.check("word senses")
    classes = ItemClasses.of_senses(items, TRAIN_TEST, None)
    baseline, pairs = classes.baseline(), list(classes.by_lemma())

    def result(subset: Subset) -> SubsetResult:
        if not subset.members:
            return SubsetResult(baseline[None])
        total = subset.sum(items.terms)
        voted = np.full((1, len(total)), NONE, dtype=np.int64)
        for queries, known in pairs:
            voted[0, queries] = _vote(total[queries], total[known], classes.target[known], k)
        return SubsetResult(voted[:, classes.split.test])

    return predict_subsets(
        items,
        "senses-knn",
        f"word senses, {k} nearest",
        result,
        test=classes.split.test,
        targets=classes.target,
        baseline=baseline,
        settings={**classes.sense_settings(), "k": k, "distance": "cosine"},
    )


def _vote(
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
    split: Split
    n_dropped: int = 0

    @classmethod
    def of(
        cls,
        items: Items,
        target: Int64[np.ndarray, " items"],
        what: str,
        training: Training | None,
        *,
        shares: tuple[float, float, float] = TRAIN_VALIDATE_TEST,
        lemma: Int64[np.ndarray, " items"] | None = None,
        used: Bool[np.ndarray, " items"] | None = None,
    ) -> ItemClasses:
        """The classes, with the items' split or one that is drawn; no part of it may be empty."""
        n_items = len(target)
        split = items.split or split_by_text(items.text, seed=items.seed, shares=shares)
        used = np.ones(n_items, dtype=bool) if used is None else used
        train, validation, test = (
            part[used[part]] for part in (split.train, split.validation, split.test)
        )
        parts = {"training": train, "test": test}
        if training is not None and len(training.learning_rates) > 1:
            parts["validation"] = validation
        empty = [name for name, part in parts.items() if not len(part)]
        if empty:
            raise StudyError(
                f"{what}: no {empty[0]} items among {n_items}; give more texts or a split"
            )
        return cls(
            np.zeros(n_items, dtype=np.int64) if lemma is None else lemma,
            target,
            Split(train, validation, test, split.seed),
            int(np.count_nonzero(~used)),
        )

    @classmethod
    def of_senses(
        cls, items: Items, shares: tuple[float, float, float], training: Training | None
    ) -> ItemClasses:
        """Codes in order of appearance; lemmas with one sense are dropped."""
        lemmas = _codes(items.lemmas)
        senses = _codes(list(zip(items.lemmas, items.labels, strict=True)))
        first_of_sense = np.unique(senses, return_index=True)[1]
        polysemous = np.bincount(lemmas[first_of_sense])[lemmas] > 1
        if not polysemous.any():
            raise StudyError(
                f"word senses: none of {lemmas.max() + 1} lemmas has two senses; give occurrences "
                "of words in different senses"
            )
        return cls.of(
            items, senses, "word senses", training, shares=shares, lemma=lemmas, used=polysemous
        )

    @property
    def known(self) -> Int64[np.ndarray, " classes"]:
        return np.unique(self.target[self.split.train])

    def coded(self, rows: Float32[np.ndarray, "items dim"]) -> CodedRows:
        """Rows with places in `known`; each lemma is allowed its own, or all if it has none."""
        known, train = self.known, self.split.train
        place = np.minimum(np.searchsorted(known, self.target), len(known) - 1)
        codes = np.where(known[place] == self.target, place, NONE)
        allowed = np.zeros((int(self.lemma.max()) + 1, len(known)), dtype=bool)
        allowed[self.lemma[train], codes[train]] = True
        allowed[~allowed.any(axis=1)] = True
        return CodedRows(rows=rows, codes=codes, lemma=self.lemma, allowed=allowed)

    def by_lemma(
        self,
    ) -> Iterator[tuple[Int64[np.ndarray, " queries"], Int64[np.ndarray, " known"]]]:
        """(test items, training items) of each lemma that has both."""
        train, test = self.split.train, self.split.test
        for code in np.intersect1d(self.lemma[train], self.lemma[test]):
            yield test[self.lemma[test] == code], train[self.lemma[train] == code]

    def baseline(self) -> Int64[np.ndarray, " test"]:
        """The commonest training class of each test item's lemma; `NONE` without one."""
        guess = np.full(len(self.lemma), NONE, dtype=np.int64)
        for queries, known in self.by_lemma():
            guess[queries] = commonest(self.target[known])
        baseline: Int64[np.ndarray, " test"] = guess[self.split.test]
        return baseline

    def sense_settings(self) -> dict[str, object]:
        used = np.concatenate([self.split.train, self.split.validation, self.split.test])
        return {
            "baseline": "commonest training sense of the lemma",
            "split": self.split.sizes(),
            "lemmas": len(np.unique(self.lemma[used])),
            "monosemous_words_dropped": self.n_dropped,
        }

    def predict_trained(
        self,
        items: Items,
        key: str,
        measure: str,
        training: Training,
        *,
        hidden: int | None,
        of_lemmas: bool = False,
        settings: dict[str, object],
    ) -> SubsetPredictions:
        """Predictions on the test items of heads that are trained on each subset's sum; the
        commonest training class for the empty one, which has nothing but frequencies."""
        split, baseline = self.split, self.baseline()
        trained = np.isin(self.lemma[split.test], self.lemma[split.train])

        def result(subset: Subset) -> SubsetResult:
            if not subset.members:
                return SubsetResult(np.tile(baseline, (training.runs, 1)))
            rows = self.coded(subset.sum(items.terms))
            predicted, rate = train_and_predict(
                rows, split, training, hidden=hidden, of_lemmas=of_lemmas
            )
            return SubsetResult(np.where(trained, self.known[predicted], NONE), rate)

        return predict_subsets(
            items,
            key,
            measure,
            result,
            test=split.test,
            targets=self.target,
            baseline=baseline,
            settings={**settings, "training": training.settings()},
        )


def _codes(values: Sequence[object]) -> Int64[np.ndarray, " words"]:
    first: dict[object, int] = {}
    return np.array([first.setdefault(value, len(first)) for value in values], dtype=np.int64)
