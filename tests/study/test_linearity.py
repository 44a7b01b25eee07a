"""Linearity of the step between layers, against least squares on the rows themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.study.geometry.moments import (
    CrossMoments,
    LayerStep,
    Moments,
    StreamMoments,
    layer_linearity,
)


def make_step(n=300, dim=6, *, noise=0.3, seed=0, offset=0.0):
    """(input, output) of a layer: a linear map, a curve, noise."""
    rng = np.random.default_rng(seed)
    before = rng.standard_normal((n, dim)) * rng.uniform(0.2, 3.0, dim) + offset
    bent = np.tanh(before @ rng.standard_normal((dim, dim)))
    after = before @ rng.standard_normal((dim, dim)) + bent + noise * rng.standard_normal((n, dim))
    return before, after + 2 * offset


def step_of(before, after):
    return LayerStep(Moments.of(before), Moments.of(after), CrossMoments.of(before, after))


def score_by_lstsq(before, after, *, on=None):
    """Razzhigaev et al. 2024, eq. 1; fitted to `on` (input, output) where it is given."""
    fit_x, fit_y = on or (before, after)
    x, y = before - fit_x.mean(axis=0), after - fit_y.mean(axis=0)
    fitted = np.linalg.lstsq(fit_x - fit_x.mean(axis=0), fit_y - fit_y.mean(axis=0), rcond=None)[0]
    variance = np.linalg.norm(after - after.mean(axis=0)) ** 2
    return 1 - np.linalg.norm(y - x @ fitted) ** 2 / variance


@given(seed=st.integers(0, 99), offset=st.sampled_from([0.0, 100.0]))
@settings(max_examples=20, deadline=None)
def test_scores_are_those_of_least_squares(seed, offset):
    before, after = make_step(seed=seed, offset=offset)

    found = layer_linearity([step_of(before, after)])

    assert found.stream == pytest.approx(score_by_lstsq(before, after), rel=1e-8)
    assert found.contribution == pytest.approx(score_by_lstsq(before, after - before), rel=1e-8)
    assert (found.held_out_stream, found.tokens, found.reason) == (None, 300, "")


def test_the_published_normalisation_changes_nothing():
    before, after = make_step()

    x, y = (rows - rows.mean(axis=0) for rows in (before, after))
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    published = 1 - np.linalg.norm(x @ np.linalg.lstsq(x, y, rcond=None)[0] - y) ** 2

    assert layer_linearity([step_of(before, after)]).stream == pytest.approx(published, rel=1e-9)


def test_held_out_scores_are_fitted_to_one_half_and_scored_on_the_other():
    halves = [make_step(120, seed=1), make_step(90, seed=1, offset=0.1)]

    found = layer_linearity([step_of(*half) for half in halves])

    expected = [score_by_lstsq(*halves[i], on=halves[1 - i]) for i in (0, 1)]
    own = [(before, after - before) for before, after in halves]
    contributions = [score_by_lstsq(*own[i], on=own[1 - i]) for i in (0, 1)]
    assert found.held_out_stream == pytest.approx(np.mean(expected), rel=1e-8)
    assert found.held_out_contribution == pytest.approx(np.mean(contributions), rel=1e-8)
    whole = score_by_lstsq(*(np.vstack(parts) for parts in zip(*halves, strict=True)))
    assert found.stream == pytest.approx(whole, rel=1e-8)
    assert found.optimistic is False


def test_noise_is_linear_on_the_tokens_of_the_fit_and_not_on_others():
    rng = np.random.default_rng(0)
    halves = [tuple(rng.standard_normal((2, 60, 40))) for _ in range(2)]

    found = layer_linearity([step_of(*half) for half in halves])

    assert found.stream == pytest.approx(40 / 120, abs=0.1)
    assert found.held_out_stream < 0
    assert found.optimistic


def test_no_more_tokens_than_dimensions_are_too_few():
    found = layer_linearity([step_of(*make_step(7, 6))])

    assert (found.stream, found.contribution) == (None, None)
    assert found.reason.startswith("too few: any 7 tokens in 6 dimensions")


def test_a_large_coordinate_and_columns_that_repeat_cost_no_digits():
    before, after = make_step(400, 6)
    before[:, 0] *= 1e6
    before = np.hstack([before, before[:, 1:2] - before[:, 2:3], np.zeros((400, 1))])
    after = np.hstack([after, after[:, :2]])

    found = layer_linearity([step_of(before, after)])

    scaled = before / np.maximum(np.abs(before).max(axis=0), 1.0)
    assert found.stream == pytest.approx(score_by_lstsq(scaled, after), rel=1e-7)


def test_directions_that_one_half_lacks_are_not_mapped_by_rounding():
    """As embeddings of words that only one half of the texts has."""
    rng = np.random.default_rng(0)
    halves = []
    for width in (5, 8):
        before = np.zeros((400, 8))
        before[:, :width] = rng.standard_normal((400, width))
        before = before @ np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))[0]
        after = before + 0.1 * rng.standard_normal((400, 8))
        halves.append((before.astype(np.float32), after.astype(np.float32)))

    found = layer_linearity([step_of(*half) for half in halves])

    # fitted to five directions of eight, it knows five eighths of the other half
    assert 0.5 < found.held_out_stream < 1.0


def test_equal_tokens_and_layers_that_add_nothing_have_no_score():
    rows = np.random.default_rng(0).standard_normal((50, 4))

    still = layer_linearity([step_of(rows, rows)])
    equal = layer_linearity([step_of(np.ones((50, 4)), rows)])

    assert still.stream == pytest.approx(1.0)
    assert still.contribution is None
    assert (equal.stream, equal.reason) == (None, "all tokens are equal")


@given(cuts=st.lists(st.integers(0, 80), max_size=4), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_streamed_moments_do_not_depend_on_batches(cuts, seed):
    hidden = np.random.default_rng(seed).standard_normal((3, 80, 4)) + 50.0
    stream = StreamMoments(3, 4, crossed=True)

    for part in np.split(hidden, sorted(cuts), axis=1):
        stream.update(part)

    for layer, cross in enumerate(stream.crossed):
        centred = hidden - hidden.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(cross.scatter, centred[layer].T @ centred[layer + 1], atol=1e-9)
        assert stream.layers[layer].n == 80
