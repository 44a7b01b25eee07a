"""Rows, the split by text, and the layer classifier on planted layers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_layers import batches, make_hidden, make_rows
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deltadex.errors import StudyError
from deltadex.study.layers.layer_classifier import fit_classifier, score_predictions
from deltadex.study.layers.layer_rows import collect_rows, split_by_text
from deltadex.study.texts import per_token


def assert_same(rows, expected):
    for column in ("layer", "text", "vectors"):
        assert np.array_equal(getattr(rows, column), getattr(expected, column))


def test_all_tokens_are_kept_where_they_are_few_and_the_embedding_output_can_be_left_out():
    hidden = make_hidden(layers=3, tokens=48)

    rows = collect_rows(batches(hidden), max_tokens=100)
    later = collect_rows(batches(hidden), include_embedding=False)

    assert_same(rows, make_rows(hidden))
    assert (rows.n_tokens, rows.n_seen, rows.n_texts, rows.dim) == (48, 48, 6, 6)
    assert_same(later, make_rows(hidden[1:], first_layer=1))
    assert later.layers == (1, 2)


@pytest.mark.parametrize(
    ("hidden", "tokens_a_text", "message"),
    [
        (make_hidden(tokens=40), 10, "4 texts with tokens, at least 5"),
        (make_hidden(tokens=19), 2, "19 tokens, at least 20"),
        (make_hidden(layers=1), 8, "1 layer to tell apart"),
    ],
)
def test_too_little_or_broken_data_is_refused(hidden, tokens_a_text, message):
    with pytest.raises(StudyError, match=message):
        collect_rows(batches(hidden, tokens_a_text=tokens_a_text))


def test_a_sample_has_every_layer_of_its_tokens_whatever_the_batches():
    hidden = make_hidden(tokens=120)
    whole = collect_rows(batches(hidden, sizes=(120,)), max_tokens=30)

    rows = collect_rows(batches(hidden, sizes=(3, 50, 7)), max_tokens=30)

    assert_same(rows, whole)
    same = (hidden[0, None] == rows.vectors[:30, None]).all(axis=2)
    tokens = same.argmax(axis=1)
    assert np.array_equal(rows.vectors, hidden[:, tokens].reshape(-1, 6))
    assert (rows.n_tokens, rows.n_seen) == (30, 120)


@given(texts=st.integers(5, 40), share=st.floats(0.05, 0.95), seed=st.integers(0, 99))
@settings(deadline=None)
def test_no_text_is_on_both_sides_and_no_row_is_lost(texts, share, seed):
    rows = make_rows(make_hidden(layers=2, tokens=3 * texts, dim=2), tokens_a_text=3)

    split = split_by_text(rows, test_share=share, seed=seed)

    assert not set(split.train.text) & set(split.test.text)
    assert len(split.train.layer) + len(split.test.layer) == len(rows.layer)
    assert split.test.n_texts >= 2
    assert split.train.n_texts >= 1
    assert split.train.layers == split.test.layers == rows.layers


@pytest.mark.parametrize("layers", [2, 4])
def test_the_classifier_is_scikit_learns_with_its_standardiser(layers):
    split = split_by_text(make_rows(make_hidden(layers=layers, tokens=240, apart=1.2) * 3 + 5))
    train, test = (side.vectors.astype(np.float64) for side in (split.train, split.test))
    oracle = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, tol=1e-5))

    predicted = fit_classifier(split.train).predict(split.test.vectors)

    assert np.array_equal(predicted, oracle.fit(train, split.train.layer).predict(test))


@given(seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_scores_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    rows = make_rows(make_hidden(layers=4, tokens=24), first_layer=1)
    predicted = rng.integers(1, 5, size=len(rows.layer))

    score = score_predictions(predicted, rows, layers=rows.layers, n_train=9)

    assert score.accuracy == pytest.approx(accuracy_score(rows.layer, predicted))
    assert score.recall == pytest.approx(recall_score(rows.layer, predicted, average=None))
    assert np.array_equal(score.confusion, confusion_matrix(rows.layer, predicted))
    assert score.mean_distance == pytest.approx(np.abs(rows.layer - predicted).mean())
    assert (score.n_train, score.n_test, score.n_test_texts) == (9, 96, 3)
    draws = np.concatenate([predicted, predicted, rows.layer])
    pooled = score_predictions(draws, rows, layers=rows.layers, n_train=9)
    assert pooled.accuracy == pytest.approx((2 * score.accuracy + 1) / 3)
    assert (pooled.draws, pooled.n_test) == (3, 96)


def test_the_standard_error_is_what_a_bootstrap_over_texts_gives():
    rng = np.random.default_rng(4)
    sizes = rng.integers(3, 30, size=40)
    text = np.repeat(np.arange(40), sizes)
    right = rng.random(len(text)) < np.repeat(rng.uniform(0.3, 1.0, size=40), sizes)
    hits = np.bincount(text, weights=right)
    draws = rng.integers(0, 40, size=(4000, 40))
    bootstrap = (hits[draws].sum(axis=1) / sizes[draws].sum(axis=1)).std()

    error = per_token(right, text).standard_error

    assert error == pytest.approx(bootstrap, rel=0.1)
    assert error > 1.2 * np.sqrt(right.mean() * (1 - right.mean()) / len(right))
    alone = per_token(np.arange(100) % 4 > 0, np.arange(100))  # each row its own text
    assert alone.standard_error == pytest.approx(np.sqrt(0.75 * 0.25 / 99))
    assert per_token(np.array([True, False]), np.array([3, 3])).standard_error is None


def test_rows_of_the_same_texts_are_split_alike_whatever_the_layers_and_the_texts_without_rows():
    every = make_rows(make_hidden(layers=2, tokens=120, dim=2))
    held_back = set(split_by_text(every, among=15, seed=1).test.text.tolist())
    others = sorted(set(range(15)) - held_back)
    gone = {min(held_back), *others[:5]}
    some = make_rows(make_hidden(layers=5, tokens=120, dim=3, seed=1))

    whole = split_by_text(some, seed=1)
    split = split_by_text(some.only(~np.isin(some.text, list(gone))), among=15, seed=1)
    other = split_by_text(every, seed=2)

    assert len(held_back) == 3
    assert set(whole.test.text.tolist()) == held_back != set(other.test.text.tolist())
    assert set(split.test.text.tolist()) == held_back - gone
    assert set(split.train.text.tolist()) == set(others) - gone
