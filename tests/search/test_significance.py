import itertools

import numpy as np
import pytest

from deltadex.search import significance
from deltadex.search.labelled import LabelledModels
from deltadex.search.precision import score_queries
from deltadex.search.significance import bootstrap_interval, permutation_p


def make_family(vectors, labels, authors=None):
    n = len(labels)
    return LabelledModels(
        base="base",
        ids=tuple(f"model-{i:03d}" for i in range(n)),
        vectors=np.asarray(vectors, dtype=np.float32),
        labels=tuple(labels),
        authors=tuple(authors or [None] * n),
        runs=(None,) * n,
    )


def share_of_relabellings_as_pure(family, exclude):
    """The exact p: every way to deal the labels, scored by `score_queries`."""
    observed = np.mean([result.purity for result in score_queries(family, exclude)])
    places = [i for i, label in enumerate(family.labels) if label is not None]
    labels = [family.labels[i] for i in places]
    as_high = []
    for dealt in itertools.permutations(labels):
        relabelled = list(family.labels)
        for place, label in zip(places, dealt, strict=True):
            relabelled[place] = label
        results = score_queries(make_family(family.vectors, relabelled, family.authors), exclude)
        purities = [result.purity for result in results]
        as_high.append(bool(purities) and np.mean(purities) >= observed - 1e-12)
    return np.mean(as_high)


@pytest.mark.parametrize("exclude", [None, "author"])
def test_p_is_the_share_of_relabellings_that_look_as_pure(exclude):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(7, 4)) + np.repeat(np.eye(4)[:2] * 2, [3, 4], axis=0)
    labels = ["a", "a", "a", "b", "b", None, "b"]
    family = make_family(vectors, labels, ["x", None, "y", "x", "z", "z", None])

    p = permutation_p([family], exclude)

    # 999 draws: a standard error of at most 0.016
    assert p == pytest.approx(share_of_relabellings_as_pure(family, exclude), abs=0.06)


def test_p_is_small_where_datasets_are_separate():
    family = make_family(np.repeat(np.eye(3), 5, axis=0), list("aaaaabbbbbccccc"))

    assert permutation_p([family]) == pytest.approx(1 / 1000)


def test_p_is_not_computed_where_it_would_take_long(monkeypatch):
    monkeypatch.setattr(significance, "MAX_CELLS", 3)

    assert permutation_p([make_family(np.eye(4), list("aabb"))]) is None


def test_the_interval_resamples_whole_labels():
    family = make_family(np.eye(6)[[0, 0, 1, 2, 3, 3]], ["a", "a", "b", "c", "b", "c"])
    results = score_queries(family)
    purities = {(result.dataset, result.purity) for result in results}
    assert purities == {("a", 1.0), ("b", 0.0), ("c", 0.0)}

    # Of 27 draws of three labels 8 hold no a and 1 holds only a: 2.5 % cuts off neither
    assert bootstrap_interval(results) == (0.0, 1.0)


def test_the_interval_is_the_same_on_every_run():
    rng = np.random.default_rng(1)
    family = make_family(rng.normal(size=(30, 5)), [f"d{i % 6}" for i in range(30)])
    results = score_queries(family)

    low, high = bootstrap_interval(results, seed=4)

    assert (low, high) == bootstrap_interval(results, seed=4)
    assert low < np.mean([result.purity for result in results]) < high
