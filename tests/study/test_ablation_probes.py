"""Trained heads on planted senses and tags, and the search of a learning rate."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from deltadex.errors import StudyError
from deltadex.study.ablation import ablation_report, measures
from deltadex.study.ablation.measures import (
    CodedRows,
    Head,
    Training,
    tagging_probe,
    train_heads,
    word_sense_probe,
)
from deltadex.study.ablation.subsets import Items, Split

QUICK = Training(epochs=15, batch=32, learning_rates=(1e-3, 1e-2), runs=2)
LONGER = Training(epochs=20, batch=32, learning_rates=(1e-2,), runs=3)


def make_senses(n=400, n_lemmas=4, dim=8, seed=0):
    """The sign of one number in the attention is the sense, and lemmas differ in its meaning."""
    rng = np.random.default_rng(seed)
    lemma = rng.integers(n_lemmas, size=n)
    sign = rng.choice([0, 1], size=n)
    terms = rng.normal(scale=0.3, size=(2, n, dim)).astype(np.float32)
    terms[0, np.arange(n), lemma] += 2
    terms[1, :, -1] += 3 * sign - 1.5
    sense = np.where(lemma % 2 == 0, sign, 1 - sign)
    return terms, [f"l{x}" for x in lemma], [f"s{x}" for x in sense]


def items_of_senses(terms, lemma, sense, split=None):
    return Items(
        terms=terms,
        names=("input", "attention"),
        labels=sense,
        lemmas=lemma,
        text=np.arange(len(lemma)),
        split=split,
    )


@pytest.mark.parametrize("of_lemmas", [False, True])
def test_the_term_that_carries_the_sense_is_found_and_the_runs_agree_with_it(of_lemmas):
    items = items_of_senses(*make_senses())

    report = ablation_report(word_sense_probe(items, QUICK, of_lemmas=of_lemmas))

    scores = {score.label: score for score in report.scores}
    assert scores["ih"].value > 0.9
    assert scores["i"].value < 0.75
    assert scores["none"].value == pytest.approx(report.baseline)
    assert (report.n_runs, report.settings["lemmas"]) == (2, 4)
    # every lemma has a network of its own, so it need not see which lemma it is
    assert (scores["h"].value > 0.9) or not of_lemmas


@pytest.mark.parametrize("of_lemmas", [False, True])
def test_only_senses_of_the_lemma_are_answers_and_an_unseen_lemma_has_none(of_lemmas):
    terms, lemma, sense = make_senses(n=60)
    lemma[58:], sense[58:] = ["new", "new"], ["s0", "s1"]
    split = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))
    items = items_of_senses(terms, lemma, sense, split)

    predictions = word_sense_probe(items, QUICK, of_lemmas=of_lemmas)

    codes = {pair: n for n, pair in enumerate(dict.fromkeys(zip(lemma, sense, strict=True)))}
    lemma_of = {code: pair[0] for pair, code in codes.items()}
    for item, row in enumerate(predictions.predicted.transpose(2, 0, 1).reshape(10, -1)):
        if lemma[50 + item] == "new":
            assert (row == -1).all()
        else:
            assert {lemma_of[code] for code in row.tolist()} == {lemma[50 + item]}


def make_rows(n=600, n_classes=2, lemma=None):
    """The sign of a product of two numbers is the class."""
    terms, _, _ = make_senses(n=n)
    codes = (terms[1, :, -1] * terms[1, :, 0] > 0).astype(np.int64)
    lemma = np.zeros(n, dtype=np.int64) if lemma is None else lemma
    allowed = np.ones((int(lemma.max()) + 1, n_classes), dtype=bool)
    return CodedRows(rows=terms[1], codes=codes, lemma=lemma, allowed=allowed)


def test_a_lemma_trains_as_if_it_were_alone():
    lemma = np.arange(90) % 3
    rows = make_rows(90, lemma=lemma)
    training = Training(epochs=4, batch=16)
    unit = Head(rows, training, 1e-2, 0, hidden=5, of_lemmas=True)
    unit.train(4)

    for number in range(3):
        own = rows.only(np.flatnonzero(lemma == number))
        alone = Head(own, training, 1e-2, 0, hidden=5, of_lemmas=True)
        alone.scale = unit.scale
        alone.train(4)

        np.testing.assert_array_equal(alone.scores(own), unit.scores(own))


def test_a_head_is_as_good_as_scikit_learns_own_training():
    rows = make_rows()
    train, test = rows.only(np.arange(450)), rows.only(np.arange(450, 600))
    training = Training(epochs=60, batch=32)

    head = Head(train, training, 1e-2, 0, hidden=16, of_lemmas=False)
    head.train(60)
    accuracy, negative_loss = head.quality(test)

    reference = MLPClassifier((16,), learning_rate_init=1e-2, max_iter=60, random_state=0)
    reference.set_params(tol=0, n_iter_no_change=1000)
    with pytest.warns(UserWarning, match="iterations"):
        reference.fit(train.rows, train.codes)
    assert accuracy == pytest.approx(reference.score(test.rows, test.codes), abs=0.08)
    assert accuracy > 0.85
    assert negative_loss < 0


class Counting(Head):
    """A head whose quality is known."""

    made: ClassVar = []

    def __init__(self, data, training, learning_rate, seed, **_):
        self.rate, self.seed, self.epochs = learning_rate, seed, 0
        self.made.append(self)

    def train(self, epochs):
        self.epochs += epochs

    def quality(self, data):
        return (-abs(self.rate - 3), 0.0)


@pytest.mark.parametrize("rates", [(3.0,), (1.0, 3.0), (9.0, 3.0, 1.0, 5.0), (1.0, 2.0, 3.0)])
def test_the_best_rate_is_left_and_costs_two_trainings(rates, monkeypatch):
    monkeypatch.setattr(measures, "Head", Counting)
    monkeypatch.setattr(Counting, "made", [])
    training = Training(epochs=20, learning_rates=rates, runs=3)

    heads, rate = train_heads(make_rows(4), make_rows(4), training, hidden=2, of_lemmas=False)

    assert rate == 3.0
    assert [(h.seed, h.epochs, h.rate) for h in heads] == [(s, 20, 3.0) for s in range(3)]
    assert sum(h.epochs for h in Counting.made) <= 20 * 2 + 40


def make_tags(n=300, dim=8, seed=0, split=None):
    """Two terms whose signs' product is the tag, so that no linear head can read it."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(2, n))
    terms = rng.normal(scale=0.05, size=(3, n, dim)).astype(np.float32)
    terms[0, :, 0] += signs[0]
    terms[1, :, 1] += signs[1]
    tags = ["same" if s > 0 else "other" for s in signs[0] * signs[1]]
    names = ("input", "attention", "bias")
    return Items(terms=terms, names=names, labels=tags, text=np.arange(n), split=split)


def test_only_both_terms_together_say_the_tag():
    predictions = tagging_probe(make_tags(n=400), LONGER)

    for score in ("accuracy", "macro-F1"):
        report = ablation_report(predictions, score=score)
        for one in report.scores:
            if {"input", "attention"} <= set(one.terms):
                assert one.value > 0.97
            else:
                assert one.value < 0.7
        assert report.n_runs == 3
        assert report.scores[0].value == pytest.approx(report.baseline)
        assert all(one.sd is not None for one in report.scores)
    assert predictions.settings["tags"] == ["other", "same"]


def test_a_tag_of_the_test_part_alone_is_counted_wrong():
    items = make_tags(60, split=Split(np.arange(40), np.arange(40, 50), np.arange(50, 60)))
    items.labels[50] = "new"

    predictions = tagging_probe(items, LONGER)
    report = ablation_report(predictions)

    assert predictions.targets[0] == 0
    assert (predictions.predicted > 0).all()
    assert max(one.value for one in report.scores) <= 0.9


def test_one_tag_and_infinite_terms_are_refused():
    items = make_tags(n=30)
    items.terms[2, 0] = np.inf
    with pytest.raises(StudyError, match="'bias' of item 0"):
        tagging_probe(items, LONGER)

    items.terms[2, 0] = 0
    items.labels[:] = ["same"] * 30
    with pytest.raises(StudyError, match="one tag, 'same'"):
        tagging_probe(items, LONGER)
