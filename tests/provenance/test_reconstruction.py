"""A recipe that is redone on rows is proven where it is right, and only there."""

import pytest
import torch
from merging import SLOTS, WIDTH, column, random_updates, rows_of, ties, trimmed

from deltadex.provenance.merges.reconstruction import reconstruct, slerp_weights

BASE = torch.randn(len(SLOTS), WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
UPDATES = random_updates(4, seed=2) * 0.3
PARENTS = [rows_of(BASE, update) for update in UPDATES]
BASE_ROWS = rows_of(BASE, torch.zeros_like(BASE))
SHARES = (0.5, 0.3, 0.2)
PLACES = {(slot, ""): (slot.layer, slot.role == "q") for slot in SLOTS}


def check(update, parents=(0, 1, 2), *, dtype=torch.float32, **options):
    merged = rows_of(BASE, update, dtype)
    guess = [0.4] * len(parents)
    return reconstruct(
        BASE_ROWS, merged, [PARENTS[p] for p in parents], guess, places=PLACES, **options
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_sum_is_proven_with_its_weights_in_any_storage_type(dtype):
    update = (UPDATES[:3] * column(*SHARES)).sum(0)

    proof, wrong = check(update, dtype=dtype), check(update, (0, 1), dtype=dtype)

    assert proof.explains
    assert (proof.method, proof.share > 0.99) == ("linear", True)
    assert proof.weights == pytest.approx(SHARES, abs=1e-6 if dtype == torch.float32 else 0.01)
    assert not wrong.explains


def test_ties_is_redone_with_its_weights_and_densities():
    update = ties(UPDATES[:3], column(*SHARES), 0.4)

    proof, wrong = check(update), check(update, (0, 1))

    assert proof.explains
    assert (proof.method, proof.normalises) == ("ties", True)
    assert proof.weights == pytest.approx(SHARES, abs=1e-3)
    assert proof.densities == pytest.approx([0.4] * 3, abs=0.02)
    assert not wrong.explains


def test_slerp_is_told_from_linear_where_angles_are_wide():
    wide = random_updates(2, seed=3) * 5
    models = [BASE + update for update in wide]
    merged = []
    for one, other in zip(*models, strict=True):
        cosine = float((one / one.norm()).flatten() @ (other / other.norm()).flatten())
        first, second = slerp_weights(0.35, cosine)
        merged.append(first * one + second * other)

    rows = [rows_of(BASE, update) for update in wide]
    slerped = rows_of(torch.stack(merged), torch.zeros_like(BASE))
    proof = reconstruct(BASE_ROWS, slerped, rows, (0.5, 0.5))

    assert proof.explains
    assert proof.method == "slerp"
    assert proof.weights == pytest.approx((0.65, 0.35), abs=1e-3)


def stored_in_bfloat16(merge):
    """A merge of two by mergekit's steps, each in bfloat16, of models stored in it; its
    reconstruction."""
    base = BASE.bfloat16()
    models = [(BASE + update).bfloat16() for update in UPDATES[:2]]
    merged, nothing = merge(base, models), torch.zeros_like(BASE)
    rows = [rows_of(model, nothing, torch.bfloat16) for model in (base, merged, *models)]
    return reconstruct(rows[0], rows[1], rows[2:], [0.45] * len(models), places=PLACES)


@pytest.mark.parametrize("weights", [(0.7, 0.3), (0.5, 0.5)])
def test_sums_in_bfloat16_are_given_again_to_the_bit(weights):
    def mean(base, models):
        return (weights[0] * models[0].float() + weights[1] * models[1].float()).bfloat16()

    def task_arithmetic(base, models):
        parts = torch.stack([model - base for model in models])
        return base + (parts * column(0.8, 0.5).bfloat16()).sum(0)

    linear, summed = stored_in_bfloat16(mean), stored_in_bfloat16(task_arithmetic)

    assert (linear.method, linear.error) == ("linear", 0)
    assert linear.weights == pytest.approx(weights, abs=1e-9)
    assert (summed.method, summed.error) == ("task_arithmetic", 0)
    assert summed.weights == pytest.approx((0.8, 0.5), abs=1e-9)


def test_what_no_file_gives_is_not_reproduced():
    drawn = torch.rand(UPDATES.shape, generator=torch.Generator().manual_seed(3))
    ranks = UPDATES.abs().flatten(2).argsort(dim=2).argsort(dim=2).view_as(UPDATES)
    by_magnitude = drawn < 0.35 + 0.3 * ranks / ranks.max()
    della = (UPDATES * by_magnitude / 0.5 * 0.5)[:2].sum(0)
    breadcrumbs = 0.5 * (trimmed(UPDATES, 0.82) - trimmed(UPDATES, 0.02))[:2].sum(0)
    by_matrix = torch.rand(len(SLOTS), generator=torch.Generator().manual_seed(4))[:, None, None]
    stock = by_matrix * (UPDATES[0] + UPDATES[1]) / 2

    for update in (della, breadcrumbs, stock):
        found = reconstruct(BASE_ROWS, rows_of(BASE, update), PARENTS[:2], [0.5, 0.5])
        assert found.method is None or not found.explains
        assert not found.is_reproduced
