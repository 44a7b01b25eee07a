from dataclasses import replace

import numpy as np
import pytest
from families import first, make_labelled, scored, unit_rows

from deltadex.search.evidence import calibrate
from deltadex.search.suggestions import hold_out, pick_references, suggest_datasets

TARGET = 0.8


def make_scored(n, **options):
    family, truth = make_labelled(n, **options)
    return scored(family), truth


def suggested(family, *unknown):
    """Suggestions without hints."""
    return [one for one in suggest_datasets(family, *unknown)[0] if not one["hint"]]


def test_noise_gets_no_suggestion_or_hardly_any_where_labels_are_said_to_name_every_dataset():
    family, _ = make_scored(300, datasets=25, strength=0.0, labelled=0.7)

    listed, calibration = suggest_datasets(family)

    assert [one for one in listed if not one["hint"]] == []
    assert calibration["threshold"] is None
    assert calibration["precision"] is None
    assert len(suggested(family, 0.0)) < 0.05 * family.labels.count(None)


@pytest.mark.parametrize(
    "strength", [1.2, *(pytest.param(s, marks=pytest.mark.slow) for s in (1.0, 1.5))]
)
def test_suggestions_hold_their_rate_with_datasets_that_no_label_names(strength):
    right = total = 0
    for seed in range(3):
        family, truth = make_scored(200, datasets=24, strength=strength, seed=seed, labelled=0.6)
        known = tuple(label if label and int(label[1:]) < 16 else None for label in family.labels)
        suggestions = suggested(replace(family, labels=known))
        total += len(suggestions)
        right += sum(truth[one["model"]] == one["dataset"] for one in suggestions)

    assert total > 25
    assert right / total >= TARGET


def test_hints_are_less_certain_and_a_stated_share_of_unknown_datasets_gives_more_suggestions():
    family, _ = make_scored(200, datasets=24, strength=0.9, labelled=0.6)

    listed, _ = suggest_datasets(family)
    counts = [len(suggested(family, unknown)) for unknown in (1.0, 0.5, 0.1)]

    hints = [one for one in listed if one["hint"]]
    assert hints
    assert all(0.5 <= one["confidence"] < TARGET for one in hints)
    assert all(one["confidence"] >= TARGET for one in listed if not one["hint"])
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_copies_do_not_vouch_for_one_another():
    family, _ = make_labelled(40, datasets=20, strength=0.0)
    family = replace(family, labels=tuple(label for label in family.labels[:20] for _ in range(2)))
    copied = scored(family, np.repeat(family.vectors[:20], 2, axis=0))

    references = pick_references(copied)
    labels = [references.names[code] for code in references.codes]
    known = calibrate(references.z, labels, references.apart, 40)

    held_out = hold_out(references, known, 1.0)
    assert held_out.share(held_out.right, ~held_out.lone) < 0.3  # a copy would find itself


def test_a_copy_of_a_labelled_model_is_suggested_its_dataset():
    family, _ = make_labelled(40, datasets=20, strength=0.0, authors=False)
    vectors = family.vectors.copy()
    vectors[0] = vectors[1]
    family = replace(family, labels=(None, "its own", *family.labels[2:]))

    (listed, *_), _ = suggest_datasets(scored(family, vectors))

    assert listed["model"] == "m0000"
    assert (listed["dataset"], listed["verdict"]) == ("its own", "copy")


@pytest.mark.parametrize("mark", ["runs", "authors"])
def test_models_of_one_run_or_author_count_as_one_answer(mark):
    family, _ = make_scored(60, datasets=4, strength=1.5, authors=False)
    marks = tuple(f"{label}-{i % 2}" for i, label in enumerate(family.labels))

    calibration = suggest_datasets(replace(family, **{mark: marks}))[1]

    assert calibration["models"] == 60
    assert calibration["answers"] == 8


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
        {one["model"]: one["fdr"] for one in suggest_datasets(family)[0]}.get(family.ids[row], 1.0)
        for family in (mine, theirs)
    )
    assert their_rate < 0.2 < own_rate


@pytest.mark.parametrize(
    "labels", [(), (None,), ("a",), ("a", "a"), ("a", "b", None), ("a",) * 30, (None,) * 5]
)
def test_families_without_evidence_get_none(labels):
    family, _ = make_labelled(max(3, len(labels)), datasets=1, strength=0.0)
    family = replace(first(family, len(labels)), labels=labels)

    listed, calibration = suggest_datasets(scored(family))

    assert all(one["hint"] for one in listed)
    assert calibration["threshold"] is None
    assert calibration["coverage"] == 0.0
