"""Agreement by hand, scores against scikit-learn, intervals, splits, and the JSON."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, f1_score

from deltadex.study.ablation import ablation_report
from deltadex.study.ablation.subsets import (
    SubsetPredictions,
    agreement_matrix,
    split_by_text,
    wilson_interval,
)

NAMES = ("input", "attention")


def make_predictions(predicted, targets, text=None, names=NAMES, baseline=None):
    """Predictions of i, h and ih; none, without terms, predicts as i does."""
    targets = np.array(targets, dtype=np.int64)
    n = len(targets)
    return SubsetPredictions(
        key="test",
        measure="test",
        names=names,
        predicted=np.array([[rows[0], *rows] for rows in predicted], dtype=np.int64),
        targets=targets,
        baseline=np.zeros(n, dtype=np.int64) if baseline is None else np.array(baseline),
        text=np.arange(n) if text is None else np.array(text, dtype=np.int64),
        settings={"layer": 6, "k": 1},
    )


def test_agreement_by_hand():
    predicted = np.array([[[1, 2, 3, -1], [1, 2, 4, 5], [-1, -1, -1, 7]]])

    shares = agreement_matrix(predicted)

    np.testing.assert_array_equal(np.diag(shares), 1)
    assert shares[0, 1] == shares[1, 0] == pytest.approx(2 / 3)
    assert np.isnan(shares[0, 2])
    assert shares[1, 2] == 0


def test_agreement_over_runs_is_their_mean():
    predicted = np.array([[[1, 1], [1, 1]], [[1, 1], [1, 2]]])

    assert agreement_matrix(predicted)[0, 1] == pytest.approx((1.0 + 0.5) / 2)


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
)
@settings(max_examples=50, deadline=None)
def test_agreement_is_micro_f1(rows):
    first, second = np.array(rows).T

    shares = agreement_matrix(np.stack([first, second])[None])

    assert shares[0, 1] == pytest.approx(f1_score(first, second, average="micro"))


@given(
    rows=st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=30),
    texts=st.integers(1, 5),
)
@settings(max_examples=50, deadline=None)
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


def test_macro_f1_does_not_make_a_class_of_no_prediction():
    predictions = make_predictions([[[0, 1, -1]] * 3], [0, 1, 1])

    report = ablation_report(predictions, score="macro-F1")

    assert report.scores[0].value == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (3, 10), (90, 100), (1, 1)])
def test_wilsons_interval_is_scipys(right, n):
    expected = binomtest(right, n).proportion_ci(method="wilson")

    assert wilson_interval(right / n, n) == pytest.approx((expected.low, expected.high))


def test_items_of_few_texts_have_a_wider_interval():
    rng = np.random.default_rng(0)
    right = rng.random(40) < 0.6
    predicted = np.repeat(right, 25).astype(np.int64)
    targets = np.ones(1000, dtype=np.int64)
    alone = make_predictions([[predicted] * 3], targets)
    in_texts = make_predictions([[predicted] * 3], targets, text=np.repeat(np.arange(40), 25))

    narrow, wide = ablation_report(alone), ablation_report(in_texts)

    width = [report.scores[0].high - report.scores[0].low for report in (narrow, wide)]
    assert narrow.interval == "95 %, Wilson"
    assert wide.interval == "95 %, bootstrap over 40 texts"
    # √25 if texts are all or nothing; the bootstrap's own noise is some percent.
    assert width[1] / width[0] == pytest.approx(5, rel=0.12)
    assert wide.settings["bootstrap"] == {"draws": 1000, "seed": 0}


def test_all_right_on_few_texts_is_not_certain():
    predictions = make_predictions([[[1] * 8] * 3], [1] * 8, text=[0, 0, 1, 1, 2, 2, 3, 3])

    report = ablation_report(predictions)

    assert (report.scores[0].low, report.scores[0].high) == wilson_interval(1.0, 4)


def test_blocks_of_draws_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    text = np.repeat(np.arange(10), 3)
    predictions = make_predictions(rng.integers(3, size=(2, 3, 30)), rng.integers(3, size=30), text)
    whole = ablation_report(predictions, score="macro-F1")

    monkeypatch.setattr("deltadex.study.ablation.subsets.DRAW_BLOCK_CELLS", 77)

    assert ablation_report(predictions, score="macro-F1") == whole
    assert ablation_report(predictions, score="macro-F1", seed=1) != whole


def test_runs_are_averaged_with_their_spread():
    predictions = make_predictions([[[1, 1]] * 3, [[1, 0]] * 3], [1, 1])

    report = ablation_report(predictions)

    assert report.n_runs == 2
    assert report.scores[0].value == 0.75
    assert report.scores[0].sd == pytest.approx(0.5**0.5 / 2)


def test_json_holds_everything_and_no_nan():
    predictions = make_predictions([[[1, -1], [-1, 1], [1, 1]]], [1, 1], baseline=[1, 0])

    report = ablation_report(predictions)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))

    assert document["measure"] == "test"
    assert [one["subset"] for one in document["subsets"]] == ["none", "i", "h", "ih"]
    assert document["subsets"][3]["terms"] == ["input", "attention"]
    assert document["subsets"][3]["sd"] is None
    assert document["agreement"] == [
        [1, 1, None, 1],
        [1, 1, None, 1],
        [None, None, 1, 1],
        [1, 1, 1, 1],
    ]
    assert document["baseline"] == 0.5
    assert document["n_unknown"] == 2
    assert document["settings"] == {
        "layer": 6,
        "k": 1,
        "bootstrap": {"draws": 1000, "seed": 0},
    }


@given(
    text=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    seed=st.integers(0, 50),
    validation=st.sampled_from([0.0, 0.1, 0.3]),
)
@settings(max_examples=60, deadline=None)
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
