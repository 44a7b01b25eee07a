"""What is masked: how much, how, and the same every time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.ablation.masked_tokens import mask_tokens

MASK = 3
VOCABULARY = np.arange(10, 1000)


def make_batch(texts=20, positions=50, seed=0):
    tokens = np.random.default_rng(seed).integers(10, 1000, size=(texts, positions))
    maskable = np.ones(tokens.shape, dtype=bool)
    maskable[:, 0] = False
    return tokens, maskable


def mask(tokens, maskable, seed=0):
    return mask_tokens(tokens, maskable, mask_id=MASK, vocabulary=VOCABULARY, seed=seed)


@given(texts=st.integers(1, 8), positions=st.integers(2, 40), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_shares_are_exact_and_nothing_else_is_touched(texts, positions, seed):
    tokens, maskable = make_batch(texts, positions)

    found = mask(tokens, maskable, seed)

    chosen = len(found.targets)
    assert chosen == max(1, round(0.15 * maskable.sum()))
    assert found.masked == round(0.8 * chosen)
    assert found.random == round(0.1 * chosen)
    assert found.masked + found.random + found.unchanged == chosen
    assert np.count_nonzero(found.tokens == MASK) == found.masked
    assert maskable[found.text, found.position].all()
    np.testing.assert_array_equal(found.targets, tokens[found.text, found.position])
    elsewhere = np.ones(tokens.shape, dtype=bool)
    elsewhere[found.text, found.position] = False
    np.testing.assert_array_equal(found.tokens[elsewhere], tokens[elsewhere])


def test_of_a_thousand_tokens_120_15_15():
    found = mask(*make_batch(20, 51))

    assert (found.masked, found.random, found.unchanged) == (120, 15, 15)
    changed = found.tokens[found.text, found.position] != found.targets
    assert 120 <= np.count_nonzero(changed) <= 135


def test_the_same_seed_masks_the_same_and_another_does_not():
    tokens, maskable = make_batch()
    before = tokens.copy()

    first, again, other = mask(tokens, maskable), mask(tokens, maskable), mask(tokens, maskable, 1)

    np.testing.assert_array_equal(first.tokens, again.tokens)
    assert not np.array_equal(first.tokens, other.tokens)
    np.testing.assert_array_equal(tokens, before)
    assert first.settings()["seed"] == 0


def test_every_position_is_chosen_about_equally_often():
    tokens, maskable = make_batch(2, 21)
    counts = np.zeros(tokens.shape)
    for seed in range(1000):
        found = mask(tokens, maskable, seed)
        counts[found.text, found.position] += 1

    # Binomial (1000, .15): sd 11.3; four of them.
    assert abs(counts[:, 1:] - 150).max() < 46


def test_special_tokens_only_are_refused():
    tokens, maskable = make_batch()

    with pytest.raises(StudyError, match="no position may be masked"):
        mask(tokens, np.zeros_like(maskable))
    with pytest.raises(ValueError, match="vocabulary"):
        mask_tokens(tokens, maskable, mask_id=MASK, vocabulary=np.arange(0), seed=0)
