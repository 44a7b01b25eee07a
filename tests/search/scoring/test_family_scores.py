"""Laws of the scores of whole families: what they must not depend on, and what tiny ones prove."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sketched import SKETCHES, SLOTS, VectorMatrix, make_vectors, score, score_vectors, sketch

from deltadex.search import labelled
from deltadex.search.family_scores import bounded
from deltadex.search.labelled import PairSource
from deltadex.store import SketchMatrix, sketch_codes, true_cosines

seeds = st.integers(0, 10_000)
KINDS = ["full", "adapter", "full"] * 4


@settings(max_examples=25, deadline=None)
@given(seed=seeds, order=st.permutations(range(12)))
def test_neither_order_nor_names_of_the_models_change_a_score(seed, order):
    vectors, order = make_vectors(seed, 12), np.array(order)

    _, before = score_vectors(vectors, KINDS)
    _, after = score_vectors(vectors[order], [KINDS[i] for i in order])

    assert after.z == pytest.approx(before.z[np.ix_(order, order)], abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("kinds", [["full"], ["adapter"] + ["full"] * 6])
@pytest.mark.parametrize("shape", ["apart", "equal", "zero", "one zero"])
def test_no_family_has_a_score_that_is_no_number(n, kinds, shape):
    vectors = make_vectors(0, n)
    if shape == "equal":
        vectors[:] = vectors[0]
    if shape == "zero":
        vectors[:] = 0
    if shape == "one zero":
        vectors[0] = 0
    kinds = (kinds * n)[:n]

    family, pairs = score_vectors(vectors, kinds)

    known = family.evidence.calibrate([None] * len(family.cohort), len(pairs.z))
    for row in pairs.z:
        judged = known.judge(np.sort(row)[::-1], [None] * len(row))
        assert np.isfinite(judged.fdr).all()
    assert np.isfinite(pairs.z).all()
    assert np.isfinite(pairs.cosines).all()


# another kind has centres of its own
@pytest.mark.parametrize(("of_kind", "within"), [("full", 1e-6), ("adapter", 1.0)])
def test_a_copy_of_one_model_changes_no_score_between_others(of_kind, within):
    vectors = make_vectors(0, 14, datasets=3)
    kinds = ["full"] * 14

    _, before = score_vectors(vectors, kinds)
    family, _ = score_vectors(np.append(vectors, vectors[:1], axis=0), [*kinds, of_kind])
    some = VectorMatrix(vectors.astype(np.float32))
    left = family.prepare(some, kinds, list(range(14)))
    after = family.compare(left, left)

    assert len(family.cohort) == 14
    assert after.z == pytest.approx(before.z, abs=within)


def test_equal_sketches_have_equal_cosines_bit_by_bit():
    numbers = np.random.default_rng(0).normal(size=(30, len(SLOTS), 3, 64))
    numbers[[4, 11, 29]] = numbers[0]
    matrix = SketchMatrix.of_rows(list(map(sketch, numbers)), SKETCHES)

    everyone = matrix.cosines(matrix)
    alone = matrix.take(np.array([0])).cosines(matrix)
    few = matrix.cosines(matrix.take(np.array([29, 7])))

    for twin in (4, 11, 29):
        assert np.array_equal(everyone[:, 0], everyone[:, twin])
        assert np.array_equal(everyone[:, :, 0], everyone[:, :, twin])
        assert np.array_equal(few[:, 0], few[:, twin])
    assert np.array_equal(alone[:, 0], everyone[:, 0])
    assert np.array_equal(few[:, :, 1], everyone[:, :, 7])
    assert everyone[:, 0, 4].tolist() == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("way", ["normalised", "raw", "vector"])
def test_pairs_by_every_way_are_symmetric_and_one_with_themselves(way):
    matrix = VectorMatrix(make_vectors(0, 12).astype(np.float32))
    family, _ = score(matrix)
    models = family.prepare(matrix, ["full"] * 12, list(range(12)))
    rows = np.arange(12)

    source = PairSource(family, models.take, way, ("vector",))
    scores = source.scores(rows, rows)

    assert scores == pytest.approx(scores.T)
    assert (np.diag(scores) == 1).all()
    assert (np.abs(scores) <= 1).all()
    expected = true_cosines(matrix.cosines(matrix)[0])
    assert source.pairs(rows, rows).cosines == pytest.approx(expected, abs=1e-6)


def test_many_models_are_compared_in_parts(monkeypatch):
    monkeypatch.setattr(labelled, "COMPARED_AT_ONCE", 5)
    matrix = VectorMatrix(make_vectors(0, 12).astype(np.float32))
    family, whole = score(matrix)
    models = family.prepare(matrix, ["full"] * 12, list(range(12)))
    rows = np.array([7, 2])

    source = PairSource(family, models.take, "normalised", ("vector",))
    pairs = source.pairs(rows, np.arange(12))

    assert pairs.z == pytest.approx(whole.z[rows])
    assert pairs.cosines == pytest.approx(whole.cosines[rows])
    assert source.scores(rows, np.arange(12)) == pytest.approx(
        np.where(rows[:, None] == np.arange(12), 1.0, bounded(whole.z[rows]))
    )


@pytest.mark.parametrize("dims", [{"update": 64, "output": 128}, {"update": 24, "output": 8}])
def test_products_of_bits_are_those_of_their_numbers(dims):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, size=(70, 3, sum(dims.values()) // 4), dtype=np.uint8)

    products = sketch_codes.bit_products(codes, codes[1], dims)
    lengths = sketch_codes.squared_lengths(codes, dims)

    start = 0
    for block, dim in enumerate(dims.values()):
        numbers = np.stack(
            [sketch_codes.decode(codes[:, slot], start, dim) for slot in range(3)], 1
        )
        assert np.array_equal(products[:, :, block], (numbers * numbers[1]).sum(axis=2))
        assert np.array_equal(lengths[:, :, block], np.square(numbers).sum(axis=2))
        start += dim // 4
