"""The components study: its averages, what must not change them, and what it refuses."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from tiny_networks import (
    as_network,
    edited,
    make_texts,
    make_tokenizer,
    perturb,
    tiny_network,
)

from deltadex.errors import StudyError
from deltadex.study.components import components_study
from deltadex.study.components.decomposition import branch_constants, decompose, importance
from deltadex.study.network.hidden_states import encoded
from deltadex.study.texts import Text

TEXTS = make_texts(4, 11, 7, 9, 5)
SENTENCES = tuple(
    Text(text, "", str(n))
    for n, text in enumerate(("The cat sat on the mat.", "Rain, again!", "Who is singing?"))
)


def tuned(name):
    return edited(tiny_network(name), lambda model: perturb(model, by=0.02, seed=1))


def speaking(name="bert", **parts):
    return dataclasses.replace(tiny_network(name), tokenizer=make_tokenizer(), **parts)


def strict(report):
    return json.loads(json.dumps(report.to_json(), allow_nan=False))


def numbers(value):
    """All numbers in a document, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for one in value for number in numbers(one)]
    return [value] if isinstance(value, float) else []


def by_hand(network, texts):
    """Mean importance, one text and one token at a time, by layer and term."""

    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    shares = []
    for text in texts:
        (batch,) = encoded(network, [text], batch_size=1, max_tokens=64)
        layers = decompose(network, stack, batch, constants)
        for token in np.flatnonzero(batch.counted[0]):
            shares.append(
                [
                    [
                        float(x @ one.hidden[0, token]) / float(one.hidden[0, token].norm()) ** 2
                        for x in one.terms[:, 0, token]
                    ]
                    for one in layers
                ]
            )
    return np.mean(shares, axis=0), np.std(shares, axis=0)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_importance_is_the_mean_and_spread_over_tokens(name):
    network = tiny_network(name)

    (stack,) = components_study(network, TEXTS).stacks

    mean, spread = by_hand(network, TEXTS)
    assert stack.importance == pytest.approx(mean, abs=1e-5)
    assert stack.importance_sd == pytest.approx(spread, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "bart", "albert"])
def test_importance_sums_to_one_in_every_layer(name):
    for stack in components_study(tiny_network(name), TEXTS).stacks:
        assert stack.importance.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
        assert stack.importance.shape == (len(stack.layers), len(stack.terms))
        assert stack.layers[:4] == ("0", "1", "2", "3")
        assert stack.error <= 1e-5


@pytest.mark.parametrize(("name", "batch_size"), [("bert", 1), ("bert", 2), ("t5", 2)])
def test_batches_and_the_order_of_texts_change_nothing(name, batch_size):
    network, base = tuned(name), tiny_network(name)
    expected = components_study(network, TEXTS, against=base, batch_size=3)

    found = components_study(network, TEXTS[::-1], against=base, batch_size=batch_size)

    for one, other in zip(found.stacks, expected.stacks, strict=True):
        mine, theirs = one.against, other.against
        assert one.importance == pytest.approx(other.importance, abs=1e-5)
        assert one.importance_sd == pytest.approx(other.importance_sd, abs=1e-5)
        assert one.norm_ratio == pytest.approx(other.norm_ratio, abs=1e-5)
        assert mine.term_shift == pytest.approx(theirs.term_shift, abs=1e-5)
        assert mine.term_shift_share == pytest.approx(theirs.term_shift_share, abs=1e-5)
        assert mine.total_shift == pytest.approx(theirs.total_shift, abs=1e-5)
        assert mine.local_shift == pytest.approx(theirs.local_shift, abs=1e-5)
        assert mine.local_embedding == pytest.approx(theirs.local_embedding, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_each_model_is_run_once_over_each_batch(name):
    network, base = tuned(name), edited(tiny_network(name), lambda _: None)
    read = {"tuned": [], "base": []}
    for side, model in (("tuned", network.model), ("base", base.model)):
        model.register_forward_pre_hook(
            lambda _, __, inputs, side=side: read[side].append(len(inputs["input_ids"])),
            with_kwargs=True,
        )

    components_study(network, TEXTS, against=base, batch_size=2)

    constants = [1]
    assert read == {"tuned": [*constants, 2, 2, 1], "base": [*constants, 2, 2, 1]}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bart"])
def test_a_network_against_itself_correlates_fully_and_moves_nowhere(name):
    network = tiny_network(name)
    itself = edited(network, lambda _: None)

    for stack in components_study(network, TEXTS, against=itself).stacks:
        finite = stack.against.correlation[~np.isnan(stack.against.correlation)]
        assert finite == pytest.approx(1.0)
        assert len(finite) >= 9
        assert stack.against.term_shift.max() <= 1e-6
        assert stack.against.total_shift.max() <= 1e-6
        assert stack.against.local_shift.max() <= 1e-6
        assert stack.against.most_edited is None


def test_correlation_is_of_the_ranks_of_both_models_importance():
    network, base = tuned("bert"), tiny_network("bert")

    (stack,) = components_study(network, TEXTS, against=base).stacks

    mine, theirs = token_shares(network, TEXTS), token_shares(base, TEXTS)
    expected = np.corrcoef(rankdata(mine), rankdata(theirs))[0, 1]
    assert stack.against.correlation[3, 1] == pytest.approx(expected, abs=1e-6)


def token_shares(network, texts):
    """Importance of attention at layer 3, token by token."""

    stack = network.stacks[0]
    (batch,) = encoded(network, texts, batch_size=16, max_tokens=64)
    layer = decompose(network, stack, batch, branch_constants(network, stack))[3]
    return importance(layer.terms[:, torch.from_numpy(batch.counted)])[1].numpy()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_shares_of_the_move_sum_to_one_where_something_moved(name):
    (stack,) = components_study(tuned(name), TEXTS, against=tiny_network(name)).stacks

    assert stack.against.term_shift_share.sum(axis=1) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert", {"num_hidden_layers": 2}),
        ("bert", {"hidden_size": 16}),
        ("gpt2", {"n_layer": 2}),
        ("t5", {"num_decoder_layers": 2}),
        ("albert", {"num_hidden_layers": 2}),
    ],
)
def test_networks_of_other_depth_or_width_are_refused(name, change):
    with pytest.raises(StudyError, match="not built alike"):
        components_study(tiny_network(name, **change), TEXTS, against=tiny_network(name))


@pytest.mark.parametrize(
    ("name", "against"),
    [
        ("bert", "gpt2"),
        ("gpt2", "llama"),
        ("bert", "t5"),
        ("t5", "bert"),
    ],
)
def test_another_architecture_is_refused(name, against):
    with pytest.raises(StudyError, match="not built alike"):
        components_study(tiny_network(name), TEXTS, against=tiny_network(against))


def test_networks_that_cut_texts_differently_are_refused():
    other = make_tokenizer()
    other.add_tokens(["singing"])

    with pytest.raises(StudyError, match="cut text '2' into other tokens"):
        components_study(
            speaking(),
            SENTENCES,
            against=dataclasses.replace(speaking(), tokenizer=other, name="other"),
        )


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_the_report_is_strict_json(name):
    document = strict(components_study(tuned(name), TEXTS, against=tiny_network(name)))

    assert document["texts"] == 5
    assert document["tokens"] == 4 + 11 + 7 + 9 + 5 - 5
    assert document["against"] == name
    for stack in document["stacks"].values():
        assert len(stack["local_shift"]) == 3
        assert all(len(row) == len(stack["local_terms"]) for row in stack["local_shift"])
        assert stack["most_edited"]["term"] in stack["local_terms"]
    assert all(math.isfinite(number) for number in numbers(document))


def test_a_correlation_that_is_not_defined_is_null():
    document = strict(components_study(tuned("gpt2"), TEXTS, against=tiny_network("gpt2")))

    assert document["stacks"]["decoder"]["correlation"][0] == [None] * 4


def test_a_report_of_one_network_has_nothing_to_compare():
    document = strict(components_study(tiny_network("bert"), TEXTS))

    assert document["against"] is None
    assert "local_shift" not in document["stacks"]["encoder"]


@pytest.mark.parametrize(
    ("name", "absent"),
    [("llama", ("bias",)), ("t5", ("bias",)), ("bert", ()), ("gpt2", ()), ("llama, biases", ())],
)
def test_a_term_that_nothing_makes_is_reported_absent(name, absent):
    for stack in components_study(tiny_network(name), TEXTS).stacks:
        assert stack.absent == absent


def test_special_tokens_count_only_where_they_are_asked_for():
    network = speaking()

    without = components_study(network, SENTENCES)
    kept = components_study(network, SENTENCES, keep_special=True)
    first = components_study(network, SENTENCES, keep_special=True, keep_first=True)

    assert kept.n_tokens == without.n_tokens + len(SENTENCES)
    assert first.n_tokens == without.n_tokens + 2 * len(SENTENCES)
    assert (without.keep_special, kept.keep_special) == (False, True)
    assert kept.to_json()["special_tokens"] is True
    assert not np.allclose(kept.stacks[0].importance, without.stacks[0].importance)


def test_texts_that_leave_no_token_are_refused():
    with pytest.raises(StudyError, match="leave no token"):
        components_study(tiny_network("bert"), make_texts(1, 1))


def test_a_batch_without_a_token_that_counts_changes_nothing():
    network = tiny_network("bert")

    report = components_study(network, (*make_texts(1), *TEXTS), batch_size=1)

    assert report.n_tokens == components_study(network, TEXTS).n_tokens
    assert report.stacks[0].importance == pytest.approx(
        components_study(network, TEXTS).stacks[0].importance, abs=1e-5
    )


def test_a_network_whose_terms_do_not_add_up_is_refused():
    network = edited(tiny_network("gpt2"), lambda _: None)
    network.model.h[1].mlp.register_forward_hook(lambda _, __, output: 1.5 * output)

    with pytest.raises(StudyError, match="differ from the hidden state"):
        components_study(as_network(network.model, "odd"), TEXTS)


def test_a_token_whose_embedding_is_zero_leaves_every_number_finite():
    base = edited(tiny_network("llama"), lambda model: model.embed_tokens.weight[7].zero_())
    network = edited(base, lambda model: perturb(model.layers, by=0.02))

    document = strict(components_study(network, (Text("5 7 9 11", "", "1"),), against=base))

    stack = document["stacks"]["decoder"]
    assert None not in stack["total_shift"]
    assert all(None not in row for row in stack["local_shift"])


def test_a_network_that_gives_nan_is_refused():
    network = edited(
        tiny_network("bert"),
        lambda model: model.encoder.layer[1].output.dense.weight[0].fill_(float("nan")),
    )

    with pytest.raises(StudyError, match=r"^[^:]+: hidden state 2 holds NaN"):
        components_study(network, TEXTS)
