from dataclasses import replace

import numpy as np
import pytest
from families import make_labelled, shuffled, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from deltadex.search.clusters import suggest_datasets
from deltadex.search.clusters.suggest import (
    DOUBT,
    elect,
    held_out_answers,
    measure_levels,
    pick_references,
    tally,
)


def test_clear_datasets_are_suggested_and_right():
    family, truth = make_labelled(300, datasets=25, strength=1.5, labelled=0.7)

    suggestions, calibration = suggest_datasets(family)

    assert len(suggestions) > 60
    assert all(one.confidence >= 0.95 for one in suggestions)
    assert np.mean([truth[one.model] == one.dataset for one in suggestions]) >= 0.95
    assert {one.model for one in suggestions} <= {
        id for id, label in zip(family.ids, family.labels, strict=True) if label is None
    }
    assert calibration.held_out == "author"


def test_noise_gets_no_suggestion():
    family, _ = make_labelled(300, datasets=25, strength=0.0, labelled=0.7)

    suggestions, calibration = suggest_datasets(family, 0.0)

    assert suggestions == []
    assert calibration.threshold is None
    assert calibration.precision is None


@pytest.mark.parametrize(("n", "unknown"), [(30, 0.0), (120, 0.5)])
def test_few_labels_are_not_enough_however_clear(n, unknown):
    family, _ = make_labelled(n, datasets=6, strength=1.5, labelled=0.6)

    assert suggest_datasets(family, unknown)[0] == []


def test_few_datasets_are_enough_when_labels_are_known_to_name_them_all():
    family, truth = make_labelled(120, datasets=6, strength=1.5, labelled=0.6)

    suggestions, _ = suggest_datasets(family, 0.0)

    assert len(suggestions) > 30
    assert all(truth[one.model] == one.dataset for one in suggestions)


def test_held_out_halves_confirm_the_confidence_with_datasets_that_no_label_names():
    right = total = 0
    for seed in range(6):
        family, truth = make_labelled(400, datasets=48, strength=0.9, seed=seed, labelled=0.6)
        known = tuple(label if label and int(label[1:]) < 36 else None for label in family.labels)
        suggestions, _ = suggest_datasets(replace(family, labels=known))
        total += len(suggestions)
        right += sum(truth[one.model] == one.dataset for one in suggestions)

    assert total > 200
    assert right / total >= 0.95


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_the_models_does_not_matter(seed):
    family, _ = make_labelled(150, datasets=22, seed=seed, labelled=0.8)
    order = np.random.default_rng(seed).permutation(150)

    found, calibration = suggest_datasets(family)
    again, recalibrated = suggest_datasets(shuffled(family, order))

    assert again == found
    assert recalibrated.to_json() == calibration.to_json()


def test_copies_do_not_vouch_for_one_another():
    family, _ = make_labelled(40, datasets=20, strength=0.0)
    copied = replace(
        family,
        vectors=np.repeat(family.vectors[:20], 2, axis=0),
        labels=tuple(label for label in family.labels[:20] for _ in range(2)),
    )

    asked = held_out_answers(pick_references(copied))

    assert suggest_datasets(copied, 0.0)[1].threshold is None
    assert asked.right.mean() < 0.3  # with its copy each would find itself


@pytest.mark.parametrize("mark", ["runs", "authors"])
def test_models_of_one_run_or_author_count_as_one_answer(mark):
    family, _ = make_labelled(120, datasets=4, strength=1.5, authors=False)
    marks = tuple(f"{label}-{i % 2}" for i, label in enumerate(family.labels))

    found = suggest_datasets(replace(family, **{mark: marks}), 0.0)[1]

    assert found.models == 120
    assert found.answers == 8
    assert found.threshold is None


def test_a_family_of_one_author_holds_out_runs_instead():
    family, _ = make_labelled(120, datasets=6, strength=1.5, labelled=0.6)

    calibration = suggest_datasets(replace(family, authors=("me",) * 120), 0.0)[1]

    assert calibration.held_out == "run"
    assert calibration.threshold is not None


def test_an_author_does_not_vouch_for_the_own_unlabelled_model():
    family, _ = make_labelled(121, datasets=6, strength=1.5, labelled=0.7)
    labelled = [label is not None for label in family.labels]
    habit = unit_rows(np.random.default_rng(3).normal(size=(1, 64)))[0]
    row = labelled.index(False)
    authors = list(family.authors)
    vectors = family.vectors.copy()
    own = [place for place, known in enumerate(labelled) if known][:3]
    for place in (row, *own):
        authors[place] = "same"
        vectors[place] = unit_rows((family.vectors[place] * 0.8 + habit)[None])[0]
    labels = [*family.labels]
    for place in own:
        labels[place] = "d0"
    mine = replace(family, vectors=vectors, authors=tuple(authors), labels=tuple(labels))
    vectors[row] = habit

    suggestions, _ = suggest_datasets(mine, 0.0)

    assert family.ids[row] not in {one.model for one in suggestions}


@pytest.mark.parametrize(
    "labels", [(), (None,), ("a",), ("a", "a"), ("a", "b", None), ("a",) * 70, (None,) * 5]
)
def test_families_without_evidence_get_none(labels):
    family, _ = make_labelled(max(3, len(labels)), datasets=1)
    family = shuffled(family, np.arange(len(labels)))

    suggestions, calibration = suggest_datasets(replace(family, labels=labels))

    assert suggestions == []
    assert calibration.to_json()["curve"] == []
    assert calibration.coverage == 0.0


def test_the_bound_is_clopper_and_pearsons():
    family, _ = make_labelled(200, datasets=30, strength=1.0, authors=False)
    asked = held_out_answers(pick_references(family))

    (first, *_) = measure_levels(asked, 0.0)

    taken = asked.margins >= first.margin
    n, right = taken.sum(), (taken & asked.right).sum()
    assert np.array_equal(asked.weights, np.ones(len(asked.weights)))
    assert first.precision == pytest.approx(right / n)
    assert binom.sf(right - 1, n, first.confidence) == pytest.approx(DOUBT)


def test_confidence_rises_with_the_margin_and_never_passes_what_was_measured():
    family, _ = make_labelled(300, datasets=30, strength=0.8)

    levels = measure_levels(held_out_answers(pick_references(family)), 0.5)

    confidences = [level.confidence for level in levels]
    assert len(levels) > 5
    assert confidences == sorted(confidences)
    assert all(level.confidence <= level.precision for level in levels)


def test_more_unknown_datasets_mean_less_confidence():
    family, _ = make_labelled(300, datasets=30)
    asked = held_out_answers(pick_references(family))

    best = [max(one.confidence for one in measure_levels(asked, u)) for u in (0.0, 0.3, 0.7)]

    assert best == sorted(best, reverse=True)


def test_votes_are_the_mean_of_the_three_nearest_by_hand():
    family, _ = make_labelled(12, datasets=1)
    references = pick_references(replace(family, labels=(*["a"] * 5, *["b"] * 2, *[None] * 5)))
    scores = np.array([[0.9, 0.1, 0.5, 0.4, 0.2, 0.6, 0.0]])
    everyone = np.ones((1, 7), dtype=bool)

    votes = tally(scores, everyone, references)
    first, margins = elect(votes)

    assert votes[0] == pytest.approx([0.6, 0.3])
    assert (first[0], margins[0]) == (0, pytest.approx(0.3))


def test_every_dataset_has_a_voice_among_many_labelled_models(monkeypatch):
    monkeypatch.setattr("deltadex.search.clusters.suggest.MOST_REFERENCES", 20)
    family, _ = make_labelled(200, datasets=8)

    references = pick_references(family)

    assert len(references.rows) == 20
    assert set(references.names) == set(family.labels)
    assert np.bincount(references.codes).tolist().count(2) >= 4
