"""Modules of adapters: their names in memory, old or new, lead to the slots of the disk."""

import pytest
import torch
from tiny_models import CONFIGS, saved

from deltadex.errors import ModelError
from deltadex.indexer.architecture import (
    is_cut_otherwise,
    place,
    place_modules,
    require_known_slots,
)

VARIANTS = sorted(CONFIGS)
RENAMED = ["mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v3", "vit", "deit", "dinov2"]
"""Types whose names in memory differ from those on disk since transformers 5."""


def disk_modules(model):
    """What an adapter of a 4.x transformers would name: each slot's module, (out, in)."""
    placed = place(model.shapes, model.config)
    turned = {p.tensor for p in placed.placements if p.transposed}
    return {
        name.removesuffix(".weight"): (
            (*shape[:-2], shape[-1], shape[-2]) if name in turned else shape
        )
        for name, shape in model.shapes.items()
        if any(name == p.tensor for p in placed.placements)
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_modules_named_as_on_disk_get_the_same_slots_and_rows_and_are_no_strangers(variant):
    model = saved(variant)
    stored = place(model.shapes, model.config)

    modules = place_modules(disk_modules(model), model.config)

    assert [(p.slot, p.part, p.rows, p.shape) for p in modules.placements] == [
        (p.slot, p.part, p.rows, p.shape) for p in stored.placements
    ]
    assert not any(p.transposed for p in modules.placements)
    # alone, no adapter is a stranger to the models of its base, whichever stack those changed
    alone = [place_modules({module: shape}, None) for module, shape in disk_modules(model).items()]
    for known in (stored, place_modules(disk_modules(model), None)):
        shapes = family_shapes(known)
        for stack in {p.slot.stack for p in known.placements}:
            of_stack = {name: shape for name, shape in shapes.items() if name.startswith(stack)}
            for module in alone:
                require_known_slots(module, of_stack, "base")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_module_that_its_family_has_in_other_slots_is_known_by_them(variant):
    model = saved(variant)
    stored = place(model.shapes, model.config)
    shapes, slots = family_shapes(stored), {(p.slot, p.part): p.shape for p in stored.placements}

    for module, shape in disk_modules(model).items():
        alone = place_modules({module: shape}, None)

        is_other = any(slots.get((p.slot, p.part)) != p.shape for p in alone.placements)
        assert is_cut_otherwise(alone, shapes) == is_other
        assert not is_cut_otherwise(alone, family_shapes(alone))


@pytest.mark.parametrize("variant", RENAMED)
def test_matrices_in_memory_are_those_on_disk_slot_by_slot(variant):
    model = saved(variant)
    memory = model.model.float().state_dict()
    names = {n for n, t in memory.items() if n.endswith("weight") or "experts" in n}
    shapes = {n.removesuffix(".weight"): tuple(memory[n].shape) for n in names}
    shapes = {n: s for n, s in shapes.items() if len(s) == 2 or "experts" in n}

    modules = place_modules(shapes, None)

    stored = {(p.slot, p.part): p for p in place(model.shapes, None).placements}
    assert set(stored) == {(p.slot, p.part) for p in modules.placements}
    for p in modules.placements:
        there = stored[p.slot, p.part]
        tensor = memory.get(f"{p.tensor}.weight", memory.get(p.tensor))
        assert torch.equal(p.cut(tensor), there.cut(model.tensors[there.tensor]))


@pytest.mark.parametrize("module", ["fc1", "fc2"])
def test_a_vit_adapter_on_its_mlp_alone_is_told_by_its_prefix_or_its_config(module):
    name, shape = f"layers.1.mlp.{module}", {"fc1": (48, 32), "fc2": (32, 48)}[module]

    placed = [
        place_modules({f"base_model.model.vit.{name}": shape}, None),
        place_modules({name: shape}, {"model_type": "vit"}),
        place_modules({f"model.{name}": shape}, None),  # a phi's
    ]

    assert [p.placements[0].slot.stack for p in placed] == ["encoder", "encoder", "decoder"]


def test_phi3s_qkv_is_split_by_the_output_projection_beside_it():
    qkv = {"model.layers.0.self_attn.qkv_proj": (64, 32)}
    beside = {"model.layers.0.self_attn.o_proj": (32, 32)}

    alone, together = place_modules(qkv, None), place_modules(qkv | beside, None)

    assert [p.slot.role for p in alone.placements] == ["qkv"]
    rows = [(p.slot.role, p.shape[0]) for p in together.placements]
    assert rows == [("q", 32), ("k", 16), ("v", 16), ("o", 32)]


@pytest.mark.parametrize("name", ["mlp.experts.gate_up_proj", "self_attn.q_proj.base_layer"])
def test_a_module_that_cannot_be_placed_is_refused_by_name(name):
    module = f"model.layers.0.{name}"
    placed = place_modules({module: (8, 8)}, None)

    assert placed.placements == ()
    with pytest.raises(ModelError, match=rf": .*'{module}'"):
        placed.require_known()


@pytest.mark.parametrize(
    ("module", "slot"),
    [
        ("model.layers.0.self_attn.gizmo", "decoder.0.self_attn.gizmo"),
        (
            "switch.decoder.block.0.layer.2.mlp.experts.expert_7.wi",
            "decoder.0.layer.2.mlp.experts.expert.wi",
        ),
        ("swin.encoder.layers.1.blocks.0.attention.gizmo", "layers/1/blocks.0.attention.gizmo"),
        ("encoder.block.2.1.mlp.dense9", "encoder.2.mlp.dense9"),
    ],
)
def test_a_module_without_a_rule_has_its_name_inside_the_block_for_a_role(module, slot):
    alone = place_modules({module: (8, 8)}, None)
    stored = place({f"{module.replace('.0.', f'.{n}.')}.weight": (8, 8) for n in range(2)}, None)

    assert [str(p.slot) for p in alone.placements] == [slot]
    assert alone.placements[0].key in stored.by_key


def test_heads_and_routers_are_ignored_and_no_error():
    modules = "bert.pooler.dense", "classifier", "model.layers.0.mlp.gate"

    placed = place_modules(dict.fromkeys(modules, (2, 32)), None)

    assert (placed.placements, placed.ignored, placed.unread) == ((), modules, ())
    placed.require_known()


def family_shapes(placed):
    """(out, in) by slot, as a catalog has them: the parts of a slot below one another."""
    shapes = {}
    for p in placed.placements:
        rows, columns = shapes.get(str(p.slot), (0, 0))
        shapes[str(p.slot)] = (rows + p.shape[0], max(columns, p.shape[1]))
    return shapes


def test_a_few_matrices_that_do_not_fit_leave_an_adapter_where_it_is():
    placed = place_modules(disk_modules(saved("gpt2")), None)
    shapes = family_shapes(placed)
    first = next(iter(shapes))

    require_known_slots(placed, shapes | {first: (1, 1)}, "base")
    require_known_slots(placed, {}, "base")  # nothing is known
    with pytest.raises(ModelError, match=r"its models have \(1, 1\)"):
        require_known_slots(placed, dict.fromkeys(shapes, (1, 1)), "base")
