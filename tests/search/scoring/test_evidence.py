"""From z to a false discovery rate and a verdict."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import laplace

from deltadex.search.evidence import (
    COPY_COSINE,
    FEWEST_QUERIES,
    LIKELY,
    PERHAPS,
    RATE,
    UNSEEN,
    Calibration,
    LabelledCohort,
    calibrate,
    tail,
    verdict,
)
from deltadex.store import FamilyView, Label

falling_z = st.lists(st.floats(-50, 50), min_size=1, max_size=40).map(
    lambda z: np.array(sorted(z, reverse=True))
)


def known(rate):
    return Calibration(rate, "the null alone", 0, 0)


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=20), st.floats(0.2, 5))
def test_the_tail_is_laplaces(z, rate):
    assert tail(np.array(z), rate) == pytest.approx(laplace.sf(z, scale=rate), abs=1e-12)


def test_the_tail_of_infinities_is_none_or_all():
    assert tail(np.array([np.inf, -np.inf]), 1.0).tolist() == [0.0, 1.0]


@given(falling_z, st.integers(0, 30), st.floats(0.2, 5))
def test_rates_are_those_of_benjamini_and_hochberg(z, more, rate):
    n = len(z) + more

    found = known(rate).fdr(z, n)

    p = laplace.sf(z, scale=rate)
    for place, own in enumerate(z):
        below = [n * p[k] / (k + 1) for k in range(len(z)) if z[k] <= own and k >= place]
        assert found[place] == pytest.approx(min(1.0, min(below)), abs=1e-12)


def test_no_neighbours_have_no_rates():
    assert known(1.0).fdr(np.zeros(0), 0).shape == (0,)


@pytest.mark.parametrize(
    ("cosine", "fdr", "words"),
    [
        (COPY_COSINE, 1.0, "copy"),
        (0.3, LIKELY, "likely the same data"),
        (0.3, PERHAPS, "perhaps"),
        (0.94, 0.051, "no model stands out"),
        (-1.0, 1.0, "no model stands out"),
    ],
)
def test_verdicts(cosine, fdr, words):
    assert verdict(cosine, fdr) == words


# the rate of a family


def make_family(n, n_datasets, seed=0, height=0.0):
    """z of unrelated models, those of a dataset `height` above; and their labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n))
    labels = [f"d{i % n_datasets}" for i in range(n)]
    same = np.equal.outer(labels, labels)
    return (z + z.T) / math.sqrt(2) + height * same, labels


def ask(z, labels, n_family=None):
    return calibrate(z, labels, ~np.eye(len(z), dtype=bool), n_family or len(z))


@pytest.mark.parametrize(
    ("n", "n_datasets", "source"),
    [
        (40, 8, "labelled pairs"),
        (40, 40, "labelled pairs"),
        (FEWEST_QUERIES, 5, "labelled pairs"),
        (FEWEST_QUERIES - 1, 5, "the null alone"),
        (40, 1, "the null alone"),
        (2, 1, "the null alone"),
    ],
)
def test_labelled_pairs_calibrate_where_there_are_enough(n, n_datasets, source):
    calibration = ask(*make_family(n, n_datasets))

    assert calibration.source == source
    assert calibration.queries == (n if n_datasets > 1 else 0)


def test_labels_that_are_hidden_do_not_count():
    z, labels = make_family(40, 8)

    assert ask(z, [None] * 40).source == "the null alone"
    assert ask(z, labels[:10] + [None] * 30).queries == 10


@pytest.mark.parametrize("n", [1, 2, 5, 20, 1000])
def test_the_rate_of_the_null_alone_is_wider_in_small_families(n):
    calibration = ask(np.zeros((1, 1)), [None], n)

    assert calibration.rate == pytest.approx(RATE * (1 + 2 / n))


def test_labels_only_raise_rates():
    z, labels = make_family(60, 6, height=9.0)
    asked = np.linspace(12, -2, 40)

    assert (ask(z, labels).fdr(asked, 59) >= ask(z, [None] * 60).fdr(asked, 59)).all()


def test_measured_shares_are_those_of_a_count():
    z, labels = make_family(60, 6, height=2.0)
    calibration = ask(z, labels)
    strangers = [[j for j in range(60) if labels[j] != labels[i]] for i in range(60)]
    nearest = np.array([z[i, others].max() for i, others in enumerate(strangers)])

    for level in np.quantile(nearest, [0.1, 0.5, 0.9]):
        reached = nearest[nearest <= level].max()
        wrong = sum(z[i, j] >= reached for i in range(60) for j in strangers[i])
        right = sum(
            z[i, j] >= reached
            for i in range(60)
            for j in range(60)
            if i != j and labels[i] == labels[j]
        )
        by_query = ((nearest >= reached).mean() * 6 + UNSEEN) / (6 + UNSEEN)

        expected = max(by_query, wrong / (wrong + right))
        assert calibration.measured(np.array([level]))[0] <= expected + 1e-12

    first = float(nearest.min())
    assert calibration.measured(np.array([first]))[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("z", "share"), [(-1.0, 0.5), (1.0, 0.5), (1.9, 0.5), (2.0, 0.3), (3.0, 0.1), (9.0, 0.1)]
)
def test_a_measured_share_holds_from_its_level_on(z, share):
    levels, shares = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.3, 0.1])
    calibration = Calibration(1.0, "labelled pairs", 5, 50, levels, shares)

    assert calibration.measured(np.array([z])).tolist() == [share]


def test_alike_data_sets_make_answers_careful():
    z, labels = make_family(60, 6, height=9.0)
    alike = {"d0": "d1", "d1": "d0", "d2": "d3", "d3": "d2"}
    z += 8.0 * np.equal.outer([alike.get(label, "") for label in labels], labels)

    assert ask(z, labels).fdr(np.array([8.0]), 59)[0] > 0.2
    assert ask(z, [None] * 60).fdr(np.array([8.0]), 59)[0] < 0.1


def test_a_lone_query_stands_out_in_one_of_twenty_families_at_most():
    rng = np.random.default_rng(0)
    silent = []
    for seed in range(200):
        z, labels = make_family(40, 8, seed, height=6.0)
        nearest = np.sort(rng.normal(size=40))[::-1]
        silent.append(ask(z, labels).fdr(nearest, 40)[0] > PERHAPS)

    assert np.mean(silent) >= 0.95


@given(seed=st.integers(0, 1000), order=st.permutations(range(24)))
def test_the_order_of_the_models_does_not_change_the_rate(seed, order):
    z, labels = make_family(24, 6, seed)
    order = np.array(order)

    moved = ask(z[np.ix_(order, order)], [labels[i] for i in order])

    assert moved.rate == pytest.approx(ask(z, labels).rate)
    assert moved.shares == pytest.approx(ask(z, labels).shares)


class _View(FamilyView):
    """A family whose labels change, as a catalog shows them."""

    changes, is_current = "0", True

    def __init__(self, labels):
        self.dataset_of = dict(enumerate(labels))

    def __len__(self):
        return len(self.dataset_of)

    def change(self, labels):
        self.dataset_of, self.changes = dict(enumerate(labels)), f"{self.changes}+"

    def labels_at(self, rows):
        return {
            row: Label(dataset=self.dataset_of[row], author=None, run=None)
            for row in rows
            if row in self.dataset_of
        }


def test_a_calibration_is_by_the_labels_as_of_now():
    z, labels = make_family(40, 8)
    strangers = ~np.eye(40, dtype=bool)
    cohort, view = LabelledCohort(np.arange(40), z, strangers), _View(labels)
    by_labels = calibrate(z, labels, strangers, 40)
    without = calibrate(z, [None] * 40, strangers, 40)
    assert by_labels.source != without.source

    def source():
        return cohort.calibration(view).source

    assert source() == by_labels.source
    known = cohort.calibration(view)
    view.change(labels)
    assert cohort.calibration(view) is known  # another model was indexed, say
    view.change([None] * 40)
    assert source() == without.source
    view.change(labels)
    view.is_current = False  # a snapshot: it neither takes nor gives what is current
    assert source() == by_labels.source
    view.change([None] * 40)
    view.is_current = True
    assert source() == without.source
