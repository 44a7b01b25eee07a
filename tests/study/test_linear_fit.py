"""Linear fits of the feed-forward: against scikit-learn, and what must not change them."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from tiny_networks import edited, make_texts, tiny_network

from deltadex.study.components import components_study
from deltadex.study.components.components_study import PairMoments, fit_and_score, held_out_texts
from deltadex.study.components.decomposition import branch_constants, counted_rows, decompose
from deltadex.study.network.hidden_states import encoded, run_with_hooks
from deltadex.study.texts import Text

TEXTS = make_texts(*([20] * 30))
SMALL = {"bert": {"hidden_size": 16}, "gpt2": {"n_embd": 16}}


def small(name):
    return tiny_network(name, **SMALL[name])


def moments(x, y, *, batches=1):
    sums = PairMoments()
    for part in np.array_split(np.arange(len(x)), batches):
        sums.add(torch.from_numpy(x[part]), torch.from_numpy(y[part]))
    return sums


def drawn(seed, n, dim=5, outputs=3):
    draw = np.random.default_rng(seed)
    x = draw.normal(3, 2, (n, dim)).astype(np.float32)
    y = np.tanh(x @ draw.normal(0, 0.3, (dim, outputs))) + draw.normal(0, 0.2, (n, outputs))
    return x, y.astype(np.float32)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), batches=st.integers(1, 5), shift=st.floats(-100, 100))
def test_streamed_sums_give_the_fit_and_the_score_of_scikit_learn(seed, batches, shift):
    x, y = drawn(seed, 90)
    x += np.float32(shift)

    held_out, train = fit_and_score(
        moments(x[:60], y[:60], batches=batches), moments(x[60:], y[60:], batches=batches)
    )

    x, y = x.astype(np.float64), y.astype(np.float64)
    exact = LinearRegression().fit(x[:60], y[:60])
    assert train == pytest.approx(exact.score(x[:60], y[:60]), abs=1e-6)
    assert held_out == pytest.approx(exact.score(x[60:], y[60:]), abs=1e-6)


def test_a_direction_that_never_varies_changes_no_fit():
    x, y = drawn(0, 200)
    flat = np.concatenate([x, -x.sum(axis=1, keepdims=True)], axis=1)

    alone, doubled = (fit_and_score(moments(a, y), moments(a[:50], y[:50])) for a in (x, flat))

    assert doubled == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_both_fits_are_those_of_scikit_learn_on_the_same_tokens(name):
    network = small(name)

    (found,) = components_study(network, TEXTS, linear=True, batch_size=7).stacks

    pairs, held = by_hand(network)
    assert not found.linear.too_few
    assert found.linear.held_out_tokens == held.sum()
    assert found.linear.train_tokens == (~held).sum()
    for fit, layers in zip(found.linear.fits, pairs, strict=True):
        for layer, (x, y) in enumerate(layers):
            exact = LinearRegression().fit(x[~held], y[~held])
            assert fit.r2[layer] == pytest.approx(exact.score(x[held], y[held]), abs=1e-3)
            assert fit.r2_train[layer] == pytest.approx(exact.score(x[~held], y[~held]), abs=1e-3)


def by_hand(network):
    """((x, y) by fit and layer, which tokens are held out), in memory."""
    stack = network.stacks[0]
    (batch,) = encoded(network, TEXTS, batch_size=len(TEXTS))
    rows = counted_rows(batch)
    held = np.isin(rows.numpy() // batch.ids.shape[1], list(held_out_texts(TEXTS)))
    layers = decompose(network, stack, batch, branch_constants(network, stack))
    picked = [layer.terms.flatten(1, 2)[:, rows].double().numpy() for layer in layers]
    last = len(stack.blocks) + 1
    terms = [(part.sum(axis=0) - part[2], part[2]) for part in picked[1:last]]
    seen = []
    hooks = []
    for sublayers in stack.sublayers:
        reads = {"bert": "reads", "gpt2": "module"}[network.name.split(",")[0]]
        first = getattr(sublayers[1], reads)
        hooks.append(first.register_forward_pre_hook(lambda _, args: seen.append(args[0])))
        hooks.append(sublayers[1].branch.register_forward_hook(lambda *a: seen.append(a[2])))
    run_with_hooks(network, batch, hooks)
    flat = [states.flatten(0, 1)[rows].double().numpy() for states in seen]
    return [terms, list(zip(flat[::2], flat[1::2], strict=True))], held


def test_a_feed_forward_without_its_bend_is_linear():
    class Straight(torch.nn.Module):
        def forward(self, x):
            return x

    def straighten(model):
        for block in model.encoder.layer:
            block.intermediate.intermediate_act_fn = Straight()

    (found,) = components_study(edited(small("bert"), straighten), TEXTS, linear=True).stacks

    assert found.linear.fits[1].r2 == pytest.approx(1.0, abs=1e-6)


def test_too_few_tokens_are_said_and_no_score_is_given():
    (found,) = components_study(small("bert"), TEXTS[:6], linear=True).stacks

    document = found.to_json()["linear"]
    assert document["too_few_tokens"] is True
    assert document["needed_tokens"] == 160
    assert document["fits"] == []


def test_the_order_of_texts_changes_no_fit():
    one, other = (
        components_study(small("bert"), texts, linear=True).stacks[0].linear
        for texts in (TEXTS, TEXTS[::-1])
    )

    assert one.held_out_tokens == other.held_out_tokens
    assert one.fits[0].r2 == pytest.approx(other.fits[0].r2, abs=1e-4)


def test_a_fifth_of_the_texts_is_held_out_and_equal_texts_are_on_one_side():
    texts = [Text(str(n % 25), "", str(n)) for n in range(50)]

    held = held_out_texts(texts)

    assert len(held) == 10
    assert all((place + 25 in held) == (place in held) for place in range(25))
    digests = {hashlib.sha256(texts[place].text.encode()).hexdigest() for place in held}
    assert len(digests) == 5
