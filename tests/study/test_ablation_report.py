"""Subsets, agreement by hand, scores against scikit-learn, intervals, splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score

from deltadex.study.ablation import ablation_report
from deltadex.study.ablation.subsets import SubsetPredictions, agreement_matrix, split_by_text


def make_predictions(predicted, targets, text=None):
    """Predictions of i, h and ih; none, without terms, predicts as i does."""
    n = len(targets)
    return SubsetPredictions(
        names=("input", "attention"),
        predicted=np.array([[rows[0], *rows] for rows in predicted], dtype=np.int64),
        targets=np.array(targets, dtype=np.int64),
        baseline=np.zeros(n, dtype=np.int64),
        text=np.arange(n) if text is None else np.array(text, dtype=np.int64),
        key="test",
        settings={"layer": 6, "k": 1},
    )


def test_agreement_by_hand_and_over_runs_their_mean():
    predicted = np.array([[[1, 2, 3, -1], [1, 2, 4, 5], [-1, -1, -1, 7]]])
    runs = np.array([[[1, 1], [1, 1]], [[1, 1], [1, 2]]])

    shares = agreement_matrix(predicted)

    np.testing.assert_array_equal(np.diag(shares), 1)
    assert shares[0, 1] == shares[1, 0] == pytest.approx(2 / 3)
    assert np.isnan(shares[0, 2])
    assert shares[1, 2] == 0
    assert agreement_matrix(runs)[0, 1] == pytest.approx((1.0 + 0.5) / 2)


@given(
    rows=st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=30),
    texts=st.integers(1, 5),
)
@settings(deadline=None)
def test_scores_are_scikit_learns(rows, texts):
    table = np.array(rows).T
    text = np.arange(len(rows)) % texts
    predictions = make_predictions([table[:3]], table[3], text=text)

    accuracy = ablation_report(predictions)
    macro = ablation_report(predictions, score="macro-F1")

    for row, one, other in zip(table[:3], accuracy.scores[1:], macro.scores[1:], strict=True):
        assert one.value == pytest.approx(accuracy_score(table[3], row))
        assert other.value == pytest.approx(
            f1_score(table[3], row, average="macro", zero_division=0)
        )
        assert one.low - 1e-12 <= one.value <= one.high + 1e-12


def test_runs_are_averaged_with_their_spread_and_no_prediction_is_no_class():
    runs = ablation_report(make_predictions([[[1, 1]] * 3, [[1, 0]] * 3], [1, 1]))
    none = make_predictions([[[0, 1, -1]] * 3], [0, 1, 1])

    assert runs.n_runs == 2
    assert runs.scores[0].value == 0.75
    assert runs.scores[0].sd == pytest.approx(0.5**0.5 / 2)
    macro = ablation_report(none, score="macro-F1")
    assert macro.scores[0].value == pytest.approx((1 + 2 / 3) / 2)


def test_items_of_few_texts_have_a_wider_interval():
    rng = np.random.default_rng(0)
    right = rng.random(40) < 0.6
    predicted = np.repeat(right, 25).astype(np.int64)
    targets = np.ones(1000, dtype=np.int64)
    alone = make_predictions([[predicted] * 3], targets)
    in_texts = make_predictions([[predicted] * 3], targets, text=np.repeat(np.arange(40), 25))

    narrow, wide = ablation_report(alone), ablation_report(in_texts)

    width = [report.scores[0].high - report.scores[0].low for report in (narrow, wide)]
    assert wide.interval == "95 %, bootstrap over 40 texts"
    # √25 if texts are all or nothing; the bootstrap's own noise is some percent.
    assert width[1] / width[0] == pytest.approx(5, rel=0.12)
    assert wide.settings["bootstrap"] == {"draws": 1000, "seed": 0}
    all_right = ablation_report(
        make_predictions([[[1] * 8] * 3], [1] * 8, text=np.repeat(np.arange(4), 2))
    )
    expected = binomtest(4, 4).proportion_ci(method="wilson")
    found = (all_right.scores[0].low, all_right.scores[0].high)
    assert found == pytest.approx((expected.low, expected.high))


@given(
    text=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    seed=st.integers(0, 50),
    validation=st.sampled_from([0.0, 0.1, 0.3]),
)
@settings(deadline=None)
def test_a_split_has_every_item_once_and_no_text_twice(text, seed, validation):
    text = np.array(text, dtype=np.int64)

    split = split_by_text(text, seed=seed, shares=(0.8 - validation, validation, 0.2))

    parts = (split.train, split.validation, split.test)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(text)))
    assert sum(len(np.unique(text[part])) for part in parts) == len(np.unique(text))
    assert len(split.train)
    if len(np.unique(text)) >= 3:
        assert len(split.test)
        assert bool(len(split.validation)) == bool(validation)
