import numpy as np
import pytest
import torch
from catalogs import matrix_update
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.indexer.delta import DenseDelta, LowRankDelta
from deltadex.indexer.fingerprint import (
    BLOCK,
    DIM,
    LinearPool,
    UpdateCollector,
    _matrix_hash,
    sketch_recipe,
    zero_share,
)
from deltadex.indexer.job import ReadPart
from deltadex.records import Slot

SLOTS = [Slot("encoder", layer, role) for layer in range(3) for role in ("q", "up")]
TOLERANCE = 1e-5
"""Of the largest number: products of six float32 numbers and sums of up to 128 of those."""

sizes = st.integers(1, 200)


def _sketch(delta, shape, part=None, recipe=None, slot=SLOTS[0]):
    pool = LinearPool(recipe or sketch_recipe(16))
    cut = {} if part is None else {"cut_axis": part.axis, "cut_start": part.start}
    delta = delta if part is None else part.cut(delta)
    return pool.features(matrix_update(slot, delta, shape, **cut)).numpy()


def _factors(seed, shape, rank=6):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(shape[0], rank, generator=generator)
    return left, torch.randn(rank, shape[1], generator=generator)


def _close(one, other):
    scale = max(np.abs(one).max(), np.abs(other).max(), 1e-30)
    return np.abs(one - other).max() <= TOLERANCE * scale


def _by_definition(matrix, recipe, slot=SLOTS[0]):
    """Entry by entry, in float64."""
    hashes = _matrix_hash(recipe.seed, f"{slot}/", tuple(matrix.shape))
    numbers = np.zeros(DIM)
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            place = hashes.shifts[row // BLOCK] + row % BLOCK * hashes.step + column
            sign = hashes.row_signs[row] * hashes.column_signs[column]
            numbers[place % DIM] += float(sign) * float(matrix[row, column])
    return numbers


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), sizes, sizes)
def test_a_sketch_is_what_its_definition_says(seed, n_out, n_in):
    matrix = torch.matmul(*_factors(seed, (n_out, n_in)))

    assert _close(
        _sketch(DenseDelta(matrix), (n_out, n_in)), _by_definition(matrix, sketch_recipe(16))
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), sizes, sizes, st.sampled_from([0, 1]), st.data())
def test_parts_of_a_matrix_add_up_in_either_form(seed, n_out, n_in, axis, data):
    shape = n_out, n_in
    cut = data.draw(st.integers(0, shape[axis]))
    left, right = _factors(seed, shape)
    dense, low = DenseDelta(left @ right), LowRankDelta(left, right)
    parts = ReadPart(axis, 0, cut), ReadPart(axis, cut, shape[axis])

    of_parts = sum(_sketch(low, shape, part) for part in parts)

    assert _close(of_parts, _sketch(dense, shape))
    assert _close(of_parts, sum(_sketch(dense, shape, part) for part in parts))


def test_all_layers_are_the_sum_of_the_slots_and_a_layer_is_folded():
    pool = LinearPool(sketch_recipe(16))
    features = {slot: _sketch(LowRankDelta(*_factors(n, (40, 30))), (40, 30), slot=slot)
                for n, slot in enumerate(SLOTS)}  # fmt: skip
    for slot, numbers in features.items():
        pool.take(slot, torch.from_numpy(numbers))

    sketch = pool.sketch()

    assert _close(sketch.pooled, sum(features.values()))
    of_first = features[SLOTS[0]] + features[SLOTS[1]]
    assert _close(sketch.layers["encoder", 0], of_first.reshape(4, 256).sum(0))


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_inner_products_are_unbiased_over_seeds(kind):
    generator = torch.Generator().manual_seed(5)
    a, noise = torch.randn(2, 96, 80, generator=generator)
    if kind == "diagonal":
        a, noise = torch.diag(a.diagonal()), torch.diag(noise.diagonal())
    b = 0.6 * a + 0.8 * noise
    expected = float((a.double() * b.double()).sum())
    lengths = float(a.norm() * b.norm())
    shape = tuple(a.shape)

    estimates = []
    for seed in range(200):
        recipe = sketch_recipe(16)
        object.__setattr__(recipe, "seed", seed)
        one, other = (_sketch(DenseDelta(m), shape, recipe=recipe) for m in (a, b))
        estimates.append(float(one @ other))

    # a CountSketch of independent signs: (|a|²|b|² + ⟨a, b⟩²) / DIM; signs that are products add
    # to it where few rows and columns hold all (TensorSketch: at most (2 + 3²) / DIM in all)
    spread = np.std(estimates) / lengths
    error = 4 * lengths * spread / 200**0.5
    assert np.mean(estimates) == pytest.approx(expected, abs=max(error, 1e-6 * lengths))
    assert spread < (11 / DIM) ** 0.5
    if kind == "full":
        assert spread == pytest.approx((1.36 / DIM) ** 0.5, rel=0.25)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), sizes, sizes, st.floats(0, 1), st.booleans())
def test_zeros_are_counted_exactly(seed, n_out, n_in, share, transposed):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(n_out, n_in, generator=generator)
    matrix[torch.rand(n_out, n_in, generator=generator) < share] = 0.0
    expected = float((matrix == 0).sum()) / matrix.numel()
    delta = DenseDelta(matrix.T.contiguous().T if transposed else matrix)

    assert zero_share(delta) == pytest.approx(expected, abs=1e-12)


def test_rows_and_columns_that_factors_leave_at_zero_are_counted():
    left, right = _factors(1, (10, 8))
    left[:4], right[:, :2] = 0.0, 0.0

    low = zero_share(LowRankDelta(left, right))

    assert low == pytest.approx(zero_share(DenseDelta(left @ right))) == pytest.approx(0.55)


def test_a_slot_s_share_is_over_its_parts_and_an_equal_matrix_is_all_zeros():
    collector = UpdateCollector([sketch_recipe(16)], ())
    half = torch.randn(10, 8)
    half[:5] = 0.0
    for name, delta in (("expert.0", DenseDelta(half)), ("expert.1", None)):
        collector.take(collector.measure(matrix_update(SLOTS[0], delta, (10, 8), part=name)))

    (stats,) = collector.statistics()

    assert stats.zero_share == pytest.approx(0.75)
    assert collector.linear_sketch().pooled.any()
