"""From z to a probability, a false discovery rate and a verdict."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import laplace
from sklearn.linear_model import LogisticRegression

from deltadex.search import evidence
from deltadex.store import FamilyView, ModelLabel

NOTHING = "no model stands out"
falling_z = st.lists(st.floats(-50, 50), min_size=1, max_size=40).map(
    lambda z: np.array(sorted(z, reverse=True))
)
rankings = st.lists(
    st.tuples(st.floats(-5, 20), st.sampled_from(["a", "b", "c", None])), min_size=1, max_size=30
).map(lambda rows: sorted(rows, key=lambda row: -row[0]))
LIKE_IT = evidence.Calibration(
    models=60, source="families like it", queries=40, weights=(-4.0, 0.8)
)


@given(falling_z, st.integers(0, 30), st.floats(0.2, 5))
def test_rates_of_the_null_are_those_of_benjamini_and_hochberg(z, more, rate):
    n = len(z) + more

    found = evidence.null_rates(z, rate, n, np.zeros(len(z), bool))

    p = laplace.sf(z, scale=rate)
    for place, own in enumerate(z):
        below = [n * p[k] / (k + 1) for k in range(len(z)) if z[k] <= own and k >= place]
        assert found[place] == pytest.approx(min(1.0, min(below)), abs=1e-12)


@given(rankings)
def test_probabilities_are_shares_and_data_sets_share_one(rows):
    z, labels = np.array([row[0] for row in rows]), [row[1] for row in rows]

    p = LIKE_IT.judge(z, labels).probabilities

    best = {label: p[place] for place, label in reversed(list(enumerate(labels))) if label}
    assert ((p >= 0) & (p <= 1)).all()
    assert sum(best.values()) <= 1 + 1e-9


def test_the_fdr_is_the_mean_of_what_is_left_to_one():
    judged = LIKE_IT.judge(np.array([9.0, 8.0, 2.0]), ["a", "a", "b"])

    wrong = 1 - judged.probabilities
    assert judged.fdr == pytest.approx(wrong.cumsum() / [1, 2, 3])


def test_the_gap_to_the_next_data_set_counts():
    z = np.array([9.0, 8.0, 7.5, 1.0])

    near = LIKE_IT.judge(z, ["a", "b", "b", "c"]).probabilities[0]
    far = LIKE_IT.judge(z, ["a", "a", "a", "c"]).probabilities[0]

    assert near < 0.75 < 0.85 < far


def test_a_filter_does_not_make_an_answer_sure():
    z = np.array([6.0, 5.5])

    alone = LIKE_IT.judge(z, ["a", "a"]).probabilities
    beside = LIKE_IT.judge(np.append(z, -1.0), ["a", "a", "b"]).probabilities[:2]

    assert (alone < beside).all()


@given(rankings)
def test_a_support_is_a_weighted_mean_of_three_of_a_label(rows):
    z, codes = (
        np.array([row[0] for row in rows]),
        evidence.codes_of_labels([row[1] for row in rows]),
    )

    of_rows, best, labels = evidence.supports(z, codes, np.ones(len(z), bool))

    for row in np.flatnonzero(codes >= 0):
        others = [z[k] for k in range(len(z)) if codes[k] == codes[row] and k != row]
        assert of_rows[row] == pytest.approx(weighted([z[row], *sorted(others)[::-1][:2]]))
    for support, code in zip(best, labels, strict=True):
        assert support == pytest.approx(weighted(np.sort(z[codes == code])[::-1][:3]))


def weighted(values):
    return np.average(values, weights=[1.0, 0.2, 0.1][: len(values)])


def make_family(n, n_datasets, seed=0, height=0.0):
    """z of unrelated models, those of a dataset `height` above; and their labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n))
    labels = [f"d{i % n_datasets}" for i in range(n)]
    same = np.equal.outer(labels, labels)
    return (z + z.T) / math.sqrt(2) + height * same, labels


def ask(z, labels, n_family=None):
    return evidence.calibrate(z, labels, ~np.eye(len(z), dtype=bool), n_family or len(z))


@pytest.mark.parametrize(
    ("n", "n_datasets", "source"),
    [
        (40, 8, "labelled models of the family"),
        (evidence.FEWEST_MODELS, 4, "labelled models of the family"),
        (40, 40, "families like it"),
        (40, 1, "families like it"),
        (evidence.FEWEST_MODELS - 1, 3, "the null alone"),
        (2, 1, "the null alone"),
    ],
)
def test_a_family_calibrates_by_what_it_knows(n, n_datasets, source):
    calibration = ask(*make_family(n, n_datasets, height=4.0))

    assert calibration.source == source
    assert calibration.queries == (n if n >= evidence.FEWEST_MODELS and n_datasets > 1 else 0)


def test_labels_that_do_not_follow_the_data_move_nothing():
    assert ask(*make_family(40, 8)).source == "families like it"


def test_coefficients_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    right = rng.random(200) < 1 / (1 + np.exp(-x @ [0.5, 2.0, -1.0]))
    weights, precision = rng.uniform(0.2, 2, 200), 0.7

    found = evidence.fit_choices(
        x[:, None, :], np.ones((200, 1), bool), np.where(right, 0, -1), weights,
        [0.0] * 3, [precision] * 3,
    )  # fmt: skip

    model = LogisticRegression(C=1 / precision, fit_intercept=False, tol=1e-10, max_iter=1000)
    assert found == pytest.approx(model.fit(x, right, weights).coef_[0], abs=1e-5)


@pytest.mark.parametrize("height", [4.0, pytest.param(8.0, marks=pytest.mark.slow)])
def test_probabilities_are_those_that_are_found(height):
    p, right, lone = [], [], []
    for seed in range(12):
        z, labels = make_family(48, 8, seed, height)
        known = ask(z[:40, :40], labels[:40])
        for row in range(40, 48):
            for alone in (False, True):
                kept = [k for k in range(40) if not (alone and labels[k] == labels[row])]
                order = sorted(kept, key=lambda k: -z[row, k])
                judged = known.judge(z[row, order], [labels[k] for k in order])
                p.append(judged.probabilities[0])
                right.append(labels[order[0]] == labels[row])
                lone += [judged.verdicts[0] == NOTHING] if alone else []

    assert np.mean(p) == pytest.approx(np.mean(right), abs=0.06)
    assert np.square(np.subtract(p, right)).mean() < 0.1
    assert np.mean(lone) >= 0.93


class _View(FamilyView):
    """A family with these labels, as a catalog that changes shows it."""

    changes, is_current = "", False

    def __init__(self, labels, is_guessed=False):
        self.known = [ModelLabel(name, None, None, is_guessed) for name in labels]

    def __len__(self):
        return len(self.known)

    def labels_at(self, rows, *, and_removed=False):
        return {row: self.known[row] for row in rows}


def test_a_calibration_is_by_the_stated_labels_as_of_now():
    z, labels = make_family(40, 8)
    cohort = evidence.LabelledCohort(np.arange(40), z, ~np.eye(40, dtype=bool))
    by_labels, without = ask(z, labels), ask(z, [None] * 40)

    known = cohort.calibration(_View(labels))
    assert known == by_labels
    assert cohort.calibration(_View(labels)) is known  # another model was indexed, say
    assert cohort.calibration(_View([None] * 40)) == without
    assert cohort.calibration(_View(labels)) == by_labels
    assert cohort.calibration(_View(labels, is_guessed=True)) == without
