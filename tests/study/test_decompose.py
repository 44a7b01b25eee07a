"""Terms against the hidden states, and against a second reading of their definitions."""

import functools
import json
from importlib.resources import files

import pytest
import tiny_networks
import torch
from torch import nn

from deltadex.errors import StudyError
from deltadex.study.components.decomposition import branch_constants, decompose, term_shifts
from deltadex.study.network.anatomy import find_stacks
from deltadex.study.network.hidden_states import encoded

PADDED = tiny_networks.make_texts(5, 9, 12)


def one_batch(network):
    (batch,) = encoded(network, PADDED, batch_size=3, max_tokens=64, keep_first=True)
    return batch


@functools.cache
def decomposed(network, place=0):
    """(layers of one stream, kept tokens)."""
    stack, batch = network.stacks[place], one_batch(network)
    layers = decompose(network, stack, batch, branch_constants(network, stack))
    return layers, torch.from_numpy(batch.counted)


def test_every_architecture_of_the_table_has_a_network_here():
    table = json.loads(files("deltadex.study.network").joinpath("anatomy.json").read_text("utf-8"))

    known = {kind for entry in table.values() for kind in entry["types"]}
    assert {name.split(",")[0] for name in tiny_networks.CONFIGS} == known


@pytest.mark.parametrize("name", tiny_networks.one_of_each_structure())
def test_terms_sum_to_every_hidden_state_and_the_last_is_what_the_model_gives(name):
    network = tiny_networks.tiny_network(name)
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
        assert (
            tiny_networks.relative(behind(layers[-1].hidden[kept]), given[stack.name][kept]) <= 1e-6
        )
        for one in layers:
            missed = (one.terms.sum(dim=0) - one.hidden)[kept].norm(dim=-1)
            assert float((missed / one.hidden[kept].norm(dim=-1)).max()) <= 1e-5


def test_the_bias_term_of_a_raw_stream_is_the_sum_of_the_blocks_constants():
    network = tiny_networks.tiny_network("gpt2")

    layers, kept = decomposed(network)

    expected = torch.zeros(32)
    for block, one in zip(network.stacks[0].blocks, layers[1:], strict=False):
        values, out = block.attn.c_attn.bias[64:], block.attn.c_proj
        expected = expected + values @ out.weight + out.bias + block.mlp.c_proj.bias
        found = one.terms[-1][kept]
        assert tiny_networks.relative(found, expected.expand_as(found)) <= 1e-5


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
        variance = stream.var(dim=-1, correction=0, keepdim=True)
        products.insert(0, products[0] * norm.weight / (variance + norm.eps).sqrt())
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
    network = tiny_networks.tiny_network("bert")

    expected = closed_form(network, one_batch(network))

    layers, kept = decomposed(network)
    for found, term in zip(layers[-1].terms, expected, strict=True):
        assert tiny_networks.relative(found[kept], term[kept]) <= 1e-5


def test_an_option_that_changes_the_stream_and_a_model_without_the_tables_modules_are_refused():
    option = "apply_residual_connection_post_layernorm"
    with pytest.raises(StudyError, match=f"'bloom' with {option}=.* is not supported"):
        find_stacks(nn.Module(), tiny_networks.tiny_config("bloom", **{option: True}))
    with pytest.raises(StudyError, match="this 'bert' model is built differently"):
        find_stacks(nn.Module(), tiny_networks.tiny_config("bert"))


def test_term_shifts_are_distances_and_signed_shares_of_the_move():
    base, tuned = torch.randn((2, 4, 50, 8), generator=torch.Generator().manual_seed(0))

    distance, share = term_shifts(tuned, base)

    moved = tuned - base
    whole = moved.sum(dim=0)
    ratio = moved.norm(dim=-1) / base.sum(dim=0).norm(dim=-1)
    assert torch.allclose(distance, ratio)
    assert torch.allclose(share.sum(dim=0), torch.ones(50), atol=1e-5)
    assert torch.allclose(share[0], (moved[0] * whole).sum(-1) / whole.norm(dim=-1) ** 2, atol=1e-5)
    assert not any(part.any() for part in term_shifts(base, base))
