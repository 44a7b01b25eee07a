"""Each measure on planted terms: masked tokens by a real and a new head, senses, tags."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.ablation import ablation_report, measures
from deltadex.study.ablation.measures import (
    Training,
    masked_accuracy,
    tagging_probe,
    trained_masked_accuracy,
    vote,
    word_sense_knn,
    word_sense_probe,
)
from deltadex.study.ablation.subsets import Items, split_by_text, term_subsets

NAMES = ("input", "attention", "feed_forward", "bias")
QUICK = Training(epochs=15, batch=64, learning_rates=(1e-3, 3e-2), runs=2)


def make_items(terms, targets):
    text, asked = np.arange(len(targets)), {"predicts": "masked"}
    return Items(terms=terms, names=NAMES, labels=targets, text=text, settings=asked)


def make_planted(n=300, dim=12, classes=4, carrier=1, seed=0):
    """Terms of which one alone says what the target is; targets spread over all classes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes, size=n)
    terms = rng.normal(scale=0.1, size=(4, n, dim)).astype(np.float32)
    terms[carrier] += 3 * np.eye(classes, dim, dtype=np.float32)[targets]
    return terms, targets


class ReadOff(torch.nn.Module):
    """As a model's own head: reads a target of four off the first four of twelve numbers."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(weight * torch.eye(12, 4))

    def forward(self, *, inputs_embeds):
        return SimpleNamespace(logits=inputs_embeds @ self.weight)


def test_every_subset_is_predicted_from_its_sum_in_blocks_of_any_size(monkeypatch):
    terms, targets = make_planted(n=100)
    items, head = make_items(terms, targets), ReadOff()
    (_, *expected) = (subset.sum(terms)[:, :4].argmax(axis=1) for subset in term_subsets(NAMES))

    (predicted,) = masked_accuracy(items, head).predicted

    np.testing.assert_array_equal(predicted[1:], expected)
    assert len(np.unique(predicted, axis=0)) > 8
    monkeypatch.setattr(measures, "HEAD_TOKENS", 7)
    np.testing.assert_array_equal(masked_accuracy(items, head).predicted[0], predicted)


def test_nan_in_terms_or_scores_is_refused():
    terms, targets = make_planted(n=20)

    with pytest.raises(StudyError, match="scores NaN on 'none'"):
        masked_accuracy(make_items(terms, targets), ReadOff(torch.nan))
    terms[0, 3] = np.nan
    with pytest.raises(StudyError, match="'input' of item 3"):
        masked_accuracy(make_items(terms, targets), ReadOff())


def test_a_trained_layer_finds_the_planted_term_and_nothing_else():
    report = ablation_report(trained_masked_accuracy(make_items(*make_planted(n=600)), QUICK))

    for score in report.scores:
        if "attention" in score.terms:
            assert score.value == 1.0
        else:
            assert score.value < 0.45
    assert report.n_items == 60
    assert report.n_runs == 2
    assert report.settings["split"] == {"train": 480, "validation": 60, "test": 60, "seed": 0}
    assert set(report.settings["chosen_learning_rates"]) == {s.label for s in report.scores[1:]}


SHORT = Training(epochs=15, batch=32, learning_rates=(1e-3, 1e-2), runs=2)
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


def items_of_senses(terms, lemma, sense):
    names, text = ("input", "attention"), np.arange(len(lemma))
    return Items(terms=terms, names=names, labels=sense, lemmas=lemma, text=text)


def test_the_term_that_carries_the_sense_is_found_and_the_runs_agree_with_it():
    items = items_of_senses(*make_senses())

    report = ablation_report(word_sense_probe(items, SHORT))

    scores = {score.label: score for score in report.scores}
    assert scores["ih"].value > 0.9
    assert scores["i"].value < 0.75
    assert scores["none"].value == pytest.approx(report.baseline)
    assert (report.n_runs, report.settings["lemmas"]) == (2, 4)


def make_tags(n=300, dim=8, seed=0):
    """Two terms whose signs' product is the tag, so that no linear head can read it."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(2, n))
    terms = rng.normal(scale=0.05, size=(3, n, dim)).astype(np.float32)
    terms[0, :, 0] += signs[0]
    terms[1, :, 1] += signs[1]
    tags = ["same" if s > 0 else "other" for s in signs[0] * signs[1]]
    names = ("input", "attention", "bias")
    return Items(terms=terms, names=names, labels=tags, text=np.arange(n))


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


def test_a_target_never_trained_on_is_counted_wrong():
    terms, targets = make_planted(n=60)
    (unseen, *_) = split_by_text(np.arange(60)).test
    targets[unseen] = 7

    predictions = trained_masked_accuracy(make_items(terms, targets), QUICK)

    assert predictions.settings["test_targets_never_trained"] == 1
    assert ablation_report(predictions).scores[-1].value == pytest.approx(5 / 6)


def test_only_senses_of_the_lemma_are_answers_and_an_unseen_lemma_has_none():
    terms, lemma, sense = make_senses(n=60)
    test = split_by_text(np.arange(60)).test
    for item, own in zip(test[:2], ("s0", "s1"), strict=True):
        lemma[item], sense[item] = "new", own

    predictions = word_sense_probe(items_of_senses(terms, lemma, sense), SHORT)

    codes = {pair: n for n, pair in enumerate(dict.fromkeys(zip(lemma, sense, strict=True)))}
    lemma_of = {code: pair[0] for pair, code in codes.items()}
    for item, row in zip(test, predictions.predicted.transpose(2, 0, 1), strict=True):
        answers = set(row.ravel().tolist())
        if lemma[item] == "new":
            assert answers == {-1}
        else:
            assert {lemma_of[code] for code in answers} == {lemma[item]}


def test_words_of_lemmas_with_one_sense_are_dropped():
    terms, lemma, sense = make_senses(n=60)
    lemma[:3], sense[:3] = ["once"] * 3, ["s0"] * 3

    found = word_sense_knn(items_of_senses(terms, lemma, sense))

    assert found.settings["monosemous_words_dropped"] == 3
    assert found.settings["lemmas"] == 4
    with pytest.raises(StudyError, match="none of 2 lemmas has two senses"):
        word_sense_knn(items_of_senses(terms[:, :3], ["a", "b", "a"], ["1", "2", "1"]))


WORDS = st.tuples(*[st.integers(-2, 2)] * 2, st.integers(0, 2))


@given(words=st.lists(WORDS, min_size=4, max_size=18), k=st.integers(1, 6))
@settings(deadline=None)
def test_votes_are_those_of_plain_loops(words, k):
    """The most frequent sense of the `k` nearest, of those the nearest, in training order.

    Vectors of zero are equally far from all, and of the others only the angle counts.
    """
    x, y, senses = map(np.array, zip(*words, (0, 0, 1), (1, 2, 2), strict=True))
    vectors = np.stack([x, y], axis=1).astype(np.float32)

    found = vote(vectors[-2:], vectors[:-2], senses[:-2], k)

    for item, voted in zip(vectors[-2:], found, strict=True):
        ranked = []
        for place, other in enumerate(vectors[:-2].astype(float)):
            length = np.linalg.norm(item.astype(float)) * np.linalg.norm(other)
            ranked.append((-round(float(item @ other) / length, 9) if length else 0.0, place))
        near = [senses[place] for _, place in sorted(ranked)[:k]]
        most = max(Counter(near).values())
        assert voted == next(sense for sense in near if near.count(sense) == most)
