import pytest
import torch

from deltadex.indexer import delta
from deltadex.indexer.delta import DenseDelta, LowRankDelta, Scratch, rounding_norm, update_against

TYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("shape", [(1, 1), (7, 30), (40, 24), (3, 200)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("base_type", TYPES)
@pytest.mark.parametrize("child_type", TYPES)
def test_blocks_of_rows_give_the_update_of_the_whole(
    monkeypatch, shape, transposed, base_type, child_type
):
    """Blocks of two rows or of one, a shorter one at the end."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator)
    step = 0.1 * torch.randn(shape, generator=generator)
    base, child = weight.to(base_type), (weight + step).to(child_type)
    if transposed:
        base, child = base.T.contiguous().T, child.T.contiguous().T
    candidates = [child.float() - base.float()]
    if child_type.itemsize < base_type.itemsize:
        candidates.append(child.float() - base.to(child_type).float())

    monkeypatch.setattr(delta, "WIDE_BLOCK", 60)
    update = update_against(child, base, Scratch())

    nearest = min(candidates, key=lambda matrix: float(matrix.norm()))
    assert torch.equal(update.matrix, nearest)
    assert update.norm == pytest.approx(float(nearest.norm()), rel=1e-6)


def test_both_forms_of_an_update_have_its_shape_and_norm():
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(7, 2, generator=generator), torch.randn(2, 5, generator=generator)
    dense, low = DenseDelta(left @ right), LowRankDelta(left, right)

    assert dense.shape == low.shape == (7, 5)
    assert dense.norm == pytest.approx(low.norm, rel=1e-5)
    assert dense.norm == pytest.approx(float(torch.linalg.matrix_norm((left @ right).double())))
    assert DenseDelta(dense.matrix, 3.0).norm == 3.0


def test_widening_needs_memory_for_a_block_alone(monkeypatch):
    monkeypatch.setattr(delta, "WIDE_BLOCK", 60)
    asked = []

    class Noted(Scratch):
        def float32(self, purpose, shape):
            asked.append((purpose, shape))
            return super().float32(purpose, shape)

    update_against(torch.ones(40, 24).bfloat16(), torch.ones(40, 24).bfloat16(), Noted())

    assert {shape for purpose, shape in asked if purpose.startswith("wide")} == {(2, 24)}


@pytest.mark.parametrize("stored", TYPES)
def test_rounding_is_as_large_as_the_norm_of_the_weights_foretells(stored):
    generator = torch.Generator().manual_seed(0)
    ratios = []
    for eighth in range(8):  # where in a binade the weights lie is chance
        weights = torch.randn(200, 200, generator=generator, dtype=torch.float64)
        weights *= 2.0 ** (eighth / 8 - 3)
        rounding = (weights.to(stored).double() - weights).norm()
        ratios.append(float(rounding) / rounding_norm(float(weights.norm()), stored))

    # 0.735 is a mean over a binade: 3 % are for what it leaves out
    assert sum(ratios) / 8 == pytest.approx(1.0, rel=0.03)
    assert rounding_norm(1.0, torch.float64) == 0.0
