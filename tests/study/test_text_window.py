"""Texts that a network cuts are counted, and what limits them is said."""

import dataclasses

import numpy as np
import pytest
from tiny_networks import make_texts, make_tokenizer, tiny_network

from deltadex.study.network import text_window, token_states
from deltadex.study.texts import Text

LETTERS = tuple(Text(" ".join("abc" * n), "", str(n)) for n in (1, 2, 3, 30))
CUT = "2 of 4 texts were cut to 8 tokens; --max-tokens N reads more"
WHOLE = "1 of 4 texts were cut to 64 tokens, the model's window"
BEYOND = "the model's window is 64: --max-tokens 4096 has no effect beyond it"


def with_tokenizer(**changes):
    return dataclasses.replace(tiny_network("gpt2", **changes), tokenizer=make_tokenizer())


@pytest.mark.parametrize(
    ("max_tokens", "chosen", "notes"),
    [(8, True, [CUT]), (128, False, [WHOLE]), (4096, True, [BEYOND, WHOLE]), (64, True, [WHOLE])],
)
def test_cut_texts_and_a_limit_beyond_the_window_are_said(max_tokens, chosen, notes):
    window = text_window(with_tokenizer(), LETTERS, max_tokens)

    assert list(window.notes(chosen=chosen)) == notes
    assert window.longest == 92  # 90 letters between [CLS] and [SEP]


def test_texts_that_fit_need_no_remark():
    window = text_window(with_tokenizer(), LETTERS[:3], 11)

    assert (window.cut, list(window.notes(chosen=True))) == (0, [])


def test_the_window_is_the_smaller_of_positions_and_tokenizer():
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = int(1e30)
    network = dataclasses.replace(tiny_network("gpt2", n_positions=40), tokenizer=tokenizer)

    assert with_tokenizer(n_positions=200).window == 64
    assert network.window == 40
    assert tiny_network("t5").window is None


@pytest.mark.parametrize("tokenizer", [None, make_tokenizer()])
def test_a_text_is_counted_exactly_where_the_network_reads_less_of_it(tokenizer):
    network = dataclasses.replace(tiny_network("gpt2", n_positions=40), tokenizer=tokenizer)
    texts = make_texts(3, 39, 40, 41, 60) if tokenizer is None else LETTERS

    for max_tokens in (2, 11, 40, 300):
        window = text_window(network, texts, max_tokens)
        kept, whole = (
            np.bincount(np.concatenate([one.text for one in states]), minlength=len(texts))
            for states in (
                token_states(network, texts, max_tokens=max_tokens, **EVERY),
                token_states(dataclasses.replace(WIDE, tokenizer=endless(tokenizer)), texts,
                             max_tokens=300, **EVERY),
            )
        )  # fmt: skip
        assert window.cut == int((kept < whole).sum())


EVERY = {"keep_special": True, "keep_first": True}
WIDE = tiny_network("gpt2", n_positions=300)


def endless(tokenizer):
    if tokenizer is None:
        return None
    wide = make_tokenizer()
    wide.model_max_length = int(1e30)
    return wide
