"""Attention by head: against values that are taken away, and against the whole term."""

import numpy as np
import pytest
import torch
from tiny_networks import edited, make_texts, one_of_each_structure, perturb, tiny_network

from deltadex.errors import StudyError
from deltadex.study.components import components_study
from deltadex.study.components.decomposition import (
    HeadReads,
    HeadTally,
    Stream,
    Track,
    attention_heads,
    counted_rows,
    decompose,
)
from deltadex.study.network.anatomy import normalisation
from deltadex.study.network.hidden_states import encoded, run_with_hooks

TEXTS = make_texts(6, 9, 12)


def one_batch(network):
    (batch,) = encoded(network, TEXTS, batch_size=3, max_tokens=64)
    return batch


def head_vectors(network, place):
    """The output of each head of one block, (heads, tokens, dim), before any norm behind a sum."""
    stack, batch = network.stacks[0], one_batch(network)
    heads = attention_heads(network, stack)[id(stack.sublayers[place][0].branch)]
    taken = []
    run_with_hooks(network, batch, HeadReads(heads, counted_rows(batch), taken.append).attach())
    return torch.stack([taken[0].vectors(head) for head in range(heads.n_heads)])


def branch_output(network, place):
    """What the attention of one block adds to the stream."""
    sublayer, batch, kept = network.stacks[0].sublayers[place][0], one_batch(network), []
    hook = sublayer.branch.register_forward_hook(lambda _, __, output: kept.append(output))
    run_with_hooks(network, batch, [hook])
    return kept[0].flatten(0, 1)[counted_rows(batch)]


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


def rows_of(weight, start, size):
    weight[start : start + size] = 0


def without_gpt2_values(model, head):
    model.h[0].attn.c_attn.weight[:, 64 + 8 * head : 72 + 8 * head] = 0


def without_neox_values(model, head):
    model.layers[0].attention.query_key_value.weight.view(4, 3, 8, 32)[head, 2] = 0


VALUES = {
    "bert": lambda m, head: rows_of(m.encoder.layer[0].attention.self.value.weight, 8 * head, 8),
    "gpt2": without_gpt2_values,
    "gpt_neox": without_neox_values,
    "llama, biases": lambda m, head: rows_of(m.layers[0].self_attn.v_proj.weight, 8 * head, 8),
    "phi3": lambda m, head: rows_of(m.layers[0].self_attn.qkv_proj.weight, 48 + 8 * head, 8),
}
"""Remove the values of a head; of a pair of heads where values are shared (llama, phi3)."""


@pytest.mark.parametrize("name", VALUES)
def test_a_head_is_what_goes_missing_without_its_values(name):
    network = tiny_network(name)
    vectors, whole = head_vectors(network, 0), branch_output(network, 0)
    shared = len(vectors) // (2 if name in ("llama, biases", "phi3") else 4)

    for group in range(len(vectors) // shared):
        left = edited(network, lambda model, group=group: VALUES[name](model, group))
        expected = whole - branch_output(left, 0)
        members = vectors[shared * group : shared * (group + 1)]
        assert relative(members.sum(dim=0), expected) <= 1e-5


@pytest.mark.parametrize("name", one_of_each_structure())
def test_heads_sum_to_the_attention_of_their_block_and_of_the_last_layer(name):
    network = tiny_network(name)
    stack, batch = network.stacks[0], one_batch(network)
    stream = Stream.of(network, stack)
    rows = counted_rows(batch)
    tally, layers = HeadTally(attention_heads(network, stack)), []

    def see(layer):
        tally.see(layer)
        layers.append(layer.kept())

    track = Track(stack, stream.constants, see, rows, tally.rescale)
    run_with_hooks(network, batch, (*tally.attach(rows), *track.attach()))
    outputs, last = tally._outputs, layers[-1].terms[1]

    sums = [sum(o.vectors(head) for head in range(4)) for o in outputs]
    assert relative(sum(sums), last) <= 1e-6 * 5
    tally.end_pass()
    assert tally.own.shape == tally.last.shape == (network.n_layers, 4)
    hidden = layers[-1].terms.sum(dim=0)
    expected = ((last * hidden).sum(dim=-1) / hidden.square().sum(dim=-1)).sum()
    assert float(tally.last.sum()) == pytest.approx(float(expected), abs=1e-5 * len(rows))


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma2", "granite"])
def test_the_importance_of_a_head_is_that_of_its_vector_in_its_own_block(name):
    network = tiny_network(name)
    stack, batch = network.stacks[0], one_batch(network)
    rows = counted_rows(batch)

    (found, *_) = components_study(network, TEXTS, heads=True).stacks

    layers = decompose(network, stack, batch, Stream.of(network, stack).constants)
    hidden = layers[1].hidden.flatten(0, 1)[rows]
    vectors = head_vectors(network, 0)
    if name == "bert":
        block = network.model.encoder.layer[0]
        for norm in (block.attention.output.LayerNorm, block.output.LayerNorm):
            sums = []
            hook = norm.register_forward_pre_hook(lambda _, args, sums=sums: sums.append(args[0]))
            run_with_hooks(network, batch, [hook])
            spread = sums[0].flatten(0, 1)[rows].var(dim=-1, correction=0, keepdim=True)
            vectors = vectors * norm.weight / (spread + norm.eps).sqrt()
    shares = (vectors * hidden).sum(dim=-1) / hidden.square().sum(dim=-1)
    assert found.heads.importance[0] == pytest.approx(shares.mean(dim=1).numpy(), abs=1e-6)
    assert found.heads.local_shift is None


def test_an_edit_of_one_heads_query_moves_that_head_alone():
    base = tiny_network("bert")

    def change(model):
        query = model.encoder.layer[1].attention.self.query
        query.weight[16:24] *= 1.5
        query.bias[16:24] *= 1.5

    tuned = edited(base, change)
    (stack,) = components_study(tuned, TEXTS, against=base, heads=True).stacks

    moved = np.argwhere(stack.heads.local_shift > 1e-6).tolist()
    assert moved == [[1, 2]]
    place = stack.against.local_terms.index("attention")
    assert stack.heads.local_shift[1, 2] == pytest.approx(
        stack.against.local_shift[1, place], rel=1e-4
    )


def test_an_edit_of_the_output_matrix_of_one_head_moves_that_head_alone():
    base = tiny_network("gemma2")

    tuned = edited(base, lambda m: m.layers[0].self_attn.o_proj.weight[:, 8:16].mul_(1e-3))
    (stack,) = components_study(tuned, TEXTS, against=base, heads=True).stacks

    # the norm behind the matrix scales all heads, so the others move too, but less
    assert stack.heads.local_shift[0].argmax() == 1
    assert stack.heads.local_shift[1:].max() <= 1e-6


def test_batches_change_no_head():
    base = tiny_network("t5")
    tuned = edited(base, lambda model: perturb(model, by=0.02, seed=1))

    one, other = (
        components_study(tuned, TEXTS, against=base, heads=True, batch_size=size).stacks
        for size in (1, 3)
    )

    for mine, theirs in zip(one, other, strict=True):
        for part in ("importance", "importance_last", "local_shift"):
            assert getattr(mine.heads, part) == pytest.approx(getattr(theirs.heads, part), abs=1e-5)


def test_attention_with_a_bias_before_a_norm_cannot_be_split():
    network = edited(tiny_network("gemma2", attention_bias=True), lambda _: None)

    with pytest.raises(StudyError, match="'gemma2' cannot be split by head: its norm also reads"):
        components_study(network, TEXTS, heads=True)


def test_sinks_keep_the_values_biases_in_their_heads():
    network = tiny_network("gpt_oss")
    block = network.model.layers[0].self_attn

    vectors, whole = head_vectors(network, 0), branch_output(network, 0)

    assert relative(vectors.sum(dim=0), whole - block.o_proj.bias) <= 1e-6
    assert normalisation(network.model.layers[0].input_layernorm)[1] is None
