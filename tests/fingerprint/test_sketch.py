import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from catalogs import matrix_update
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import UnknownRecipe
from deltadex.indexer import fingerprint
from deltadex.indexer.delta import DenseDelta, LowRankDelta, factorise
from deltadex.records import Slot
from deltadex.store import SketchMatrix
from deltadex.store.sketch_codes import MANY_NUMBERS, decode, inner_products, load_multiplier

SLOTS = [Slot("encoder", layer, role) for layer in range(4) for role in ("q", "v", "up")]


def _add(pool, slot, factors, **known):
    update = matrix_update(slot, **known)
    pool.take(update, factors, pool.features(update, factors))


def _updates(seed, rank=6, width=48):
    generator = torch.Generator().manual_seed(seed)
    shapes = (width, rank), (rank, width // 2)
    return {slot: tuple(torch.randn(s, generator=generator) for s in shapes) for slot in SLOTS}


def _numbers(pool, slot):
    """A slot's part of the vector, block by block."""
    vector, norm = fingerprint.SketchPool(pool.recipe, _slots={slot: pool._slots[slot]}).vector()
    blocks = np.split(vector.astype(float) * norm, [512, 1536])
    return dict(zip(fingerprint.SLOT_DIMS, blocks, strict=True))


def _pool(updates, *, order=1, seed=0):
    pool = fingerprint.SketchPool(fingerprint.sketch_recipe(16))
    object.__setattr__(pool.recipe, "seed", seed)
    for slot, (left, right) in list(updates.items())[::order]:
        _add(pool, slot, factorise(LowRankDelta(left, right), 16, seed=0))
    return pool


def _exact_kernel(first, second):
    """The recipe's kernel from dense matrices and full eigendecompositions."""
    inner, squares = 0.0, [0.0, 0.0]
    for slot in SLOTS:
        pair = [(left @ right).double() for left, right in (first[slot], second[slot])]
        for block, weight in fingerprint.WEIGHTS.items():
            share = fingerprint.LEAST_INPUT if block == "input" else 1.0
            a, b = (_power(matrix, block) for matrix in pair)
            inner += weight * share * float((a * b).sum() / (a.norm() * b.norm()))
            squares = [square + weight * share for square in squares]
    return inner / (squares[0] * squares[1]) ** 0.5


def _power(matrix, block):
    """ΔW, (ΔWΔWᵀ)^¼ or ΔWᵀΔW."""
    if block == "update":
        return matrix
    if block == "input":
        return matrix.T @ matrix
    values, vectors = torch.linalg.eigh(matrix @ matrix.T)
    significant = values > 1e-9 * values[-1]
    return (vectors[:, significant] * values[significant] ** 0.25) @ vectors[:, significant].T


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(-2, 2), st.sampled_from([-1, 1]))
def test_scale_order_and_gauge_change_nothing(seed, exponent, sign):
    scale = sign * 10.0**exponent
    updates = _updates(seed)
    generator = torch.Generator().manual_seed(1001 + seed)
    turned, remixed = {}, {}
    for slot, (left, right) in updates.items():
        turn = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
        turned[slot] = (left @ turn * abs(scale), right)
        mix = turn * (0.5 + 1.5 * torch.rand(6, generator=generator))  # of condition 4 at most
        remixed[slot] = (left @ torch.linalg.inv(mix), scale * scale * mix @ right)

    vector = _pool(updates).vector()[0]

    # float32: 4,096 products of unit vectors; what the mix adds to a cosine is its error squared
    assert vector @ _pool(updates, order=-1).vector()[0] == pytest.approx(1, abs=1e-5)
    assert vector @ _pool(remixed).vector()[0] == pytest.approx(1, abs=1e-5)
    # the turn leaves both sides' spaces and takes the update's cosine to 0 ± 0.05, over 12 slots:
    # the rest weighs 2.2 / 3.2 = 0.69
    assert vector @ _pool(turned).vector()[0] < 0.8


def test_pooled_inner_products_estimate_the_exact_kernels_without_bias():
    first, other = _updates(1), _updates(2)
    second = {
        slot: (torch.cat([left * 1.5, other[slot][0]], 1), torch.cat([right, other[slot][1]]))
        for slot, (left, right) in first.items()
    }
    expected = _exact_kernel(first, second)

    estimates = []
    for seed in range(30):
        one, other = (_pool(updates, seed=seed).vector()[0] for updates in (first, second))
        estimates.append(float(one @ other))

    spread = np.std(estimates)
    assert np.mean(estimates) == pytest.approx(expected, abs=3.5 * spread / 30**0.5)
    assert spread < 0.05


def test_a_full_rank_update_counts_its_input_side_and_a_low_rank_one_hardly_does():
    low, full = (fingerprint.SketchPool(fingerprint.sketch_recipe(4)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    left_out = []
    for slot in SLOTS:
        matrix = torch.randn(48, 40, generator=generator)
        right = torch.randn(3, 40, generator=generator)
        dense = factorise(DenseDelta(matrix), 4, seed=0)
        _add(low, slot, factorise(LowRankDelta(matrix[:, :3], right), 4, seed=0))
        _add(full, slot, dense)
        left_out.append(1 - float(dense.sigma.double().square().sum()) / dense.fro_norm**2)

    of_low, of_full = _input_square(low), _input_square(full)

    # Avron, Nguyen, Woodruff 2014, lemma on degree 2: variance (2 + 3²)/dim at most; 4 s.e.
    tolerance = 4 * (11 / fingerprint.SLOT_DIMS["input"] / len(SLOTS)) ** 0.5
    assert of_low == pytest.approx(
        fingerprint.WEIGHTS["input"] * fingerprint.LEAST_INPUT, rel=tolerance
    )
    assert of_full == pytest.approx(fingerprint.WEIGHTS["input"] * np.mean(left_out), rel=tolerance)
    assert of_full > 4 * of_low


def _input_square(pool):
    """Squared length of a slot sketch's input block, the mean over all slots."""
    return np.mean([np.sum(_numbers(pool, slot)["input"] ** 2) for slot in SLOTS])


def test_a_slot_s_sketch_is_the_codes_of_its_numbers():
    pool = _pool(_updates(8))

    for slot in SLOTS:
        matrix = SketchMatrix.of_rows([{slot: pool.slot_sketch(slot)}], pool.recipe)
        for start, numbers in zip((0, 128, 384), _numbers(pool, slot).values(), strict=True):
            # the four levels of Max 1960, for a standard deviation of 1
            deviations = numbers / np.sqrt(np.mean(numbers**2))
            expected = np.sign(deviations) * np.where(np.abs(deviations) > 0.9957, 3, 1)
            # what rounding leaves of an exact 0, or moves over a threshold
            is_sure = (np.abs(deviations) > 1e-5) & (np.abs(np.abs(deviations) - 0.9957) > 1e-5)
            decoded = decode(matrix.codes[:, 0], start, len(numbers))[0]
            assert np.array_equal(decoded[is_sure], expected[is_sure])
            assert np.mean(is_sure) > 0.5
        assert np.array_equal(matrix.weights, np.ones((1, 1, 3)))


@pytest.mark.parametrize(("cut_axis", "unseen"), [(0, "output"), (1, "input")])
def test_a_side_that_is_not_seen_whole_counts_nothing(cut_axis, unseen):
    left, right = _updates(1)[SLOTS[0]]
    pool = fingerprint.SketchPool(fingerprint.sketch_recipe(16))
    factors = factorise(LowRankDelta(left, right), 16, seed=0)
    _add(pool, SLOTS[0], factors, shape=(48, 24), cut_axis=cut_axis)

    weights = SketchMatrix.of_rows([{SLOTS[0]: pool.slot_sketch(SLOTS[0])}], pool.recipe).weights

    assert dict(zip(fingerprint.SLOT_DIMS, weights[0, 0].tolist(), strict=True)) == {
        block: float(block != unseen) for block in fingerprint.SLOT_DIMS
    }


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_a_slot_counts_by_the_share_that_is_not_rounding(scale):
    left, right = _updates(1)[SLOTS[0]]
    pool = fingerprint.SketchPool(fingerprint.sketch_recipe(16))
    factors = factorise(LowRankDelta(left * scale, right), 16, seed=0)
    _add(pool, SLOTS[0], factors, noise_norm=0.6 * factors.fro_norm)

    weights = SketchMatrix.of_rows([{SLOTS[0]: pool.slot_sketch(SLOTS[0])}], pool.recipe).weights

    # √(1 − 0.6²), in float16
    assert np.allclose(weights, 0.8, rtol=2**-11)


def test_an_unknown_version_is_refused():
    with pytest.raises(UnknownRecipe, match="version 9"):
        fingerprint.make_pool(replace(fingerprint.sketch_recipe(16), version=9), ())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 2, 16]))
def test_count_sketches_of_factors_are_what_their_definition_says(seed, n_out, n_in, folds):
    """Few rows leave buckets empty, few buckets take many rows."""
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.randn(n, 3, generator=generator) for n in (n_out, n_in))
    dims = tuple(dim // folds for dim in fingerprint.BLOCK_DIMS.values())

    sketches = fingerprint.sketch_sides(u, v, seed, "encoder.0.q/", dims).numpy()

    expected = []
    for block, dim, sides in zip(
        fingerprint.BLOCK_DIMS, dims, [(u, v), (u, u), (v, v)], strict=True
    ):
        for name, side in zip("ab", sides, strict=True):
            key = f"encoder.0.q//{block}/{name}"
            buckets, signs = fingerprint.hash_rows(
                seed, key, len(side), fingerprint.BLOCK_DIMS[block]
            )
            numbers = np.zeros((dim, 3))
            for row in range(len(side)):
                numbers[int(buckets[row]) % dim] += float(signs[row]) * side[row].double().numpy()
            expected.append(numbers)
    assert np.allclose(sketches, np.concatenate(expected), atol=1e-5)


@pytest.mark.parametrize("are_many", [False, True])
def test_products_of_many_numbers_are_as_exact_as_those_of_few(monkeypatch, are_many):
    if are_many:
        load_multiplier(MANY_NUMBERS)
    else:
        monkeypatch.delitem(sys.modules, "torch")
    numbers = np.random.default_rng(0).choice(np.array([-3, -1, 1, 3], np.int8), (40, 1 << 14))
    numbers[:2] = 3  # the largest sum
    products = inner_products()(numbers[:7], numbers)
    assert np.array_equal(products, numbers[:7].astype(np.int64) @ numbers.T.astype(np.int64))
