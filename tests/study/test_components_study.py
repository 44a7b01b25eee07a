"""The components study and its picture: against sums by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from tiny_networks import (
    SENTENCES,
    as_network,
    edited,
    make_texts,
    make_tokenizer,
    one_of_each_structure,
    perturb,
    speaking,
    tiny_network,
)

from deltadex.errors import StudyError
from deltadex.study.components.components_study import components_study
from deltadex.study.components.decomposition import branch_constants, decompose, importance
from deltadex.study.network.hidden_states import encoded

TEXTS = make_texts(4, 11, 7, 9, 5)


def tuned(name):
    return edited(tiny_network(name), lambda model: perturb(model, by=0.02, seed=1))


def by_hand(network, texts):
    """(mean, spread) of importance, one text and one token at a time, by layer and term."""
    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    shares = []
    for text in texts:
        (batch,) = encoded(network, [text], batch_size=1, max_tokens=64)
        layers = decompose(network, stack, batch, constants)
        for token in np.flatnonzero(batch.counted[0]):
            states = [(one.terms[:, 0, token], one.hidden[0, token]) for one in layers]
            shares.append([[float(x @ e / (e @ e)) for x in terms] for terms, e in states])
    return np.mean(shares, axis=0), np.std(shares, axis=0)


def test_importance_is_the_mean_and_spread_over_tokens():
    network = tiny_network("bert")

    (stack,) = components_study(network, TEXTS).stacks

    mean, spread = by_hand(network, TEXTS)
    assert stack.importance == pytest.approx(mean, abs=1e-5)
    assert stack.importance_sd == pytest.approx(spread, abs=1e-5)


OF_STACK = ("importance", "importance_sd", "norm_ratio")
OF_PAIR = ("term_shift", "term_shift_share", "total_shift", "local_shift", "local_embedding")


def test_batches_and_the_order_of_texts_change_nothing():
    name = "t5"
    network, base = tuned(name), tiny_network(name)
    given = {"against": base}
    expected = components_study(network, TEXTS, batch_size=3, **given)

    found = components_study(network, TEXTS[::-1], batch_size=2, **given)

    for one, other in zip(found.stacks, expected.stacks, strict=True):
        for part in OF_STACK:
            assert getattr(one, part) == pytest.approx(getattr(other, part), abs=1e-5)
        for part in OF_PAIR:
            mine, theirs = (getattr(stack.against, part) for stack in (one, other))
            assert mine == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize(("name", "copied"), [("bert", False), ("t5", True)])
def test_a_network_against_itself_correlates_fully_and_moves_nowhere(name, copied):
    network = tiny_network(name)
    itself = edited(network, lambda _: None) if copied else network

    for stack in components_study(network, TEXTS, against=itself).stacks:
        finite = stack.against.correlation[~np.isnan(stack.against.correlation)]
        assert finite == pytest.approx(1.0)
        assert len(finite) >= 9
        for part in ("term_shift", "total_shift", "local_shift", "local_embedding"):
            assert np.max(getattr(stack.against, part)) <= 1e-6
        assert stack.against.most_edited is None
        rounding = dataclasses.replace(stack.against, local_shift=stack.against.local_shift + 1e-7)
        assert rounding.most_edited is None


def test_correlation_is_of_the_ranks_of_both_models_importance():
    network, base = tuned("bert"), tiny_network("bert")

    (stack,) = components_study(network, TEXTS, against=base).stacks

    ranks = []
    for one in (network, base):  # importance of attention at layer 3, token by token
        (batch,) = encoded(one, TEXTS, batch_size=16, max_tokens=64)
        own = one.stacks[0]
        layer = decompose(one, own, batch, branch_constants(one, own))[3]
        shares = importance(layer.terms[:, torch.from_numpy(batch.counted)])[1]
        ranks.append(rankdata(shares.numpy()))
    expected = np.corrcoef(*ranks)[0, 1]
    assert stack.against.correlation[3, 1] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "against"),
    [
        ("bert", {"hidden_size": 16}, "bert"),
        ("t5", {"num_decoder_layers": 2}, "t5"),
        ("gpt2", {}, "llama"),
    ],
)
def test_networks_of_other_depth_width_or_architecture_are_refused(name, change, against):
    with pytest.raises(StudyError, match="not built alike"):
        components_study(tiny_network(name, **change), TEXTS, against=tiny_network(against))


def test_networks_that_cut_texts_differently_are_refused():
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["singing"])
    other = dataclasses.replace(speaking("bert"), tokenizer=tokenizer, name="other")

    with pytest.raises(StudyError, match="cut text '2' into other tokens"):
        components_study(speaking("bert"), SENTENCES, against=other)


def test_a_batch_without_a_token_that_counts_changes_nothing_and_no_token_at_all_is_refused():
    network = tiny_network("bert")

    report = components_study(network, (*make_texts(1), *TEXTS), batch_size=1)

    without = components_study(network, TEXTS)
    assert report.n_tokens == without.n_tokens
    assert report.stacks[0].importance == pytest.approx(without.stacks[0].importance, abs=1e-5)
    with pytest.raises(StudyError, match="leave no token"):
        components_study(network, make_texts(1, 1))


def test_a_network_that_gives_nan_or_whose_terms_do_not_add_up_is_refused():
    def change(model):
        model.encoder.layer[1].output.dense.weight[0].fill_(float("nan"))

    with pytest.raises(StudyError, match=r"^[^:]+: hidden state 2 holds NaN"):
        components_study(edited(tiny_network("bert"), change), TEXTS)
    network = edited(tiny_network("gpt2"), lambda _: None)
    network.model.h[1].mlp.register_forward_hook(lambda _, __, output: 1.5 * output)

    with pytest.raises(StudyError, match="differ from the hidden state"):
        components_study(as_network(network.model, "odd"), TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_of_each_structure())
def test_edited_attention_is_found_in_its_layer_and_nowhere_else(name):
    base = tiny_network(name)
    layers = base.stacks[0].sublayers
    place = min(1, len(layers) - 1)
    path = next(p for p, m in base.model.named_modules() if m is layers[place][0].module)
    network = edited(base, lambda model: perturb(model.get_submodule(path), by=0.1))

    first, *others = components_study(network, make_texts(6, 9), against=base).stacks

    shift = dict(zip(first.against.local_terms, first.against.local_shift.T, strict=True))
    blocks = np.arange(base.n_layers)
    edit = blocks >= 0 if name == "albert" else blocks == place
    assert shift["attention"][edit].min() > 1e-3
    assert shift["attention"][~edit].max(initial=0) <= 1e-6
    assert shift["bias"][~edit].max(initial=0) <= 1e-6
    assert shift["feed_forward"].max() <= 1e-6
    # a decoder sees the edit through its source, which is none of its own parts
    for stack in others:
        assert stack.against.local_shift.max() <= 1e-6
        assert stack.against.term_shift[1:, stack.terms.index("source")].min() > 1e-5
