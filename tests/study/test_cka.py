"""CKA against kernels of rows × rows, its laws, its error bars, and two networks' tokens."""

import numpy as np
import pytest
from tiny_networks import edited, make_texts, scale, speaking, tiny_network

from deltadex.errors import StudyError
from deltadex.study.cka.cka_report import LONGEST_SIDE, PairedStates, align, cka_study, sample_pairs
from deltadex.study.network.hidden_states import TokenStates
from deltadex.study.texts import Text

TEXTS = make_texts(*[12] * 14, 30, 5)


def study(network, against, texts=TEXTS):
    return cka_study(network, against, texts, keep_tokens=4000)


def states_of(first, second, text=None):
    """Layers of rows as sampled states; each row is a text of its own where none is given."""
    first, second = (np.asarray(part, dtype=np.float32) for part in (first, second))
    text = np.arange(first.shape[1]) if text is None else np.asarray(text)
    return PairedStates(first=first, second=second, text=text.astype(np.int64), n_seen=len(text))


def cloud(rng, layers, rows, dim):
    """Correlated layers whose means are far from 0."""
    mixed = rng.standard_normal((rows, 6)) @ rng.standard_normal((layers, 6, dim))
    return mixed + 0.5 * rng.standard_normal((layers, rows, dim)) + 3 * rng.standard_normal(dim)


def kernel_cka(x, y):
    """(biased, debiased) by the definitions over kernels, in float64.

    Kornblith et al. 2019, eq. 3, with centring matrices; Song et al. 2012, eq. 5.
    """
    n = len(x)
    one, h = np.ones(n), np.eye(n) - 1 / n

    def biased(k, m):
        return np.trace(k @ h @ m @ h)

    def unbiased(k, m):
        k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
        products = np.trace(k @ m) - 2 * (one @ k @ m @ one) / (n - 2)
        return products + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))

    k, m = (part @ part.T for part in (x.astype(np.float64), y.astype(np.float64)))
    return [f(k, m) / np.sqrt(f(k, k) * f(m, m)) for f in (biased, unbiased)]


def test_it_is_the_kernels_cka_and_its_jackknife():
    rng = np.random.default_rng(0)
    text = np.repeat(np.arange(8), rng.integers(4, 9, 8))
    first, second = (cloud(rng, n, len(text), d) for n, d in ((3, 7), (2, 40)))

    alignment = align(states_of(first, second, text), seed=0)

    def by_kernels(rows):
        return np.array([[kernel_cka(x[rows], y[rows]) for y in second] for x in first])

    biased, debiased = np.moveaxis(by_kernels(text >= 0), 2, 0)
    np.testing.assert_allclose(alignment.biased, biased, atol=2e-5)
    np.testing.assert_allclose(alignment.debiased, debiased, atol=2e-5)
    # each text is a block: its removal, computed from the rows that remain
    removed = np.array([by_kernels(text != t)[:, :, 1] for t in range(8)])
    jackknife = np.sqrt(7 / 8 * ((removed - removed.mean(axis=0)) ** 2).sum(axis=0))
    assert alignment.n_blocks == 8
    np.testing.assert_allclose(alignment.standard_error, jackknife, rtol=2e-3)
    more = np.repeat(np.arange(2), (LONGEST_SIDE + 40, 300))  # than a tile has rows
    x, y = cloud(rng, 1, len(more), 5), cloud(rng, 1, len(more), 4)
    found = align(states_of(x, y, more), seed=3)
    assert [found.biased[0, 0], found.debiased[0, 0]] == pytest.approx(
        kernel_cka(x[0], y[0]), abs=2e-5
    )


def test_unrelated_layers_are_near_one_biased_and_zero_debiased_and_constant_ones_have_none():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1, 60, 600))
    constant = rng.standard_normal((2, 30, 4))
    constant[0] = 7.3

    alignment = align(states_of(x, y), seed=0)
    none = align(states_of(constant, constant), seed=0)

    assert alignment.biased[0, 0] > 0.85
    assert abs(alignment.debiased[0, 0]) < 0.05
    assert np.isnan(none.debiased).tolist() == [[True, True], [True, False]]


def test_both_networks_keep_the_same_tokens():
    pairs = []
    for ids in np.split(np.arange(300), 6):
        rows = ids[None, :, None].astype(np.float32)
        pairs.append([TokenStates(hidden=h, text=ids) for h in (rows, -rows)])

    states = sample_pairs(pairs, keep=40, seed=1)

    assert states.n_seen == 300
    np.testing.assert_array_equal(states.first[0, :, 0], states.text)
    np.testing.assert_array_equal(states.second[0, :, 0], -states.text)
    assert states.text.max() >= 150


def test_a_network_beside_itself_and_beside_an_edited_one():
    network = tiny_network("llama")
    tuned = edited(network, lambda model: scale(model.layers[1].self_attn.o_proj, by=3.0))

    own = study(network, network)
    report = study(tuned, network)

    assert [layer["debiased"] for layer in own.layers] == pytest.approx([1.0] * 4, abs=1e-4)
    before, edit = report.layers[1], report.layers[2]
    assert before["debiased"] == pytest.approx(1.0, abs=1e-4)
    assert edit["debiased"] < 0.999
    assert edit["standard_error"] > 0
    assert (report.n_tokens, report.n_texts, report.n_blocks) == (187, 16, 15)


def test_missing_and_too_few_tokens_and_values_that_are_not_finite_are_refused():
    bert, texts = tiny_network("bert"), (Text("the zoo", "", "1"), Text("was empty", "", "2"))
    broken = edited(
        bert, lambda model: model.encoder.layer[1].output.dense.bias[:1].fill_(float("nan"))
    )

    with pytest.raises(StudyError, match=r"bert has no token \d+: its vocabulary is smaller"):
        study(speaking("bert"), speaking("bert", vocab_size=20), texts)
    with pytest.raises(StudyError, match="4 tokens are too few"):
        study(bert, bert, make_texts(5))
    with pytest.raises(StudyError, match="bert, edited: its states hold NaN"):
        study(bert, broken)
