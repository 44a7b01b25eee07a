import numpy as np
import torch

from deltadex.indexer.delta import Factors, LowRankDelta, MatrixUpdate, factorise
from deltadex.indexer.fingerprint.mean_factors import (
    MeanFactorsPool,
    family_layout,
    fix_signs,
    mean_factors_recipe,
)
from deltadex.records import Slot

LAYOUT = family_layout(
    [(Slot("decoder", 0, "q"), 6), (Slot("encoder", 0, "up"), 8), (Slot("encoder", 1, "q"), 6)]
)


def _add(pool, slot, part, factors, noise_norm):
    update = MatrixUpdate(
        slot=slot, part=part, delta=None, shape=(1, 1), noise_norm=noise_norm, weight_norm=None
    )
    pool.take(update, factors, pool.features(update, factors))


def test_blocks_are_encoder_before_decoder_and_roles_in_printing_order():
    assert LAYOUT == (("encoder", "q", 6), ("encoder", "up", 8), ("decoder", "q", 6))


def test_blocks_of_one_role_are_in_order_of_their_width_whatever_order_slots_come_in():
    matrices = [(Slot("encoder", 0, "q"), n_out) for n_out in range(24, 0, -1)]

    assert [n_out for _, _, n_out in family_layout(matrices)] == list(range(1, 25))


def test_an_update_of_zero_has_a_zero_vector():
    recipe = mean_factors_recipe(2, LAYOUT)

    vector, norm = MeanFactorsPool(recipe, LAYOUT).vector()

    assert norm == 0.0
    assert np.array_equal(vector, np.zeros(recipe.dim))


def test_the_vector_is_the_mean_over_layers_of_signed_u_sigma():
    generator = torch.Generator().manual_seed(0)
    recipe = mean_factors_recipe(2, LAYOUT)
    pool = MeanFactorsPool(recipe, LAYOUT)
    expected = np.zeros((6, 2))
    for layer in range(3):
        matrix = torch.randn(6, 5, generator=generator)
        u, s, v = torch.linalg.svd(matrix)
        factors = Factors(u=u[:, :2], sigma=s[:2], v=v[:2].T, fro_norm=1.0)
        _add(pool, Slot("encoder", layer, "q"), "", factors, 0.0)
        columns = u[:, :2].numpy()
        signs = np.sign(columns[np.abs(columns).argmax(axis=0), [0, 1]])
        expected += columns * signs * s[:2].numpy() / 3

    vector, norm = pool.vector()

    assert recipe.dim == vector.size == 2 * (6 + 8 + 6)
    assert np.allclose(vector[:12] * norm, expected.ravel(), atol=1e-5)
    assert not vector[12:].any()


def test_the_sign_rule_undoes_flipped_columns():
    u = torch.linalg.qr(torch.randn(9, 4, generator=torch.Generator().manual_seed(1))).Q
    flipped = u * torch.tensor([1.0, -1.0, -1.0, 1.0])

    assert torch.equal(fix_signs(u), fix_signs(flipped))


def test_a_lower_rank_update_is_padded():
    pool = MeanFactorsPool(mean_factors_recipe(4, LAYOUT), LAYOUT)
    factors = factorise(LowRankDelta(torch.ones(6, 1), torch.ones(1, 5)), 4, seed=0)
    _add(pool, Slot("decoder", 0, "q"), "", factors, 0.0)

    vector, _ = pool.vector()

    assert np.count_nonzero(vector) == 6


def test_families_of_other_shapes_are_other_recipes():
    assert mean_factors_recipe(4, LAYOUT).id != mean_factors_recipe(4, LAYOUT[:2]).id
