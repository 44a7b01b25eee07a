"""Every subset once, in one order, with the right sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.ablation.term_subsets import check_terms, letters, term_subsets

FOUR = ("input", "attention", "feed_forward", "bias")


def test_four_terms_have_sixteen_subsets_small_ones_first():
    labels = [subset.label for subset in term_subsets(FOUR)]

    assert " ".join(labels) == "none i h f c ih if ic hf hc fc ihf ihc ifc hfc ihfc"


def test_five_terms_have_thirty_two_and_the_source_is_s():
    subsets = term_subsets(("input", "attention", "source", "feed_forward", "bias"))

    assert len({subset.label for subset in subsets}) == 32
    assert subsets[3].names == ("source",)
    assert subsets[-1].label == "ihsfc"


def test_unknown_terms_take_letters_that_are_free():
    assert letters(("input", "ink", "iii")) == ("i", "n", "a")


def test_a_term_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="different terms"):
        term_subsets(("input", "input"))


@given(n=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_sums_are_the_plain_sums(n, seed):
    terms = np.random.default_rng(seed).normal(size=(n, 3, 4)).astype(np.float32)
    subsets = term_subsets([f"{chr(97 + i)}" for i in range(n)])

    for subset in subsets:
        expected = sum((terms[i].astype(float) for i in subset.members), np.zeros((3, 4)))
        np.testing.assert_allclose(subset.sum(terms), expected, rtol=1e-6, atol=1e-7)


def test_long_terms_that_cancel_leave_what_is_between_them():
    terms = np.full((3, 1, 1), 1e8, dtype=np.float32)
    terms[1] = 3.0
    terms[2] = -1e8

    total = term_subsets(("input", "attention", "bias"))[-1].sum(terms)

    assert total.item() == 3.0
    assert total.dtype == np.float32


def test_a_term_with_nan_is_named_with_its_item():
    terms = np.zeros((4, 3, 2), dtype=np.float32)
    terms[2, 1, 0] = np.nan

    with pytest.raises(StudyError, match="'feed_forward' of item 1 holds NaN"):
        check_terms(terms, FOUR, "x")


def test_no_items_and_missing_names_are_refused():
    with pytest.raises(StudyError, match="nothing to measure"):
        check_terms(np.zeros((4, 0, 2), dtype=np.float32), FOUR, "x")
    with pytest.raises(ValueError, match="3 terms, but 4 names"):
        check_terms(np.zeros((3, 1, 2), dtype=np.float32), FOUR, "x")
