"""The layer map is the order in which layers were taken, and chance gives none."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.indexer.layer_map import find_layer_map
from deltadex.indexer.weight_samples import MatrixSample

LAYERS, ROLES, ENTRIES = 6, ("q", "k", "o", "up"), 256


def model(seed, layers=LAYERS, entries=ENTRIES):
    """Runs of heavy-tailed numbers, with columns of unequal size as in trained weights."""
    rng = np.random.default_rng(seed)
    columns = rng.gamma(1.0, size=64)
    return [
        MatrixSample(
            tensor=f"{layer}.{role}",
            group=f"decoder.{role}",
            layer=layer,
            shape=(64 if role != "up" else 128, 64),
            values=np.float32(rng.standard_t(4, entries) * np.tile(columns, entries // 64)),
            dtype="F32",
        )
        for layer in range(layers)
        for role in ROLES
    ]


BASE = model(0)


def in_order(order, noise=0.0, seed=1):
    rng = np.random.default_rng(seed)
    return [
        replace(
            m,
            layer=new,
            values=(m.values + noise * m.values.std() * rng.normal(size=len(m.values))).astype(
                np.float32
            ),
        )
        for new, old in enumerate(order)
        for m in BASE
        if m.layer == old
    ]


@settings(max_examples=15, deadline=None)
@given(
    order=st.lists(st.integers(0, LAYERS - 1), min_size=1, max_size=10), noise=st.floats(0.0, 0.5)
)
def test_any_order_of_layers_is_recovered_with_their_distance(order, noise):
    found = find_layer_map(in_order(order, noise), BASE)

    assert found.is_significant
    assert [(child, base) for _, child, base in found.layers] == list(enumerate(order))
    assert found.unmatched == ()
    assert found.distance == pytest.approx(noise, abs=0.05)
    assert found.is_identity == (order == list(range(LAYERS)))


def test_chance_is_never_significant_and_p_is_no_smaller_than_its_rate():
    rng = np.random.default_rng(3)
    shuffled = [
        find_layer_map([replace(m, values=rng.permutation(m.values)) for m in BASE], BASE).p
        for _ in range(25)
    ]
    fresh = [find_layer_map(model(100 + seed), BASE).p for seed in range(25)]

    for values in (shuffled, fresh):
        assert min(values) > 1e-6
        assert np.mean(np.array(values) <= 0.05) <= 0.1


def test_constant_runs_and_runs_with_nan_are_no_evidence():
    for value in (0.0, np.nan):
        child = [replace(m, values=np.full_like(m.values, value)) for m in BASE]

        assert find_layer_map(child, BASE).p == 1.0


def test_equal_layers_of_a_base_are_taken_in_turn():
    twice = [replace(m, layer=m.layer + LAYERS * again) for again in (0, 1) for m in BASE]

    found = find_layer_map(twice, twice)

    assert [base for _, _, base in found.layers] == list(range(2 * LAYERS))
