"""Terms against the hidden states, and each against a second reading of its definition."""

import functools
import json
from importlib.resources import files

import pytest
import torch
from tiny_networks import (
    CONFIGS,
    edited,
    make_texts,
    one_of_each_structure,
    tiny_config,
    tiny_network,
)
from torch import nn

from deltadex.errors import StudyError
from deltadex.study.components.decomposition import (
    branch_constants,
    decompose,
    importance,
    norm_ratios,
    term_shifts,
)
from deltadex.study.network.anatomy import find_stacks
from deltadex.study.network.hidden_states import encoded

PADDED = make_texts(5, 9, 12)


def one_batch(network, texts=PADDED):
    (batch,) = encoded(network, texts, batch_size=len(texts), max_tokens=64, keep_first=True)
    return batch


@functools.cache
def decomposed(network, texts=PADDED, place=0):
    """(layers of one stream, kept tokens)."""
    stack, batch = network.stacks[place], one_batch(network, texts)
    layers = decompose(network, stack, batch, branch_constants(network, stack))
    return layers, torch.from_numpy(batch.counted)


def eager(network):
    """A copy that can give its attention weights."""
    return edited(network, lambda model: model.set_attn_implementation("eager"))


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


def test_every_architecture_of_the_table_has_a_network_here():
    table = json.loads(files("deltadex.study.network").joinpath("anatomy.json").read_text("utf-8"))
    known = {kind for entry in table.values() for kind in entry["types"]}

    tested = {name.split(",")[0] for name in CONFIGS}

    assert tested == known


@pytest.mark.parametrize("name", CONFIGS)
def test_terms_sum_to_the_hidden_state_of_every_token(name):
    network = tiny_network(name)

    for place in range(len(network.stacks)):
        layers, kept = decomposed(network, place=place)
        for one in layers:
            missed = (one.terms.sum(dim=0) - one.hidden)[kept].norm(dim=-1)
            assert float((missed / one.hidden[kept].norm(dim=-1)).max()) <= 1e-5


@pytest.mark.parametrize("name", one_of_each_structure())
def test_every_layer_is_there_and_the_last_is_what_the_model_gives(name):
    network = tiny_network(name)
    batch = one_batch(network)
    with torch.inference_mode():
        output = network.model(**batch.inputs(network))
    given = {"decoder": output.last_hidden_state}
    given["encoder"] = getattr(output, "encoder_last_hidden_state", output.last_hidden_state)
    behind = getattr(getattr(network.model, "decoder", None), "project_out", None) or nn.Identity()

    for place, stack in enumerate(network.stacks):
        layers, kept = decomposed(network, place=place)

        raw = [one.layer for one in layers if not one.normed]
        assert raw == list(range(network.n_layers + 1))
        assert layers[-1].normed == (stack.final_norm is not None)
        assert relative(behind(layers[-1].hidden[kept]), given[stack.name][kept]) <= 1e-6


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_padding_changes_no_term(name):
    network = tiny_network(name)
    layers, _ = decomposed(network)

    for row, text in enumerate(PADDED):
        alone, _ = decomposed(network, (text,))
        for one, padded in zip(alone, layers, strict=True):
            width = one.terms.shape[2]
            assert relative(padded.terms[:, row, :width], one.terms[:, 0]) <= 1e-5


def interleaved(bias):
    """Values of a projection stored head by head, 4 heads of 8 numbers."""
    return bias.view(4, 3, 8)[:, 2].flatten()


def gpt2_biases(block):
    attention, rest = block.attn, block.mlp.c_proj
    return (
        attention.c_attn.bias[64:] @ attention.c_proj.weight + attention.c_proj.bias,
        rest.bias,
    )


def gpt_bigcode_biases(block):
    shared = block.attn.c_attn.bias[40:].repeat(4)
    out = block.attn.c_proj
    return out.weight @ shared + out.bias, block.mlp.c_proj.bias


def grouped_biases(block):
    attention, rest = block.self_attn, block.mlp.down_proj
    values = attention.v_proj.bias.view(2, 8).repeat_interleave(2, dim=0).flatten()
    out = attention.o_proj
    own = 0 if out.bias is None else out.bias
    return out.weight @ values + own, torch.zeros(32) if rest.bias is None else rest.bias


def gpt_neox_biases(block):
    out = block.attention.dense
    values = interleaved(block.attention.query_key_value.bias)
    return out.weight @ values + out.bias, block.mlp.dense_4h_to_h.bias


def bloom_biases(block):
    out = block.self_attention.dense
    values = interleaved(block.self_attention.query_key_value.bias)
    return out.weight @ values + out.bias, block.mlp.dense_4h_to_h.bias


def falcon_biases(block):
    out = block.self_attention.dense
    values = block.self_attention.query_key_value.bias.view(6, 8)[-1].repeat(4)
    return out.weight @ values + out.bias, block.mlp.dense_4h_to_h.bias


def falcon_grouped_biases(block):
    out = block.self_attention.dense
    grouped = block.self_attention.query_key_value.bias.view(2, 4, 8)[:, -1]
    values = grouped.repeat_interleave(2, dim=0).flatten()
    return out.weight @ values + out.bias, block.mlp.dense_4h_to_h.bias


BIASES = {
    "gpt2": gpt2_biases,
    "gpt_bigcode": gpt_bigcode_biases,
    "qwen2": grouped_biases,
    "llama, biases": grouped_biases,
    "gpt_neox": gpt_neox_biases,
    "gpt_neox, sequential": gpt_neox_biases,
    "bloom": bloom_biases,
    "falcon": falcon_biases,
    "falcon, sequential": bloom_biases,
    "falcon, grouped": falcon_grouped_biases,
}
"""(W_o b_v + b_o, b_2) of one block, read off its parameters, by name of the network."""


@pytest.mark.parametrize("name", BIASES)
def test_the_bias_term_of_a_raw_stream_is_the_sum_of_the_blocks_constants(name):
    network = tiny_network(name)

    layers, kept = decomposed(network)

    expected = torch.zeros(32)
    for block, one in zip(network.stacks[0].blocks, layers[1:], strict=False):
        expected = expected + sum(BIASES[name](block))
        found = one.terms[-1][kept]
        assert relative(found, expected.expand_as(found)) <= 1e-5


VALUE_BIAS = {
    "gpt2": lambda model: model.h[0].attn.c_attn.bias[64:],
    "qwen2": lambda model: model.layers[0].self_attn.v_proj.bias,
}


@pytest.mark.parametrize("name", VALUE_BIAS)
def test_a_value_bias_moves_the_first_layers_bias_term_and_not_its_attention(name):
    network = tiny_network(name)
    without = edited(network, lambda model: VALUE_BIAS[name](model).zero_())

    with_it, kept = decomposed(network)
    layers, _ = decomposed(without)

    first, _ = BIASES[name](network.stacks[0].blocks[0])
    rest, _ = BIASES[name](without.stacks[0].blocks[0])
    moved = (with_it[1].terms - layers[1].terms)[:, kept]
    assert relative(layers[1].terms[1][kept], with_it[1].terms[1][kept]) <= 1e-5
    assert relative(moved[-1], (first - rest).expand_as(moved[-1])) <= 1e-5


def heads(values):
    """(texts, tokens, dim) as (texts, heads, tokens, 8)."""
    return values.unflatten(-1, (4, 8)).transpose(1, 2)


def mixed(weights, values):
    """Σ_u α_tu v_u of all heads, side by side."""
    return (weights @ heads(values)).transpose(1, 2).flatten(2)


@torch.inference_mode()
def test_attention_of_the_first_layer_of_gpt2_is_recomputed_from_its_weights():
    network = eager(tiny_network("gpt2"))
    layers, kept = decomposed(network)
    batch, block = one_batch(network), network.stacks[0].blocks[0]
    output = network.model(
        **batch.inputs(network), output_attentions=True, output_hidden_states=True
    )

    values = block.ln_1(output.hidden_states[0]) @ block.attn.c_attn.weight[:, 64:]
    expected = mixed(output.attentions[0], values) @ block.attn.c_proj.weight

    assert relative(layers[1].terms[1][kept], expected[kept]) <= 1e-5


@torch.inference_mode()
def test_attention_of_the_first_layer_of_bert_is_recomputed_from_its_weights():
    network = eager(tiny_network("bert"))
    layers, kept = decomposed(network)
    batch, block = one_batch(network), network.stacks[0].blocks[0]
    output = network.model(
        **batch.inputs(network), output_attentions=True, output_hidden_states=True
    )
    own, out = block.attention.self, block.attention.output

    stream = output.hidden_states[0]
    term = mixed(output.attentions[0], stream @ own.value.weight.T) @ out.dense.weight.T
    stream = stream + term + out.dense.weight @ own.value.bias + out.dense.bias
    term = term * gain_over_spread(out.LayerNorm, stream)
    stream = out.LayerNorm(stream)
    stream = stream + block.output.dense(block.intermediate(stream))
    term = term * gain_over_spread(block.output.LayerNorm, stream)

    assert relative(block.output.LayerNorm(stream)[kept], output.hidden_states[1][kept]) <= 1e-5
    assert relative(layers[1].terms[1][kept], term[kept]) <= 1e-5


def gain_over_spread(norm, stream):
    variance = stream.var(dim=-1, correction=0, keepdim=True)
    return norm.weight / (variance + norm.eps).sqrt()


def closed_form(network, batch):
    """The four terms after the last layer of a BERT, as sums of products over sub-layers.

    G_λ = ⊙ g_λ'/s_λ' over λ' ≥ λ; i = G_0 x_0; h and f = Σ G_λ (o_λ − constant);
    c = Σ G_{λ+1} b_λ − G_λ m_λ + G_λ constant.
    """
    model = network.model
    norms, branches, constants = [model.embeddings.LayerNorm], [], []
    for block in model.encoder.layer:
        out, rest = block.attention.output, block.output
        norms += [out.LayerNorm, rest.LayerNorm]
        branches += [out.dense, rest.dense]
        constants += [
            out.dense.weight @ block.attention.self.value.bias + out.dense.bias,
            rest.dense.bias,
        ]
    sums, outputs, hooks = [], [], []
    for norm in norms:
        hooks.append(norm.register_forward_pre_hook(lambda _, args: sums.append(args[0])))
    for branch in branches:
        hooks.append(branch.register_forward_hook(lambda _, __, output: outputs.append(output)))
    model(**batch.inputs(network))
    for hook in hooks:
        hook.remove()

    products = [torch.ones_like(sums[0])]
    for norm, stream in zip(reversed(norms), reversed(sums), strict=True):
        products.insert(0, products[0] * gain_over_spread(norm, stream))
    biases = torch.zeros_like(sums[0])
    for place, (norm, stream) in enumerate(zip(norms, sums, strict=True)):
        biases += products[place + 1] * norm.bias
        biases -= products[place] * stream.mean(dim=-1, keepdim=True)
    own = {0: torch.zeros_like(sums[0]), 1: torch.zeros_like(sums[0])}
    for place, (output, constant) in enumerate(zip(outputs, constants, strict=True)):
        own[place % 2] += products[place + 1] * (output - constant)
        biases += products[place + 1] * constant
    return torch.stack([products[0] * sums[0], own[0], own[1], biases])


@torch.inference_mode()
def test_the_terms_of_bert_are_those_of_the_closed_form():
    network = tiny_network("bert")

    expected = closed_form(network, one_batch(network))

    layers, kept = decomposed(network)
    for found, term in zip(layers[-1].terms, expected, strict=True):
        assert relative(found[kept], term[kept]) <= 1e-5


@pytest.mark.parametrize("name", ["llama", "mistral", "t5", "phi3"])
def test_networks_without_biases_have_no_bias_term(name):
    layers, _ = decomposed(tiny_network(name))

    assert all(not one.terms[-1].any() for one in layers)


def test_a_decoder_that_reads_an_encoder_has_a_source_term():
    network = tiny_network("bart")

    layers, kept = decomposed(network, place=1)

    assert network.stacks[0].terms == ("input", "attention", "feed_forward", "bias")
    assert network.stacks[1].terms == ("input", "attention", "source", "feed_forward", "bias")
    assert all(float(one.terms[2][kept].norm()) > 0 for one in layers[1:])
    assert not layers[0].terms[2].any()


def test_the_first_layer_is_all_input_where_no_norm_follows_the_embeddings():
    layers, kept = decomposed(tiny_network("gpt2"))

    assert torch.equal(layers[0].terms[0][kept], layers[0].hidden[kept])
    assert not layers[0].terms[1:].any()


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("bloom", {"apply_residual_connection_post_layernorm": True}),
    ],
)
def test_an_option_that_changes_the_stream_is_refused_by_name(name, option):
    config = tiny_config(name, **option)

    with pytest.raises(StudyError, match=f"'{name}' with {next(iter(option))}=.* is not supported"):
        find_stacks(nn.Module(), config)


def test_a_model_that_lacks_the_tables_modules_is_refused():
    with pytest.raises(StudyError, match="this 'bert' model is built differently"):
        find_stacks(nn.Module(), tiny_config("bert"))


def test_albert_of_several_groups_is_decomposed_in_full():
    layers, _ = decomposed(tiny_network("albert", num_hidden_groups=3))

    assert [one.layer for one in layers] == [0, 1, 2, 3]


def random_terms(seed=0):
    return torch.randn((4, 50, 8), generator=torch.Generator().manual_seed(seed))


def test_importance_is_the_share_of_a_term_along_the_hidden_state():
    terms = random_terms()

    shares = importance(terms)

    hidden = terms.sum(dim=0)
    for term in range(4):
        for token in range(50):
            expected = terms[term, token] @ hidden[token] / (hidden[token] @ hidden[token])
            assert shares[term, token] == pytest.approx(float(expected), abs=1e-5)
    assert torch.allclose(shares.sum(dim=0), torch.ones(50), atol=1e-5)


def test_a_hidden_state_of_zero_has_importance_and_ratios_of_zero():
    terms = torch.tensor([[[1.0, 2.0]], [[-1.0, -2.0]]])

    assert not importance(terms).any()
    assert not norm_ratios(terms).any()


def test_term_shifts_are_distances_and_signed_shares_of_the_move():
    base, tuned = random_terms(), random_terms(1)

    distance, share = term_shifts(tuned, base)

    moved = tuned - base
    whole = moved.sum(dim=0)
    ratio = moved.norm(dim=-1) / base.sum(dim=0).norm(dim=-1)
    assert torch.allclose(distance, ratio)
    assert torch.allclose(share.sum(dim=0), torch.ones(50), atol=1e-5)
    assert torch.allclose(share[0], (moved[0] * whole).sum(-1) / whole.norm(dim=-1) ** 2, atol=1e-5)


def test_terms_that_did_not_move_have_no_shift_and_no_share():
    distance, share = term_shifts(random_terms(), random_terms())

    assert not distance.any()
    assert not share.any()
