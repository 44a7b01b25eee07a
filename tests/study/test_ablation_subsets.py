"""Every subset once, in one order, with the right sum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.study.ablation.subsets import LETTERS, term_subsets

FOUR = ("input", "attention", "feed_forward", "bias")


def test_four_terms_have_sixteen_subsets_small_ones_first():
    labels = [subset.label for subset in term_subsets(FOUR)]

    assert " ".join(labels) == "none i h f c ih if ic hf hc fc ihf ihc ifc hfc ihfc"


def test_five_terms_have_thirty_two_and_the_source_is_s():
    subsets = term_subsets(("input", "attention", "source", "feed_forward", "bias"))

    assert len({subset.label for subset in subsets}) == 32
    assert subsets[3].names == ("source",)
    assert subsets[-1].label == "ihsfc"


@given(n=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_sums_are_the_plain_sums(n, seed):
    terms = np.random.default_rng(seed).normal(size=(n, 3, 4)).astype(np.float32)
    subsets = term_subsets(tuple(LETTERS)[:n])

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
