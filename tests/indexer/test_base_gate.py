"""Whether a checkpoint descends from the base, from the norms of some of its matrices."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import ModelError
from deltadex.indexer.updates import FIRST_LOOK, MIN_COSINE, THEN_EVERY, BaseGate


def _add(gate, child, base):
    gate.add(float(child.norm()), float(base.norm()), float((child - base).norm()))


def _check_all(gate, pairs):
    for child, base in pairs:
        _add(gate, child, base)
    gate.check()


def _pairs(n, owed, seed=0):
    """Pairs of matrices of all scales that together have a cosine near `owed`."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(n):
        base = torch.randn(60, 50, generator=generator, dtype=torch.float64) * 2.0**number
        other = torch.randn(60, 50, generator=generator, dtype=torch.float64) * 2.0**number
        yield owed * base + math.sqrt(1 - owed**2) * other, base


@given(st.integers(1, FIRST_LOOK - 1), st.floats(-1, 1), st.integers(0, 99), st.floats(-6, 6))
def test_cosine_and_ratio_are_those_of_all_matrices_as_one_vector(n, owed, seed, exponent):
    gate = BaseGate("base")
    pairs = [(child * 10**exponent, base) for child, base in _pairs(n, owed, seed)]
    for child, base in pairs:
        _add(gate, child, base)

    child, base = (torch.cat([pair[side].flatten() for pair in pairs]) for side in (0, 1))
    assert gate.matrices == n
    # a difference of squares: rounding is magnified by |child| / |base| or its inverse
    tolerance = 1e-9 * 10 ** abs(exponent)
    assert gate.cosine == pytest.approx(
        float(torch.cosine_similarity(child, base, dim=0)), abs=tolerance
    )
    assert gate.ratio == pytest.approx(float((child - base).norm() / base.norm()))


@pytest.mark.parametrize("n", [1, FIRST_LOOK - 1, FIRST_LOOK, FIRST_LOOK + 1, 3 * FIRST_LOOK])
def test_a_model_that_owes_the_base_less_than_a_quarter_is_refused(n):
    near, far = BaseGate("the-base"), BaseGate("the-base")
    _check_all(near, _pairs(n, MIN_COSINE + 0.05))

    with pytest.raises(ModelError) as caught:
        _check_all(far, _pairs(n, MIN_COSINE - 0.05))

    assert caught.value.code == "wrong-base"
    assert far.matrices == min(n, FIRST_LOOK)
    assert f"cosine {far.cosine:.2f} over {far.matrices} matrices" in str(caught.value)
    assert f"|ΔW|/|W| = {far.ratio:.2f}" in str(caught.value)


@pytest.mark.parametrize(("length", "descends"), [(1.0, True), (3.6, True), (4.2, False)])
def test_an_update_may_be_almost_four_times_as_long_as_the_base(length, descends):
    gate = BaseGate("base")
    gate.add(math.sqrt(1 + length**2), 1.0, length)  # at a right angle to the base

    if descends:
        gate.check()
    else:
        with pytest.raises(ModelError, match="not a fine-tune of base"):
            gate.check()


@pytest.mark.parametrize("norms", [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0)])
def test_zeros_descend_from_nothing(norms):
    gate = BaseGate("base")
    gate.add(*norms)

    assert gate.cosine == 0.0
    assert (gate.ratio == math.inf) == (norms[1] == 0.0)
    with pytest.raises(ModelError, match=r"cosine 0\.00 over 1 matrices"):
        gate.check()


def test_the_first_few_matrices_count_then_a_sample():
    gate = BaseGate("base")

    counted = [number for number in range(1, 101) if gate.samples_next()]

    assert counted == [n for n in range(1, 101) if n <= FIRST_LOOK or n % THEN_EVERY == 0]
    assert len(counted) < 100 / 5
