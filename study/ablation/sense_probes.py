"""Word senses by networks of two layers: one whose first layer is shared, or one for each lemma."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Float32, Int64
from .lemma_probe import LemmaProbes, LemmaRows
from .rate_search import Labelled, Training, train_runs
from .sense_data import SenseData
from .subset_results import Keep, SubsetResult, keep_nothing
from .term_subsets import NONE, SubsetPredictions
from .text_split import TRAIN_VALIDATE_TEST, Split
from .trained_probe import ProbeShape, train_and_predict

TRAINING = Training(batch=128, learning_rates=(3e-4, 1e-3, 3e-3, 1e-2))

LEMMA_TRAINING = Training(batch=16)
"""A lemma has tens of occurrences."""

LEMMA_HIDDEN = 64


def word_sense_probe(
    terms: Float32[np.ndarray, "terms words dim"],
    lemma: Sequence[str],
    sense: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training = TRAINING,
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """The sense of each test word by a network dim → dim → senses with ReLU.

    All lemmas share the first layer; of the outputs only the senses of the word's lemma that occur
    in the training part take part in softmax and answer (Mickus, Paperno, Constant 2022, 5.2). A
    word whose lemma does not occur in the training part gets no prediction.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        split: Training, validation and test words; drawn by text, 80/10/10, if not given.

    Raises:
        StudyError: no lemma with two senses, NaN terms, or an empty part of the split.
    """
    data = _data(lemma, sense, text, split, split_seed, training)
    shape = ProbeShape(
        n_classes=len(data.known), hidden=terms.shape[2], allowed=data.senses_of_lemmas()
    )

    def result(total: Float32[np.ndarray, "words dim"]) -> SubsetResult:
        predicted, rate = train_and_predict(
            Labelled(total, data.classes, data.lemma), data.split, shape, training
        )
        return _known_only(data, predicted, rate)

    return data.predict_subsets(
        terms,
        names,
        result,
        n_runs=training.runs,
        key="senses-mlp",
        measure="word senses, two layers, the first shared",
        settings={"hidden": shape.hidden, "training": training.settings()},
        keep=keep,
    )


def word_sense_probes_of_lemmas(
    terms: Float32[np.ndarray, "terms words dim"],
    lemma: Sequence[str],
    sense: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    training: Training = LEMMA_TRAINING,
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """The sense of each test word by a network of its lemma alone, dim → 64 → senses with ReLU.

    Nothing is shared between lemmas but the learning rate. A word whose lemma does not occur in
    the training part gets no prediction.

    Raises:
        StudyError: as `word_sense_probe`.
    """
    data = _data(lemma, sense, text, split, split_seed, training)
    allowed, hidden = data.senses_of_lemmas(), min(LEMMA_HIDDEN, terms.shape[2])

    def result(total: Float32[np.ndarray, "words dim"]) -> SubsetResult:
        items = Labelled(total, data.classes, data.lemma)
        rows = LemmaRows.of(items.part(data.split.train), allowed, training.device)
        probes, rate = train_runs(
            lambda rate, seed: LemmaProbes(rows, hidden, training, rate, seed),
            items.part(data.split.validation),
            training,
        )
        test = items.part(data.split.test)
        return _known_only(data, np.stack([probe.predict(test) for probe in probes]), rate)

    return data.predict_subsets(
        terms,
        names,
        result,
        n_runs=training.runs,
        key="senses-mlp-lemma",
        measure="word senses, two layers for each lemma",
        settings={"hidden": hidden, "training": training.settings()},
        keep=keep,
    )


def _data(
    lemma: Sequence[str],
    sense: Sequence[str],
    text: Int64[np.ndarray, " words"] | None,
    split: Split | None,
    split_seed: int,
    training: Training,
) -> SenseData:
    return SenseData.of(
        lemma,
        sense,
        text=text,
        split=split,
        split_seed=split_seed,
        shares=TRAIN_VALIDATE_TEST,
        validation=len(training.learning_rates) > 1,
    )


def _known_only(
    data: SenseData, predicted: Int64[np.ndarray, "runs test"], rate: float
) -> SubsetResult:
    """Senses for places in `known`; no prediction for a lemma without training items."""
    trained = np.isin(data.lemma[data.split.test], data.lemma[data.split.train])
    return SubsetResult(np.where(trained, data.known[predicted], NONE), rate)
