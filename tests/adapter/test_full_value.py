"""Whole weights beside an adapter: modules_to_save and what wrappers leave over."""

import peft
import pytest
import torch
from factories import lora_of, write_files
from peft_adapters import assert_same_updates, in_memory, make_adapter, read_folder

from deltadex.errors import ModelError
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.delta import dense
from deltadex.store import Catalog

LORA = {"h.0.q.lora_A.weight": torch.ones(1, 4), "h.0.q.lora_B.weight": torch.ones(4, 1)}


@pytest.mark.parametrize(
    ("kind", "target", "saved"),
    [("bert", "query", "intermediate.dense"), ("gpt2", "c_attn", "attn.c_proj")],
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
        *(f"k{part}.weight" for part in ("", ".modules_to_save", ".base_layer")),
        *("k.modules_to_save.default.weight", "modules_to_save.default.k.weight"),
    ],
)
def test_every_spelling_of_a_saved_module_is_the_same_module(name):
    name = f"base_model.model.h.0.{name}"
    adapter = read_adapter(in_memory({**LORA, name: torch.eye(4)}), {"lora_alpha": 1})

    assert adapter.full_values == {"h.0.k": name}
    assert dense(adapter.delta("h.0.k", torch.zeros(4, 4))).tolist() == torch.eye(4).tolist()


@pytest.mark.parametrize(
    ("leftover", "dtype"),
    [("h.0.q.base_layer.weight", torch.float32), ("h.0.k.weight", torch.uint8)],
)
def test_a_frozen_or_a_quantised_copy_beside_lora_is_set_aside(leftover, dtype):
    tensors = {**LORA, leftover: torch.ones(4, 4, dtype=dtype)}

    adapter = read_adapter(in_memory(tensors), {"lora_alpha": 1})

    assert adapter.full_values == {}
    assert adapter.needs_base == frozenset()
    assert any("not read" in note for note in adapter.notes)


def test_a_square_matrix_is_turned_the_smaller_way_and_a_frozen_one_in_a_shorter_type_is_none():
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

    def delta(stored):
        return read_adapter(in_memory({"h.0.k.weight": stored}), None).delta("h.0.k", weight)

    turned = dense(delta((weight + 0.01).T.contiguous()))
    torch.testing.assert_close(turned, torch.full((4, 4), 0.01), rtol=0, atol=1e-6)
    assert delta(weight.bfloat16()).norm == 0.0


@pytest.mark.parametrize(
    ("stored", "code"),
    [(torch.ones(3, 3), "shape-mismatch"), (torch.full((4, 6), torch.nan), "non-finite")],
)
def test_a_full_value_that_does_not_fit_is_refused(stored, code):
    adapter = read_adapter(in_memory({"h.0.k.weight": stored}), None)

    with pytest.raises(ModelError, match=r"h\.0\.k\.weight") as caught:
        adapter.delta("h.0.k", torch.ones(4, 6))

    assert caught.value.code == code


HEAD = "base_model.model.classifier"
LAYER = "base_model.model.bert.encoder.layer.0.attention.self.query"


@pytest.mark.parametrize("task", ["SEQ_CLS", None])
def test_todays_peft_with_the_head_among_the_targets_too(tmp_path, task):
    config = peft.LoraConfig(
        r=2,
        target_modules=["query", "dense", "classifier"],
        modules_to_save=None if task else ["classifier"],
        task_type=task,
    )
    merged = make_adapter("bert", config, tmp_path)

    assert_same_updates(read_folder(tmp_path), merged)


def tensors(*names, shape=(2, 2)):
    return {name: torch.ones(shape) for name in names}


PAIR = tensors(f"{LAYER}.lora_A.weight", f"{LAYER}.lora_B.weight")
ODD_HEADS = {
    "half": tensors(f"{HEAD}.lora_A.weight"),
    "two factors": tensors(f"{HEAD}.lora_A.weight", f"{HEAD}.base_layer.lora_A.weight"),
    "saved too": {f"{HEAD}.weight": torch.ones(3, 2)}  # by PEFT before 0.12, under three names
    | tensors(
        *(
            f"{HEAD}.{copy}lora_{factor}.weight"
            for copy in ("", "modules_to_save.", "original_module.")
            for factor in "AB"
        )
    ),
    "another method": tensors(f"{HEAD}.lokr_w1", f"{HEAD}.lokr_w2"),
    "shapes": tensors(f"{HEAD}.lora_A.weight") | tensors(f"{HEAD}.lora_B.weight", shape=(3, 5)),
    "a type": {f"{HEAD}.lora_{f}.weight": torch.ones(2, 2, dtype=torch.uint8) for f in "AB"},
    "numbered": tensors("base_model.model.score.0.dense.lora_A.weight"),
    "a pooler": tensors("base_model.model.bert.pooler.dense.lora_B.weight"),
}


@pytest.mark.parametrize("odd", ODD_HEADS)
def test_a_head_that_is_not_in_order_is_left_out(odd):
    adapter = read_adapter(in_memory(PAIR | ODD_HEADS[odd]), {"lora_alpha": 2})

    layers = {module: shape for module, shape in adapter.modules.items() if "layer" in module}
    assert layers == {"bert.encoder.layer.0.attention.self.query": (2, 2)}
    assert len(adapter.outside) == 1


def test_with_no_layer_matrix_left_there_is_no_update(tmp_path):
    for odd, stored in ODD_HEADS.items():
        write_files(tmp_path / "models" / odd, lora_of(stored, "bert-base", lora_alpha=2))

    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        index_family(catalog, IndexOptions(base="bert-base", source=tmp_path / "models"))
        codes = {row.id: (row.code, row.reason) for row in catalog.models()}

    assert {code for code, _ in codes.values()} == {"no-layer-update"}
    assert codes["half"][1] == "it changes only 'classifier'"
