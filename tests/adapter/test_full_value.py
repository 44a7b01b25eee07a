"""Whole weights beside an adapter: modules_to_save and what wrappers leave over."""

import peft
import pytest
import torch
from peft_adapters import (
    MemoryCheckpoint,
    assert_same_updates,
    dense,
    make_adapter,
    read_folder,
)

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter

LORA = {"h.0.q.lora_A.weight": torch.ones(1, 4), "h.0.q.lora_B.weight": torch.ones(4, 1)}


@pytest.mark.parametrize(
    ("kind", "target", "saved"),
    [
        ("bert", "query", "intermediate.dense"),
        ("gpt2", "c_attn", "mlp.c_fc"),
        ("gpt2", "c_attn", "attn.c_proj"),
    ],
)
def test_saved_modules_equal_the_merged_weights(kind, target, saved, tmp_path):
    task = "SEQ_CLS" if kind == "bert" else None
    config = peft.LoraConfig(r=2, target_modules=[target], modules_to_save=[saved], task_type=task)
    merged = make_adapter(kind, config, tmp_path)

    adapter = read_folder(tmp_path)

    assert len(adapter.full_values) == 2 + (kind == "bert")
    assert adapter.full_values.keys() == adapter.needs_base
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.h.0.k.weight",
        "base_model.model.h.0.k.modules_to_save.weight",
        "base_model.model.h.0.k.modules_to_save.default.weight",
        "base_model.model.h.0.modules_to_save.default.k.weight",
        "base_model.model.h.0.k.base_layer.weight",
    ],
)
def test_every_spelling_of_a_saved_module_is_the_same_module(name):
    adapter = read_adapter(MemoryCheckpoint({**LORA, name: torch.eye(4)}), {"lora_alpha": 1})

    assert adapter.full_values == {"h.0.k": name}
    assert dense(adapter.delta("h.0.k", torch.zeros(4, 4))).tolist() == torch.eye(4).tolist()


@pytest.mark.parametrize("leftover", ["h.0.q.base_layer.weight", "h.0.q.original_module.weight"])
def test_a_frozen_copy_beside_lora_is_set_aside_with_a_note(leftover):
    adapter = read_adapter(
        MemoryCheckpoint({**LORA, leftover: torch.ones(4, 4)}), {"lora_alpha": 1}
    )

    assert adapter.full_values == {}
    assert adapter.needs_base == frozenset()
    assert any("not read" in note for note in adapter.notes)


def test_a_quantised_leftover_is_no_full_value():
    quantised = {"h.0.k.weight": torch.ones(8, 1, dtype=torch.uint8)}

    adapter = read_adapter(MemoryCheckpoint({**LORA, **quantised}), {"lora_alpha": 1})

    assert adapter.full_values == {}


def test_a_square_matrix_is_turned_the_way_that_leaves_the_smaller_update():
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    stored = (weight + 0.01).T.contiguous()

    adapter = read_adapter(MemoryCheckpoint({"h.0.k.weight": stored}), None)

    torch.testing.assert_close(
        dense(adapter.delta("h.0.k", weight)), torch.full((4, 4), 0.01), rtol=0, atol=1e-6
    )


def test_a_frozen_weight_stored_in_a_shorter_type_has_no_update():
    weight = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))

    adapter = read_adapter(MemoryCheckpoint({"h.0.k.weight": weight.bfloat16()}), None)

    assert adapter.delta("h.0.k", weight).norm == 0.0


@pytest.mark.parametrize(
    ("value", "code"), [(torch.ones(3, 3), "shape-mismatch"), (torch.nan, "non-finite")]
)
def test_a_full_value_that_does_not_fit_is_refused(value, code):
    stored = value if isinstance(value, torch.Tensor) else torch.full((4, 6), value)
    adapter = read_adapter(MemoryCheckpoint({"h.0.k.weight": stored}), None)

    with pytest.raises(ModelError, match=r"h\.0\.k\.weight") as caught:
        adapter.delta("h.0.k", torch.ones(4, 6))

    assert caught.value.code == code
