"""Probes of senses against plain torch and scikit-learn, and the search of a learning rate."""

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier

from deltadex.study.ablation import (
    ablation_report,
    word_sense_probe,
    word_sense_probes_of_lemmas,
)
from deltadex.study.ablation.lemma_probe import LemmaProbes, LemmaRows
from deltadex.study.ablation.rate_search import Labelled, Training, train_runs
from deltadex.study.ablation.text_split import Split
from deltadex.study.ablation.trained_probe import LayerProbe, ProbeShape, Rows

NAMES = ("input", "attention")
QUICK = Training(epochs=15, batch=32, learning_rates=(1e-3, 1e-2), runs=2)


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


@pytest.mark.parametrize("measure", [word_sense_probe, word_sense_probes_of_lemmas])
def test_the_term_that_carries_the_sense_is_found_and_the_runs_agree_with_it(measure):
    terms, lemma, sense = make_senses()

    predictions = measure(terms, lemma, sense, NAMES, training=QUICK)
    report = ablation_report(predictions)

    scores = {score.label: score for score in report.scores}
    assert scores["ih"].value > 0.9
    assert scores["i"].value < 0.75
    assert scores["none"].value == pytest.approx(report.baseline)
    assert (report.n_runs, report.settings["lemmas"]) == (2, 4)
    # every lemma has a network of its own, so it need not see which lemma it is
    assert (scores["h"].value > 0.9) or measure is word_sense_probe


@pytest.mark.parametrize("measure", [word_sense_probe, word_sense_probes_of_lemmas])
def test_only_senses_of_the_lemma_are_answers_and_an_unseen_lemma_has_none(measure):
    terms, lemma, sense = make_senses(n=60)
    lemma[58:], sense[58:] = ["new", "new"], ["s0", "s1"]
    split = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))

    predictions = measure(terms, lemma, sense, NAMES, split=split, training=QUICK)

    codes = {pair: n for n, pair in enumerate(dict.fromkeys(zip(lemma, sense, strict=True)))}
    lemma_of = {code: pair[0] for pair, code in codes.items()}
    for item, row in enumerate(predictions.predicted.transpose(2, 0, 1).reshape(10, -1)):
        if lemma[50 + item] == "new":
            assert (row == -1).all()
        else:
            assert {lemma_of[code] for code in row.tolist()} == {lemma[50 + item]}


def test_a_lemma_trains_as_if_it_were_alone():
    terms, lemma, sense = make_senses(n=90, n_lemmas=3)
    codes = np.unique([f"{a}{b}" for a, b in zip(lemma, sense, strict=True)], return_inverse=True)
    codes = codes[1].astype(np.int64)
    lemmas = np.unique(lemma, return_inverse=True)[1].astype(np.int64)
    allowed = np.zeros((3, 6), dtype=bool)
    allowed[lemmas, codes] = True
    rows = LemmaRows.of(Labelled(terms[1], codes, lemmas), allowed, "cpu")
    training = Training(epochs=4, batch=10_000, learning_rates=(1e-2,))

    probes = LemmaProbes(rows, 5, training, 1e-2, 0)
    fresh = [[w.detach().clone() for w in n.weights] for n in probes._networks]
    probes.train(4)

    for group, networks, start in zip(rows.groups, probes._networks, fresh, strict=True):
        for place, number in enumerate(group.lemmas.tolist()):
            alone = [weight[place].clone().requires_grad_() for weight in start]
            optimiser = torch.optim.AdamW(alone, lr=1e-2, weight_decay=0.01)
            own = np.flatnonzero(lemmas == number)
            x, y = rows.rows.rows[own], rows.place[own]
            for _ in range(4):
                optimiser.zero_grad()
                scores = torch.relu(x @ alone[0] + alone[1]) @ alone[2] + alone[3]
                torch.nn.functional.cross_entropy(scores, y).backward()
                optimiser.step()
            for weight, expected in zip(networks.weights, alone, strict=True):
                torch.testing.assert_close(weight[place], expected, rtol=1e-4, atol=1e-5)


def test_of_one_lemma_the_probe_is_as_good_as_scikit_learns():
    terms, _, _ = make_senses(n=600, n_lemmas=4)
    targets = (terms[1, :, -1] * terms[1, :, 0] > 0).astype(np.int64)
    train, test = np.arange(450), np.arange(450, 600)
    data = Labelled(terms[1], targets, np.zeros(600, dtype=np.int64))
    training = Training(epochs=60, batch=32, learning_rates=(1e-2,))
    shape = ProbeShape(n_classes=2, hidden=16)

    probe = LayerProbe(shape, Rows.of(data.part(train), "cpu"), training, 1e-2, 0)
    probe.train(60)
    accuracy, negative_loss = probe.quality(data.part(test))

    reference = MLPClassifier((16,), learning_rate_init=1e-2, max_iter=60, random_state=0)
    reference.tol = 0
    reference.set_params(n_iter_no_change=1000)
    with pytest.warns(UserWarning, match="iterations"):
        reference.fit(terms[1, train], targets[train])
    assert accuracy == pytest.approx(reference.score(terms[1, test], targets[test]), abs=0.08)
    assert accuracy > 0.85
    assert negative_loss < 0


class Counting:
    """A probe whose quality is known."""

    def __init__(self, rate, seed):
        self.rate, self.seed, self.epochs = rate, seed, 0

    def train(self, epochs):
        self.epochs += epochs

    def predict(self, data):
        return data.codes

    def quality(self, data):
        return (-abs(self.rate - 3), 0.0)


@pytest.mark.parametrize("rates", [(3.0,), (1.0, 3.0), (9.0, 3.0, 1.0, 5.0), (1.0, 2.0, 3.0)])
def test_the_best_rate_is_left_and_costs_two_trainings(rates):
    started = []

    def start(rate, seed):
        started.append(Counting(rate, seed))
        return started[-1]

    data = Labelled(np.zeros((1, 1), dtype=np.float32), np.zeros(1, int), np.zeros(1, int))
    training = Training(epochs=20, learning_rates=rates, runs=3)

    probes, rate = train_runs(start, data, training)

    assert rate == 3.0
    assert [(p.seed, p.epochs, p.rate) for p in probes] == [(s, 20, 3.0) for s in range(3)]
    assert sum(p.epochs for p in started) <= 20 * 2 + 40
