"""Tensor names of all spellings, and those that cannot be trusted."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft_adapters import in_memory

from deltadex.errors import ModelError
from deltadex.indexer.adapter import SET_ASIDE, SPELLINGS, read_adapter
from deltadex.indexer.delta import dense

PEFT = "base_model.model."
PATH = "layers.0.self_attn.q_proj"
FSDP = "_fsdp_wrapped_module.layers.0._checkpoint_wrapped_module.self_attn.q_proj"


def pair(a, b):
    return {a: torch.ones(2, 4), b: torch.ones(5, 2)}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (f"{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PATH}.lora_B.weight"),
        (f"{PEFT}{PATH}.lora_A.my-run_2.weight", f"{PEFT}{PATH}.lora_B.my-run_2.weight"),
        (f"{PEFT}{PATH}.lora_A.default", f"{PEFT}{PATH}.lora_B.default"),
        (f"{PATH}.lora_down.weight", f"{PATH}.lora_up.weight"),
        (f"{PEFT}{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PEFT}{PATH}.lora_B.weight"),
        (f"module.{PEFT}{PATH}.lora_A.weight", f"module.{PEFT}{PATH}.lora_B.weight"),
        (f"{PEFT}{FSDP}.lora_A.weight", f"{PEFT}{FSDP}.lora_B.weight"),
        (f"{PEFT}{PATH}.base_layer.lora_A.weight", f"{PEFT}{PATH}.base_layer.lora_B.weight"),
    ],
)
def test_every_spelling_is_the_same_module(a, b):
    adapter = read_adapter(in_memory(pair(a, b)), {"lora_alpha": 2})

    assert adapter.modules == {PATH: (5, 4)}
    assert adapter.tensors_of(PATH) == (a, b)
    assert dense(adapter.delta(PATH, None)).tolist() == [[2.0] * 4] * 5


@pytest.mark.parametrize("config", [None, {"lora_alpha": 16}])
def test_kohyas_own_alpha_wins(config):
    tensors = pair(f"{PATH}.lora_down.weight", f"{PATH}.lora_up.weight")
    tensors[f"{PATH}.alpha"] = torch.tensor(1.0)

    adapter = read_adapter(in_memory(tensors), config)

    assert dense(adapter.delta(PATH, None))[0, 0] == 1.0
    assert not any("scale 1" in note for note in adapter.notes)


@pytest.mark.parametrize(
    "names",
    [
        ("lora_te_text_model_layers_0_q_proj.lora_down.weight",),
        ("lycoris_layers_0_q_proj.hada_w1_a",),
        (f"{PEFT}{PATH}.lora_A.one.weight", f"{PEFT}{PATH}.lora_A.two.weight"),
        (f"{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PATH}.base_layer.lora_A.weight"),
        (f"{PEFT}layers.0.mlp.experts.base_layer.lora_A.weight",),
        (f"{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PATH}.lora_diag"),
        (f"{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PATH}.lokr_w1"),
        (f"{PEFT}{PATH}.unilora_theta",),
        ("base_model.vblora_vector_bank",),
        ("something.else",),
        (f"{PEFT}{PATH}.lora_a",),
    ],
)
def test_names_without_a_certain_meaning_are_refused(names):
    tensors = {name: torch.ones(2, 2) for name in names}

    with pytest.raises(ModelError, match=r"^unsupported-adapter: "):
        read_adapter(in_memory(tensors), None)


def test_a_saved_module_counts_whatever_else_is_stored_of_it():
    saved, plain = f"{PEFT}{PATH}.modules_to_save.default.weight", f"{PEFT}{PATH}.weight"
    tensors = {saved: torch.full((5, 4), 3.0), plain: torch.ones(5, 4)}

    adapter = read_adapter(in_memory(tensors), {"peft_type": "LORA", "r": 2})

    assert torch.equal(dense(adapter.delta(PATH, torch.ones(5, 4))), torch.full((5, 4), 2.0))


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        ({f"{PEFT}{PATH}.bias": torch.ones(5)}, "biases (1)"),
        ({f"{PEFT}embed.lora_embedding_A": torch.ones(2, 9)}, "embeddings (1)"),
        ({f"{PEFT}embed.token_adapter.trainable_tokens_delta": torch.ones(3, 4)}, "embeddings (1)"),
        ({f"{PEFT}score.original_module.weight": torch.ones(3, 4)}, "copies"),
        ({f"{PEFT}gate.alpha": torch.ones(1)}, "unknown use (1)"),
        ({f"{PEFT}{PATH}.base_layer.weight.absmax": torch.ones(3)}, "unknown use (1)"),
        (
            pair(f"{PEFT}layers.0.attn.lora_A.weight", f"{PEFT}layers.0.attn.lora_B.weight")
            | {f"{PEFT}layers.0.attn.lora_A.weight": torch.ones(2, 3, 4, 4)},
            "1 convolution not",
        ),
    ],
)
def test_what_is_no_layer_matrix_is_set_aside_with_a_note(extra, note):
    tensors = pair(f"{PEFT}{PATH}.lora_A.weight", f"{PEFT}{PATH}.lora_B.weight") | extra

    adapter = read_adapter(in_memory(tensors), {"lora_alpha": 2})

    assert adapter.modules == {PATH: (5, 4)}
    assert adapter.full_values == {}
    assert any(note in said for said in adapter.notes)


FACTORS = """lora_A lora_B lora_E lora_magnitude_vector alpha hada_w1_a hada_w1_b hada_w2_a
hada_w2_b hada_t1 hada_t2 lokr_w1 lokr_w1_a lokr_w1_b lokr_w2 lokr_w2_a lokr_w2_b lokr_t2 ia3_l
vera_lambda_b vera_lambda_d vera_A vera_B"""
PARTS = [*FACTORS.split(), *SPELLINGS, *SET_ASIDE, "base_layer", "modules_to_save", "default", "q"]
NAMES = st.lists(
    st.sampled_from([*PARTS, "weight", "bias", "base_model", "model", "0", "", "experts"]),
    min_size=1,
    max_size=6,
).map(".".join)
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.uint8])


def outcome(tensors, config):
    """`read` if every delta has the shape that was announced; else the reason's code."""
    try:
        adapter = read_adapter(in_memory(tensors), config)
        for module, (out, width) in adapter.modules.items():
            base = torch.ones(out or 2, width or 2)
            delta = adapter.delta(module, base if module in adapter.needs_base else None)
            if dense(delta).shape != base.shape:
                return "another shape"
    except ModelError as err:
        return err.code
    return "read"


@given(
    tensors=st.dictionaries(NAMES, st.builds(torch.ones, SHAPES, dtype=DTYPES), max_size=6),
    alpha=st.sampled_from([None, 0, 2.5, -8]),
)
def test_any_mixture_of_names_and_shapes_is_read_or_refused(tensors, alpha):
    codes = {"unsupported-adapter", "not-read", "no-weights", "missing-tensor", "shape-mismatch"}
    assert outcome(tensors, {"lora_alpha": alpha}) in {*codes, "read", "unsupported-dtype"}
