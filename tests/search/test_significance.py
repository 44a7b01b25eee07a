import itertools

import numpy as np
import pytest
from families import make_family, ranked

from deltadex.search import evaluation


def share_of_relabellings_as_pure(family, exclude):
    """The exact p: every way to deal the labels, scored by `rank`; and by dataset."""

    def purities(family):
        results = ranked(family, exclude)
        by_dataset = [[r.purity for r in results if r.dataset == name] for name in "ab"]
        some = [[r.purity for r in results], *by_dataset]
        return np.array([np.mean(own) if own else np.nan for own in some])

    observed = purities(family)
    places = [i for i, label in enumerate(family.labels) if label is not None]
    labels = [family.labels[i] for i in places]
    as_high = []
    for dealt in itertools.permutations(labels):
        relabelled = list(family.labels)
        for place, label in zip(places, dealt, strict=True):
            relabelled[place] = label
        relabelled_family = make_family(family.vectors, relabelled, family.authors)
        as_high.append(purities(relabelled_family) >= observed - 1e-12)
    return np.mean(as_high, axis=0)


@pytest.mark.parametrize("exclude", [None, "author"])
def test_p_is_the_share_of_relabellings_that_look_as_pure(exclude):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(7, 4)) + np.repeat(np.eye(4)[:2] * 2, [3, 4], axis=0)
    labels = ["a", "a", "a", "b", "b", None, "b"]
    family = make_family(vectors, labels, ["x", None, "y", "x", "z", "z", None])

    retrieval = evaluation.FamilyRetrieval.of(family, exclude)
    p_value, by_dataset, permutations = evaluation.permutation_test(
        retrieval, evaluation.rank(retrieval)
    )

    # 999 draws: a standard error of at most 0.016
    expected = share_of_relabellings_as_pure(family, exclude)
    assert [p_value, *by_dataset.values()] == pytest.approx(expected, abs=0.06)
    assert (list(by_dataset), permutations) == (["a", "b"], 999)


def test_the_interval_draws_datasets_then_models():
    rng = np.random.default_rng(0)
    purities = {
        name: (centre + 0.1 * rng.normal(size=size)).tolist()
        for name, centre, size in zip("abcdef", np.linspace(0.2, 0.8, 6), [3, 9, 4, 12, 5, 7],
                                      strict=True)
    }  # fmt: skip
    means = []
    for _ in range(2_000):
        drawn = []
        for name in rng.choice(list(purities), size=len(purities)):
            drawn += rng.choice(purities[name], size=len(purities[name])).tolist()
        means.append(np.mean(drawn))
    spread = np.quantile(means, [0.025, 0.975])
    results = [
        evaluation.QueryRetrieval(
            model=f"{name}{i}", dataset=name, siblings=1, candidates=2, purity=purity,
            nn1=False, average_precision=0.0, retrieved=(None,),
        )
        for name, values in purities.items()
        for i, purity in enumerate(values)
    ]  # fmt: skip

    # the ends of 2,000 draws, here and there, have a standard error of about 0.004
    assert evaluation.bootstrap_interval(results) == pytest.approx(spread, abs=0.02)
