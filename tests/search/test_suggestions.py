from dataclasses import replace

import numpy as np
import pytest
from families import make_labelled, scored, shuffled, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.search.evidence import tail
from deltadex.search.family_scores import bounded
from deltadex.search.suggestions import (
    PRIOR_ANSWERS,
    PRIOR_WRONG,
    SHOWN,
    HeldOut,
    _level,
    answer,
    false_discovery_rates,
    hold_out,
    pick_references,
    suggest_datasets,
)

TARGET = 0.8
SAID = ("precision", "coverage", "false_answers")
NOTHING_HELD_OUT = HeldOut(
    p=np.zeros(0),
    right=np.zeros(0, bool),
    weights=np.zeros(0),
    strangers=np.zeros(0),
    datasets=np.zeros(0, np.int64),
)


def make_scored(n, **options):
    family, truth = make_labelled(n, **options)
    return scored(family), truth


def suggested(family, *unknown):
    """Suggestions without hints."""
    return [one for one in suggest_datasets(family, *unknown)[0] if not one.hint]


def test_clear_datasets_are_suggested_and_right():
    family, truth = make_scored(300, datasets=25, strength=1.5, labelled=0.7)

    listed, calibration = suggest_datasets(family)
    suggestions = [one for one in listed if not one.hint]

    assert len(suggestions) > 60
    assert all(one.confidence >= TARGET for one in suggestions)
    assert np.mean([truth[one.model] == one.dataset for one in suggestions]) >= 0.95
    assert {one.model for one in listed} <= {
        id for id, label in zip(family.ids, family.labels, strict=True) if label is None
    }
    assert calibration["held_out"] == "author"


def test_a_family_without_better_scores_is_compared_by_its_vectors():
    family, truth = make_labelled(60, datasets=4, strength=2.0, labelled=0.7)

    references = pick_references(family)
    listed = suggest_datasets(family)[0]

    cosines = family.vectors[references.rows] @ family.vectors[references.rows].T
    assert references.cosines == pytest.approx(cosines, abs=1e-6)
    assert bounded(references.z) == pytest.approx(cosines, abs=1e-6)
    assert listed
    assert all(truth[one.model] == one.dataset for one in listed if not one.hint)


def test_noise_gets_no_suggestion_or_hardly_any_where_labels_are_said_to_name_every_dataset():
    family, _ = make_scored(300, datasets=25, strength=0.0, labelled=0.7)

    listed, calibration = suggest_datasets(family)

    assert [one for one in listed if not one.hint] == []
    assert calibration["threshold"] is None
    assert calibration["precision"] is None
    assert len(suggested(family, 0.0)) < 0.05 * family.labels.count(None)


def test_few_labels_are_enough_where_datasets_are_clear():
    family, truth = make_scored(30, datasets=6, strength=1.5, labelled=0.6)

    suggestions = suggested(family)

    assert len(suggestions) >= 5
    assert all(truth[one.model] == one.dataset for one in suggestions)


@pytest.mark.parametrize("strength", [1.0, 1.2, 1.5])
def test_suggestions_hold_their_rate_with_datasets_that_no_label_names(strength):
    right = total = 0
    for seed in range(6):
        family, truth = make_scored(200, datasets=24, strength=strength, seed=seed, labelled=0.6)
        known = tuple(label if label and int(label[1:]) < 16 else None for label in family.labels)
        suggestions = suggested(replace(family, labels=known))
        total += len(suggestions)
        right += sum(truth[one.model] == one.dataset for one in suggestions)

    assert total > 50
    assert right / total >= TARGET


def test_hints_are_less_certain_and_a_stated_share_of_unknown_datasets_gives_more_suggestions():
    family, _ = make_scored(200, datasets=24, strength=0.9, labelled=0.6)

    listed, _ = suggest_datasets(family)
    counts = [len(suggested(family, unknown)) for unknown in (1.0, 0.5, 0.1)]

    hints = [one for one in listed if one.hint]
    assert hints
    assert all(0.2 < one.fdr <= 0.5 for one in hints)
    assert all(one.fdr <= 0.2 for one in listed if not one.hint)
    assert all(one.confidence == 1 - one.fdr for one in listed)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_the_models_does_not_matter(seed):
    family, _ = make_scored(90, datasets=12, seed=seed, labelled=0.8)
    order = np.random.default_rng(seed).permutation(90)

    listed, calibration = suggest_datasets(family)
    again, recalibrated = suggest_datasets(shuffled(family, order))

    assert again == listed
    assert recalibrated == calibration


def test_copies_do_not_vouch_for_one_another():
    family, _ = make_labelled(40, datasets=20, strength=0.0)
    family = replace(family, labels=tuple(label for label in family.labels[:20] for _ in range(2)))
    copied = scored(family, np.repeat(family.vectors[:20], 2, axis=0))

    held_out = hold_out(pick_references(copied), 1.0)

    assert held_out.right.mean() < 0.3  # with its copy each would find itself
    assert held_out.p.min() > 0


def test_a_copy_of_a_labelled_model_is_suggested_its_dataset():
    family, _ = make_labelled(40, datasets=20, strength=0.0, authors=False)
    vectors = family.vectors.copy()
    vectors[0] = vectors[1]
    family = replace(family, labels=(None, "its own", *family.labels[2:]))

    (listed, *_), _ = suggest_datasets(scored(family, vectors))

    assert (listed.model, listed.dataset, listed.verdict) == ("m0000", "its own", "copy")


@pytest.mark.parametrize("mark", ["runs", "authors"])
def test_models_of_one_run_or_author_count_as_one_answer(mark):
    family, _ = make_scored(60, datasets=4, strength=1.5, authors=False)
    marks = tuple(f"{label}-{i % 2}" for i, label in enumerate(family.labels))

    calibration = suggest_datasets(replace(family, **{mark: marks}))[1]

    assert calibration["models"] == 60
    assert calibration["answers"] == 8


def test_a_family_of_one_author_holds_out_runs_instead():
    family, _ = make_scored(120, datasets=6, strength=1.5, labelled=0.6)

    listed, calibration = suggest_datasets(replace(family, authors=("me",) * 120))

    assert calibration["held_out"] == "run"
    assert listed


def test_an_author_does_not_vouch_for_the_own_unlabelled_model():
    family, _ = make_labelled(121, datasets=6, strength=1.5, labelled=0.7)
    row = family.labels.index(None)
    own = [place for place, label in enumerate(family.labels) if label is not None][:3]
    habit = unit_rows(np.random.default_rng(3).normal(size=(1, 64)))[0]
    authors, labels, vectors = [*family.authors], [*family.labels], family.vectors.copy()
    for place in own:
        authors[place], labels[place] = "same", "d0"
        vectors[place] = unit_rows((vectors[place] * 0.8 + habit)[None])[0]
    authors[row], vectors[row] = "same", habit
    mine = scored(replace(family, authors=tuple(authors), labels=tuple(labels)), vectors)

    theirs = replace(mine, authors=tuple(None if a == "same" else a for a in authors))

    own_rate, their_rate = (
        {one.model: one.fdr for one in suggest_datasets(family)[0]}.get(family.ids[row], 1.0)
        for family in (mine, theirs)
    )
    assert their_rate < 0.2 < own_rate


@pytest.mark.parametrize(
    "labels", [(), (None,), ("a",), ("a", "a"), ("a", "b", None), ("a",) * 30, (None,) * 5]
)
def test_families_without_evidence_get_none(labels):
    family, _ = make_labelled(max(3, len(labels)), datasets=1, strength=0.0)
    family = replace(shuffled(family, np.arange(len(labels))), labels=labels)

    listed, calibration = suggest_datasets(scored(family))

    assert all(one.hint for one in listed)
    assert calibration["threshold"] is None
    assert calibration["coverage"] == 0.0


# formulas


def test_the_nearest_model_names_the_dataset_and_all_of_its_models_are_evidence_by_hand():
    z = np.array([[5.0, 1.0, 4.5, 2.0, 4.9]])
    codes = np.array([0, 0, 0, 1, 1])
    everyone = np.ones((1, 5), dtype=bool)

    answers = answer(z, z / 10, everyone, codes, 1.0)

    by_rank = [5 * tail(np.array([value]), 1.0)[0] / (r + 1) for r, value in enumerate((5.0, 4.5))]
    assert answers.codes[0] == 0
    assert answers.p[0] == pytest.approx(min(by_rank))
    assert answers.cosines[0] == 0.5


def test_without_a_model_that_may_answer_there_is_no_evidence():
    answers = answer(np.ones((2, 3)), np.ones((2, 3)), np.zeros((2, 3), bool), np.arange(3), 1.0)

    assert answers.p.tolist() == [1.0, 1.0]


@given(
    p=st.lists(st.floats(0, 1), min_size=1, max_size=30), unknown=st.sampled_from([0.0, 0.3, 1.0])
)
def test_rates_are_those_of_benjamini_and_hochberg(p, unknown):
    found = false_discovery_rates(np.array(p), unknown, NOTHING_HELD_OUT)

    floor = PRIOR_WRONG / PRIOR_ANSWERS
    for place, own in enumerate(p):
        thresholds = [other for other in p if other >= own]
        at_each = [unknown * len(p) * limit / sum(x <= limit for x in p) for limit in thresholds]
        expected = min(1.0, max(floor, min(at_each))) if own < 1 else 1.0
        assert found[place] == pytest.approx(expected)


def test_confusions_that_held_out_models_show_count_whatever_is_known():
    p, right = np.array([0.01, 0.01, 0.3]), np.array([True, False, True])
    held_out = replace(NOTHING_HELD_OUT, p=p, right=right, weights=np.array([1.0, 0.5, 1.0]))

    rates = false_discovery_rates(np.array([0.001, 0.01, 0.2]), 0.0, held_out)

    assert rates.tolist() == pytest.approx([0.5 / 5, (0.5 + 0.5) / 6.5, (0.5 + 0.5) / 6.5])


def _said_of_held_out(held_out, p):
    """Precision, coverage and false answers, model by model."""
    own = list(zip(held_out.p, held_out.right, held_out.weights, strict=True))
    taken = [(right, weight) for value, right, weight in own if value <= p]
    answers = sum(weight for _, weight in taken)
    by_dataset = {}
    for value, dataset in zip(held_out.strangers, held_out.datasets, strict=True):
        by_dataset.setdefault(dataset, []).append(value <= p)
    return [
        sum(weight for right, weight in taken if right) / answers if answers else None,
        answers / sum(weight for *_, weight in own),
        np.mean([np.mean(values) for values in by_dataset.values()]),
    ]


def test_every_level_is_what_held_out_models_say_of_its_evidence():
    family, _ = make_scored(200, datasets=24, strength=1.0, labelled=0.6)

    calibration = suggest_datasets(family)[1]

    held_out = hold_out(pick_references(family), calibration["tail"]["rate"])
    levels = calibration["curve"]
    assert [level["confidence"] for level in levels] == list(SHOWN[: len(levels)])
    weakest = [level["p"] for level in levels]
    assert weakest == sorted(weakest, reverse=True)
    assert len(set(weakest)) > 3
    for level in levels:
        expected = _said_of_held_out(held_out, level["p"])
        assert [level[name] for name in SAID] == pytest.approx(expected)


def test_what_is_said_of_a_family_is_said_of_its_suggestions():
    family, _ = make_scored(200, datasets=24, strength=1.2, labelled=0.6)

    document = suggest_datasets(family)[1]

    (reached,) = (level for level in document["curve"] if level["confidence"] == TARGET)
    assert document["threshold"] == document["target"] == TARGET
    assert [document[name] for name in SAID] == [reached[name] for name in SAID]
    assert document["datasets"] == len(set(family.labels) - {None})
    assert document["kept_data"] == 0


@pytest.mark.parametrize(
    ("confidence", "weakest"), [(0.5, 0.3), (0.7, 0.2), (0.86, 0.05), (0.95, None)]
)
def test_a_level_has_the_answers_whose_rate_is_low_enough(confidence, weakest):
    p, rates = np.array([0.3, 0.05, 0.2, 0.9]), np.array([0.5, 0.1, 0.15, 0.6])
    held_out = replace(
        NOTHING_HELD_OUT,
        p=np.array([0.05, 0.2, 0.3, 0.9]),
        right=np.array([True, True, False, False]),
        weights=np.array([1.0, 0.5, 0.5, 1.0]),
        strangers=np.array([0.05, 0.3, 0.9]),
        datasets=np.array([0, 0, 1]),
    )

    level = _level(p, rates, held_out, confidence)

    if weakest is None:
        assert level == {}
    else:
        said = _said_of_held_out(held_out, weakest)
        assert (level["confidence"], level["p"]) == (confidence, weakest)
        assert [level[name] for name in SAID] == pytest.approx(said)


def test_without_held_out_models_nothing_is_said_of_them():
    level = _level(np.array([0.1]), np.array([0.1]), NOTHING_HELD_OUT, 0.8)

    assert [level[name] for name in SAID] == [None, 0.0, 0.0]


def test_a_taken_away_dataset_counts_as_one_however_many_models_it_has():
    held_out = replace(
        NOTHING_HELD_OUT,
        strangers=np.array([0.01, 0.9, 0.9, 0.9]),
        datasets=np.array([0, 1, 1, 1]),
    )

    assert held_out.false_answers(0.1) == pytest.approx(0.5)
    assert held_out.false_answers(0.95) == pytest.approx(1.0)


def test_every_dataset_has_a_voice_among_many_labelled_models(monkeypatch):
    monkeypatch.setattr("deltadex.search.suggestions.MOST_REFERENCES", 20)
    family, _ = make_scored(200, datasets=8)

    references = pick_references(family)

    assert len(references.rows) == 20
    assert set(references.names) == set(family.labels)
    assert np.bincount(references.codes).tolist().count(2) >= 4
