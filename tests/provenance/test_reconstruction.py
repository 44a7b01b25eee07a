"""A recipe that is redone on rows is proven where it is right, and only there."""

import pytest
import torch
from merging import SLOTS, WIDTH, column, dare, random_updates, rows_of, ties

from deltadex.provenance.merges.merge_formulas import slerp_weights
from deltadex.provenance.merges.reconstruction import further_parent, reconstruct

BASE = torch.randn(len(SLOTS), WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
UPDATES = random_updates(4, seed=2) * 0.3
PARENTS = [rows_of(BASE, update) for update in UPDATES]
BASE_ROWS = rows_of(BASE, torch.zeros_like(BASE))
SHARES = (0.5, 0.3, 0.2)


def check(update, parents=(0, 1, 2), *, dtype=torch.float32, **options):
    merged = rows_of(BASE, update, dtype)
    guess = [0.4] * len(parents)
    return reconstruct(BASE_ROWS, merged, [PARENTS[p] for p in parents], guess, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_sum_is_proven_with_its_weights_in_any_storage_type(dtype):
    update = (UPDATES[:3] * column(*SHARES)).sum(0)

    proof, wrong = check(update, dtype=dtype), check(update, (0, 1), dtype=dtype)

    assert proof.is_proven
    assert (proof.method, proof.share > 0.99) == ("linear", True)
    assert proof.weights == pytest.approx(SHARES, abs=1e-6 if dtype == torch.float32 else 0.01)
    assert not wrong.is_proven


def test_ties_is_redone_with_its_weights_and_densities():
    update = ties(UPDATES[:3], column(*SHARES), 0.4)

    proof, wrong = check(update), check(update, (0, 1))

    assert proof.is_proven
    assert (proof.method, proof.normalises) == ("ties", True)
    assert proof.weights == pytest.approx(SHARES, abs=1e-3)
    assert proof.densities == pytest.approx([0.4] * 3, abs=0.02)
    assert not wrong.is_proven


def test_of_dare_the_kept_entries_and_their_scale_are_the_proof():
    update = dare(UPDATES[:3], column(*SHARES), 0.5)

    proof, wrong = check(update), check(update, (0, 2))

    assert proof.is_proven
    assert proof.method == "dare_linear"
    assert proof.weights == pytest.approx(SHARES, abs=0.01)
    assert proof.densities == pytest.approx([0.5] * 3, abs=0.01)
    assert not wrong.is_proven


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

    assert proof.is_proven
    assert proof.method == "slerp"
    assert proof.weights == pytest.approx((0.65, 0.35), abs=1e-3)


def test_weights_that_vary_by_matrix_are_given_for_each():
    own = torch.linspace(0.2, 0.9, len(SLOTS))[:, None, None]

    proof = check(own * UPDATES[0] + (1 - own) * UPDATES[1], (0, 1))

    assert proof.is_proven
    assert proof.method == "linear"
    found = [proof.by_matrix[0][slot, ""] for slot in SLOTS]
    assert found == pytest.approx(own.flatten().tolist(), abs=1e-4)


def test_a_further_parent_is_found_in_the_rows():
    update = dare(UPDATES[:3], column(0.5, 0.45, 0.05), 0.5)
    merged = rows_of(BASE, update)

    others = [PARENTS[3], PARENTS[2]]
    assert further_parent(BASE_ROWS, merged, PARENTS[:2], others) == 1
    assert further_parent(BASE_ROWS, merged, PARENTS[:3], others[:1]) is None


def test_rows_in_bfloat16_do_not_show_which_entries_were_dropped():
    update = dare(UPDATES[:2], column(0.5, 0.5), 0.5)

    assert check(update, (0, 1), dtype=torch.bfloat16, is_sparse=True) is None
