"""Edits of one component, found where they were made and nowhere else."""

import numpy as np
import pytest
from tiny_networks import edited, make_texts, one_of_each_structure, perturb, scale, tiny_network

from deltadex.study.components import components_study

pytestmark = pytest.mark.slow

TEXTS = make_texts(6, 9)
ZERO = 1e-6

FOUR_LAYERS = {
    "bert": {"num_hidden_layers": 4},
    "llama, biases": {"num_hidden_layers": 4},
    "gpt_neox": {"num_hidden_layers": 4},
    "t5": {"num_layers": 4, "num_decoder_layers": 4},
}
"""A network that normalises after adding, one that does before, one with parallel sub-layers,
one with an encoder and a decoder."""


def compared(name, change):
    """Each stream of an edited copy beside the network."""
    base = tiny_network(name, **FOUR_LAYERS[name])
    return components_study(edited(base, change), TEXTS, against=base).stacks


def edits(stack):
    """{(layer, term): local shift} of what is not zero."""
    local = stack.against.local_shift
    return {
        (int(block), stack.against.local_terms[term]): local[block, term]
        for block, term in np.argwhere(local > ZERO)
    }


def interleaved(parameter, part):
    """The rows of queries (0), keys (1) or values (2) of a GPT-NeoX projection."""
    return parameter.view(4, 3, 8, -1)[:, part]


QUERY_OF_LAYER_3 = {
    "bert": lambda model: scale(model.encoder.layer[2].attention.self.query),
    "llama, biases": lambda model: scale(model.layers[2].self_attn.q_proj),
    "gpt_neox": lambda model: [
        interleaved(parameter, 0).mul_(1.3)
        for parameter in model.layers[2].attention.query_key_value.parameters()
    ],
    "t5": lambda model: scale(model.encoder.block[2].layer[0].SelfAttention.q),
}

INSIDE_A_FEED_FORWARD = [
    ("bert", 1, lambda model: model.encoder.layer[1].intermediate.dense.weight),
    ("llama, biases", 0, lambda model: model.layers[0].post_attention_layernorm.weight),
    ("gpt_neox", 0, lambda model: model.layers[0].mlp.dense_h_to_4h.bias),
    ("t5", 0, lambda model: model.encoder.block[0].layer[1].layer_norm.weight),
]
"""Its weights, its inner biases, and the norm before it, with their layer."""


def scale_bert_constants(model):
    for block in model.encoder.layer:
        for part in (block.attention.output, block.output):
            part.dense.bias.mul_(1.3)
            scale(part.LayerNorm)
        block.attention.self.value.bias.mul_(1.3)


def scale_llama_constants(model):
    for block in model.layers:
        for part in (block.self_attn.v_proj, block.self_attn.o_proj, block.mlp.down_proj):
            part.bias.mul_(1.3)


def scale_neox_constants(model):
    for block in model.layers:
        interleaved(block.attention.query_key_value.bias, 2).mul_(1.3)
        block.attention.dense.bias.mul_(1.3)
        block.mlp.dense_4h_to_h.bias.mul_(1.3)


CONSTANTS = {
    "bert": scale_bert_constants,
    "llama, biases": scale_llama_constants,
    "gpt_neox": scale_neox_constants,
}


@pytest.mark.parametrize("name", FOUR_LAYERS)
def test_one_query_is_found_while_every_later_term_moves(name):
    first, *others = compared(name, QUERY_OF_LAYER_3[name])

    found = edits(first)
    shift = dict(zip(first.terms, first.against.term_shift.T, strict=True))
    assert list(found) == [(2, "attention")]
    assert found[2, "attention"] > 1e-4
    assert first.against.most_edited == {"layer": 2, "term": "attention"}
    assert first.against.local_embedding <= ZERO
    assert shift["attention"][:3].max() <= ZERO
    assert shift["attention"][3:].min() > 1e-4
    assert shift["feed_forward"][4] > 1e-4
    assert all(not edits(stack) and stack.against.local_embedding <= ZERO for stack in others)


def test_an_edit_reaches_the_decoder_as_source_and_is_found_where_it_was_made():
    _, reached = compared("t5", QUERY_OF_LAYER_3["t5"])
    encoder, decoder = compared(
        "t5", lambda m: scale(m.decoder.block[2].layer[1].EncDecAttention.v)
    )

    assert reached.against.term_shift[1:, reached.terms.index("source")].min() > 1e-5
    assert not edits(reached)
    assert not edits(encoder)
    assert list(edits(decoder)) == [(2, "source")]


@pytest.mark.parametrize("name", CONSTANTS)
def test_edited_biases_and_norms_behind_a_sum_are_the_bias_term(name):
    (stack,) = compared(name, CONSTANTS[name])

    assert list(edits(stack)) == [(layer, "bias") for layer in range(4)]
    assert stack.against.local_shift.max() > 1e-3
    assert stack.against.local_embedding <= ZERO


@pytest.mark.parametrize(("name", "layer", "parameter"), INSIDE_A_FEED_FORWARD)
def test_an_edited_feed_forward_is_found_with_inner_biases_and_the_norm_before_it(
    name, layer, parameter
):
    first, *others = compared(name, lambda model: parameter(model).mul_(1.3))

    assert list(edits(first)) == [(layer, "feed_forward")]
    assert first.against.most_edited == {"layer": layer, "term": "feed_forward"}
    assert first.against.local_embedding <= ZERO
    assert not any(edits(stack) for stack in others)


def shift_of(tuned, base):
    """{term: local shift by block} of the first stream."""
    stack = components_study(tuned, TEXTS, against=base).stacks[0]
    return dict(zip(stack.against.local_terms, stack.against.local_shift.T, strict=True))


@pytest.mark.parametrize("name", one_of_each_structure())
def test_edited_attention_of_every_architecture_is_found_in_its_layer(name):
    base = tiny_network(name)
    layers = base.stacks[0].sublayers
    place = min(1, len(layers) - 1)
    path = next(p for p, m in base.model.named_modules() if m is layers[place][0].module)

    shift = shift_of(edited(base, lambda m: perturb(m.get_submodule(path), by=0.1)), base)

    blocks = np.arange(base.n_layers)
    edit = blocks >= 0 if name == "albert" else blocks == place
    assert shift["attention"][edit].min() > 1e-3
    assert shift["attention"][~edit].max(initial=0) <= ZERO
    assert shift["bias"][~edit].max(initial=0) <= ZERO
    assert shift["feed_forward"].max() <= ZERO
