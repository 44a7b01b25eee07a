"""Word vectors from a stream of pieces, against sums over a dictionary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.ablation.word_pieces import PieceTerms, word_terms, words_of_tokens


def make_pieces(text, word, seed=0):
    terms = np.random.default_rng(seed).normal(size=(4, len(text), 3)).astype(np.float32)
    return PieceTerms(terms, np.array(text, dtype=np.int64), np.array(word, dtype=np.int64))


def ids(*values):
    return np.array(values, dtype=np.int64)


def test_pieces_of_a_word_are_summed_and_others_left_out():
    batch = make_pieces([0, 0, 0, 0, 1], [-1, 0, 0, 1, 0])

    found = word_terms([batch], ids(1, 0), ids(0, 0))

    assert found.pieces.tolist() == [1, 2]
    np.testing.assert_array_equal(found.terms[:, 0], batch.terms[:, 4])
    np.testing.assert_allclose(found.terms[:, 1], batch.terms[:, 1] + batch.terms[:, 2], rtol=1e-6)


@given(
    words=st.lists(st.lists(st.integers(-1, 3), max_size=6), min_size=1, max_size=5),
    cut=st.integers(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_batches_of_any_size_give_the_same_words(words, cut):
    text = [t for t, row in enumerate(words) for _ in row]
    word = [w for row in words for w in row]
    whole = make_pieces(text, word)
    edge = sum(t < cut for t in text)
    halves = [
        PieceTerms(whole.terms[:, part], whole.text[part], whole.word[part])
        for part in (slice(edge), slice(edge, None))
    ]
    pairs = sorted({(t, w) for t, w in zip(text, word, strict=True) if w >= 0})
    asked = ids(*(t for t, _ in pairs)), ids(*(w for _, w in pairs))

    one, two = word_terms([whole], *asked), word_terms(halves, *asked)

    np.testing.assert_array_equal(one.terms, two.terms)
    for row, pair in enumerate(pairs):
        tokens = [i for i, at in enumerate(zip(text, word, strict=True)) if at == pair]
        np.testing.assert_allclose(
            one.terms[:, row], whole.terms[:, tokens].sum(axis=1), rtol=1e-5, atol=1e-6
        )


def test_a_word_beyond_the_cut_is_not_found():
    found = word_terms([make_pieces([0, 0], [0, 1])], ids(0, 0), ids(1, 2))

    assert found.seen.tolist() == [True, False]
    assert not found.terms[:, 1].any()


def test_a_text_in_two_batches_is_refused():
    batch = make_pieces([3], [0])

    with pytest.raises(StudyError, match="text 3 comes in two batches"):
        word_terms([batch, batch], ids(3), ids(0))


def test_no_batches_and_a_word_asked_for_twice_are_refused():
    with pytest.raises(StudyError, match="no tokens"):
        word_terms([], ids(0), ids(0))
    with pytest.raises(ValueError, match="twice"):
        word_terms([make_pieces([0], [0])], ids(0, 0), ids(0, 0))


def test_tokens_take_the_words_of_the_tokenizer():
    words = words_of_tokens(ids(1, 0, 1), ids(2, 0, 1), [[None, 0], [None, 0, 0, None]])

    assert words.tolist() == [0, -1, 0]
