"""Labels that are wrong: they are named, they move no verdict, and no verdict is below a gap."""

import numpy as np
import pytest
from sketched import VECTORS, VectorMatrix, make_scores, make_vectors, names

from deltadex.search.evidence import CLEAR_RATIO, Calibration, calibrate, name_suspects, other_runs

NOTHING = "no model stands out"


def make_scored(n, n_datasets, strength, seed):
    """The scores of models around the directions of their data sets, and their labels."""
    vectors = make_vectors(seed, n, datasets=n_datasets, strength=strength, common=0.0)
    matrix = VectorMatrix(vectors.astype(np.float32))
    scores = make_scores(names(n), ["full"] * n, VECTORS, matrix.take)
    return scores.evidence, [f"set {row % n_datasets}" for row in scores.cohort]


def relabel(labels, share, seed):
    """The labels after a share of them was changed to others; and where."""
    rng, sets = np.random.default_rng(seed), sorted(set(labels))
    changed = rng.choice(len(labels), round(share * len(labels)), replace=False).tolist()
    others = [rng.choice([name for name in sets if name != labels[row]]) for row in changed]
    return [
        str(others[changed.index(row)]) if row in changed else label
        for row, label in enumerate(labels)
    ], changed


def answered(evidence, labels, known):
    """The first rows with a verdict, and how many of these are of the query's true data set."""
    trusted, right = known.trusted(evidence.rows.tolist(), labels[0]), []
    for query, may in enumerate(evidence.are_strangers):
        order = np.flatnonzero(may)
        order = order[np.argsort(-evidence.z[query, order], kind="stable")]
        judged = known.judge(evidence.z[query, order], [trusted[place] for place in order])
        if judged.verdicts[0] != NOTHING:
            right.append(labels[1][order[0]] == labels[1][query])
    return len(right), sum(right)


@pytest.mark.parametrize("seed", range(3))
def test_a_tenth_of_wrong_labels_leaves_most_answers_and_makes_none_wrong(seed):
    evidence, labels = make_scored(48, 12, 1.0, seed)
    wrong, _ = relabel(labels, 0.1, seed)

    before, _ = answered(evidence, (labels, labels), evidence.calibrate(labels, 48))
    after, right = answered(evidence, (wrong, labels), evidence.calibrate(wrong, 48))

    assert after >= 0.7 * before > 20
    assert right >= 0.97 * after


@pytest.mark.parametrize(("n", "n_datasets"), [(24, 8), (48, 12), (40, 20)])
def test_planted_wrong_labels_are_named_and_right_ones_are_not(n, n_datasets):
    named, planted = 0, 0
    for seed in range(4):
        evidence, labels = make_scored(n, n_datasets, 1.0, seed)
        z, may = evidence.z, evidence.are_strangers
        wrong, changed = relabel(labels, 0.1, seed)

        suspects = {one.place: one for one in name_suspects(z, wrong, may)}

        assert name_suspects(z, labels, may) == []
        assert len(suspects.keys() - set(changed)) <= 1
        named += sum(suspects[row].nearer == labels[row] for row in changed if row in suspects)
        planted += len(changed)
    assert named >= 0.6 * planted


@pytest.mark.parametrize(("n", "n_datasets"), [(16, 4), (40, 20), (48, 12)])
def test_labels_that_follow_no_distance_are_in_doubt_in_few_of_many_draws(n, n_datasets):
    evidence, labels = make_scored(n, n_datasets, 1.0, 0)
    draws = [np.random.default_rng(seed).permutation(labels).tolist() for seed in range(200)]

    named = [bool(name_suspects(evidence.z, some, evidence.are_strangers)) for some in draws]

    # of 200 draws at 2 %, 10 or more happen once in 100
    assert sum(named) < 10


def test_labels_that_are_shuffled_with_their_runs_are_in_doubt_in_few_draws_too():
    evidence, _ = make_scored(48, 6, 1.0, 0)
    may = evidence.are_strangers & other_runs([f"run {row % 12}" for row in range(48)])
    named = 0
    for seed in range(100):
        sets = np.random.default_rng(seed).permutation(12) // 2
        labels = [f"set {sets[row % 12]}" for row in range(48)]
        named += bool(name_suspects(evidence.z, labels, may))

    assert named < 6


def test_a_label_that_has_all_words_of_the_other_contradicts_nothing():
    evidence, labels = make_scored(40, 5, 1.0, 0)
    two = [row for row, label in enumerate(labels) if label == "set 1"][:2]
    far = [row for row, label in enumerate(labels) if label == "set 2"][:4]
    renamed = ["long set 1" if row in (*two, *far) else label for row, label in enumerate(labels)]

    suspects = name_suspects(evidence.z, renamed, evidence.are_strangers)

    assert {one.place for one in suspects}.isdisjoint(two)


def test_siblings_far_above_strangers_are_likely_whatever_their_heights():
    rng = np.random.default_rng(0)
    labels, may = [f"set {row // 6}" for row in range(60)], ~np.eye(60, dtype=bool)
    heights = rng.uniform(20, 125, size=(60, 60))
    z = rng.normal(size=(60, 60)) + heights * np.equal.outer(labels, labels)
    z = np.minimum(z, z.T)

    known = calibrate(z, labels, may, 24_000)

    for query in range(60):
        order = np.argsort(-np.where(may[query], z[query], -np.inf), kind="stable")[:-1]
        judged = known.judge(z[query, order], [labels[place] for place in order], None, 24_000)
        unlabelled = known.judge(z[query, order], [None] * 59, None, 24_000)
        assert set(judged.verdicts[:5]) == {"likely the same data"}
        assert set(judged.verdicts[5:]) == {NOTHING}
        assert NOTHING not in unlabelled.verdicts[:5]


@pytest.mark.parametrize("bound", [0.72, 0.95])
@pytest.mark.parametrize("labels", [["a", "b", *"cdefghij"], [None] * 10, ["a"] * 10])
def test_no_model_stands_out_is_never_said_above_a_clear_gap(bound, labels):
    known = Calibration(
        models=40, source="labelled models of the family", queries=40, nearest=9.0, rival=9.0,
        weights=(-9.0, 0.8), bound=bound,
    )  # fmt: skip
    z = np.array([11.4, 10.9, 2.6, 2.5, 2.4, 2.0, 1.5, 1.0, 0.5, 0.0])

    verdicts = known.judge(z, labels, None, 40).verdicts

    assert NOTHING not in verdicts[:2]
    assert set(verdicts[2:]) == {NOTHING}


@pytest.mark.parametrize("z", [[6.0, 1.0], [11.0, 11.0 / CLEAR_RATIO + 0.1], [4.0, 0.0]])
def test_a_small_step_is_no_clear_gap(z):
    known = Calibration(models=200, source="families like it", nearest=12.0, bound=0.72)

    judged = known.judge(np.array([*z, *np.linspace(z[-1], -1, 20)]), [None] * 22, None, 200)

    assert judged.verdicts[0] == NOTHING
