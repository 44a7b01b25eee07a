"""Fused layouts, measured: which rows act as queries, keys and values in the live module.

Nothing is read from the modules' code. At one position a fused output row is pushed, and
what moves is watched. A softmax over a single key is 1, so at length one only values show;
at length three, a push at the first position moves the others only through its key.
"""

from dataclasses import replace

import pytest
import torch
from tiny_models import saved

from deltadex.indexer.architecture import place
from deltadex.indexer.architecture.fused import AttentionConfig, Fused, split_rows

PUSH = 20.0
QUERY_KEY_VALUE = "h.1.self_attention.query_key_value"
FUSED_ATTENTION = {
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gpt_bigcode:mha"), "h.1.attn.c_attn"),
    "mpt": "blocks.1.attn.Wqkv",
    "modernbert": "layers.1.attn.Wqkv",
    "phi3": "layers.1.self_attn.qkv_proj",
    "codegen": "h.1.attn.qkv_proj",
    "gpt_neox": "layers.1.attention.query_key_value",
    **dict.fromkeys(("bloom", "falcon", "falcon:new", "falcon:mha"), QUERY_KEY_VALUE),
    "deberta": "encoder.layer.1.attention.self.in_proj",
    "deepseek_v3": "layers.1.self_attn.kv_b_proj",
}
GATED = {"phi3": "layers.1.mlp.gate_up_proj", "modernbert": "layers.1.mlp.Wi"}


def exact(variant):
    """The live model in float64, which the kernels for grouped experts do not take."""
    model = saved(variant).model.double()
    model.set_experts_implementation("eager")
    return model


def moved_positions(variant, module, length):
    """Whether a push of each row at position 0 moves each position: (rows, length)."""
    model = exact(variant)
    rows = fused_rows(variant, module)
    tokens = torch.arange(5, 5 + length).repeat(rows + 1, 1)

    def push(_module, _inputs, output):
        pushed = output.clone()
        by_position = pushed.view(len(pushed), -1, pushed.shape[-1])
        by_position[torch.arange(rows), 0, torch.arange(rows)] += PUSH
        return pushed

    handle = model.get_submodule(module).register_forward_hook(push)
    with torch.no_grad():
        hidden = model(input_ids=tokens).last_hidden_state
    handle.remove()
    return (hidden[:-1] - hidden[-1]).abs().amax(dim=-1) > 1e-5


def fused_rows(variant, module):
    shape = saved(variant).shapes[f"{module}.weight"]
    return max(shape) if "c_attn" in module else shape[0]


@pytest.mark.parametrize(("variant", "module"), FUSED_ATTENTION.items())
def test_each_row_acts_as_the_role_it_is_given(variant, module):
    placed = place(saved(variant).shapes, saved(variant).config)
    said = {}
    for p in placed.placements:
        if p.module == module:
            numbers = torch.arange(fused_rows(variant, module))
            said |= dict.fromkeys(p.cut_rows(numbers).tolist(), p.slot.role)

    is_value = moved_positions(variant, module, 1)[:, 0]
    moves_others = moved_positions(variant, module, 3)[:, 1:].any(dim=1)

    measured = zip(is_value.tolist(), moves_others.tolist(), strict=True)
    roles = ["v" if value else "k" if others else "q" for value, others in measured]
    assert said == dict(enumerate(roles))


@pytest.mark.parametrize(("variant", "module"), GATED.items())
def test_rows_called_up_enter_linearly_and_rows_called_gate_do_not(variant, module):
    model = exact(variant)
    rows = fused_rows(variant, module)
    inputs = torch.randn(32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def output(size):
        """What the block gives, with row r pushed in batch r: (rows, hidden)."""
        pushes = size * torch.eye(rows, dtype=inputs.dtype)[:, None, :]
        handle = model.get_submodule(module).register_forward_hook(lambda _m, _i, out: out + pushes)
        with torch.no_grad():
            result = model.get_submodule(module.rpartition(".")[0])(inputs.repeat(rows, 1, 1))
        handle.remove()
        return result[:, 0]

    results = [output(size) for size in (0.0, PUSH, 2 * PUSH)]

    bent = (results[2] - 2 * results[1] + results[0]).abs().amax(dim=-1) > 1e-9
    said = torch.zeros(rows, dtype=torch.bool)
    for p in place(saved(variant).shapes, None).placements:
        if p.module == module and p.slot.role == "gate":
            said[p.rows] = True
    assert said.tolist() == bent.tolist()


def test_gpt_oss_columns_called_up_enter_linearly_and_columns_called_gate_do_not():
    experts = exact("gpt_oss").get_submodule("layers.1.mlp.experts")
    hidden = torch.randn(1, 32, generator=torch.Generator().manual_seed(0)).double()
    chosen, weights = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1).double()

    def output(column, size):
        bias = experts.get_parameter("gate_up_proj_bias")
        with torch.no_grad():
            bias[0, column] += size
            result = experts(hidden, chosen, weights)
            bias[0, column] -= size
        return result

    def bends(column):
        change = output(column, 2.0) - 2 * output(column, 1.0) + output(column, 0.0)
        return bool(change.abs().max() > 1e-9)

    columns = torch.arange(128)
    placed = place(saved("gpt_oss").shapes, None)
    rows = {
        p.slot.role: p.cut_rows(columns).tolist()
        for p in placed.placements
        if p.tensor == "layers.1.mlp.experts.gate_up_proj" and p.index == 0
    }
    assert rows == {
        "gate": [c for c in range(128) if bends(c)],
        "up": [c for c in range(128) if not bends(c)],
    }


def fused(out, width, **settings):
    return Fused(out=out, width=width, config=AttentionConfig(**settings))


@pytest.mark.parametrize(
    ("split", "matrix"),
    [
        ("per-head", fused(96, 32, n_heads=5)),
        ("per-group", fused(64, 32, n_heads=4, n_kv_heads=3)),
        ("grouped", fused(96, 24)),  # three times something, of no known width
        ("grouped", fused(96, 32, n_heads=4, n_kv_heads=2, head_dim=16)),
        ("per-head", replace(fused(96, 32, n_heads=4), head_rows=64)),
        ("c-attn", replace(fused(80, 32), head_rows=24)),
        ("gate-up", replace(fused(64, 8), inner_rows=64)),
        ("codegen", fused(90, 32)),
        ("gate-up", fused(31, 8)),
        ("multi-query", fused(32, 32)),
        ("latent-kv", fused(64, 8, n_heads=4, nope_dim=8, value_dim=4)),
        ({"bloom": "per-head"}, fused(96, 32, n_heads=4, text_model_type="chatglm")),
    ],
)
def test_a_layout_that_does_not_fit_the_matrix_is_not_guessed(split, matrix):
    assert split_rows(split, matrix) is None


@pytest.mark.parametrize(
    ("name", "variant"), [("RefinedWeb", "falcon:new"), ("RefinedWebModel", "falcon")]
)
def test_falcons_first_names_mean_the_same_layouts(name, variant):
    model = saved(variant)

    first = place(model.shapes, model.config | {"model_type": name})

    assert first.placements == place(model.shapes, model.config).placements


OPENELM = {
    "model_type": "openelm",
    "head_dim": 8,
    "num_query_heads": [6, 12],
    "num_kv_heads": [3, 4],
}


def heads_by_layer(settings):
    """Two layers as OpenELM stores them: query, key and value heads one after the other."""
    shapes = {}
    for layer, (fused_rows, width) in enumerate([(96, 48), (160, 96)]):
        start = f"transformer.layers.{layer}"
        shapes[f"{start}.attn.qkv_proj.weight"] = (fused_rows, 48)
        shapes[f"{start}.attn.out_proj.weight"] = (48, width)
        shapes[f"{start}.ffn.proj_1.weight"] = (192, 48)
        shapes[f"{start}.ffn.proj_2.weight"] = (48, 96)
    return {str(p.slot): p.shape[0] for p in place(shapes, OPENELM | settings).placements}


def test_heads_that_differ_by_layer_are_those_of_the_config_and_whole_if_it_is_anothers():
    rows = heads_by_layer({})

    attention = {slot: n for slot, n in rows.items() if slot[-1] in "qkv"}
    assert attention == {
        **{"decoder.0.q": 48, "decoder.0.k": 24, "decoder.0.v": 24},
        **{"decoder.1.q": 96, "decoder.1.k": 32, "decoder.1.v": 32},
    }
    assert (rows["decoder.0.gate"], rows["decoder.0.up"], rows["decoder.0.down"]) == (96, 96, 48)
    assert heads_by_layer({"num_kv_heads": [4, 4]})["decoder.0.qkv"] == 96


def test_a_pruned_gpt2_is_cut_by_the_width_of_its_output():
    shapes = {"h.0.attn.c_attn.weight": (48, 96), "h.0.attn.c_proj.weight": (32, 48)}

    placed = place(shapes, {"model_type": "gpt2", "n_head": 6})

    assert {p.slot.role: p.shape for p in placed.placements if p.slot.role != "o"} == dict.fromkeys(
        "qkv", (32, 48)
    )
