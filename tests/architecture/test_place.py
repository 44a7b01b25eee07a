"""Slots of every model type's tensors, against a table taken from transformers itself."""

import json
import re
from pathlib import Path

import pytest
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS, prefixes, saved, slots

from deltadex.indexer.architecture import place
from deltadex.indexer.architecture.names import table

TABLE = json.loads((Path(__file__).parent / "expected_roles.json").read_text())
EXPECTED = {
    variant: entry["matrices"] for entry in TABLE["models"] for variant in entry["variants"]
}


def described(placed):
    """The placements in the words of the table."""
    roles = {}
    turned = set()
    for p in placed.placements:
        template = templated(p.module)
        part = re.sub(r"\.\d+", "", p.part)
        role = f"{p.slot.role}/{part}" if part else p.slot.role
        labels = roles.setdefault(template, [p.slot.stack])
        if role not in labels:
            labels.append(role)
        if p.transposed:
            turned.add(template)
    return {t: " ".join(labels) + " in-out" * (t in turned) for t, labels in roles.items()}


def templated(module):
    if "albert_layers" in module:
        return module
    name = re.sub(r"experts\.\d+", "experts.{E}", module)
    return re.sub(r"(layers?|h|blocks?)\.\d+", r"\1.{L}", name, count=1)


def assert_parts_share_out_all_rows(model, placed):
    numbers = {name: tensor.numel() for name, tensor in model.tensors.items()}
    for p in placed.placements:
        part = p.cut(model.tensors[p.tensor])
        assert tuple(part.shape) == p.shape
        numbers[p.tensor] -= part.numel()
    assert all(numbers[p.tensor] == 0 for p in placed.placements)


def test_the_table_covers_every_variant_with_attention():
    assert set(EXPECTED) == set(CONFIGS) - {"mamba"}


@pytest.mark.parametrize("variant", EXPECTED)
def test_each_matrix_of_a_saved_model_gets_the_slot_the_table_says_and_parts_share_out_its_rows(
    variant,
):
    model = saved(variant)

    placed = place(model.shapes, model.config)

    assert described(placed) == EXPECTED[variant]
    assert placed.unread == ()
    assert prefixes(placed) == {""}
    assert {p.tensor for p in placed.placements}.isdisjoint(placed.ignored)
    assert {p.tensor for p in placed.placements} | set(placed.ignored) == set(model.shapes)
    assert_parts_share_out_all_rows(model, placed)
    layers = {p.slot.layer for p in placed.placements}
    n_layers = getattr(model.model.config, "num_hidden_layers", 2)  # of towers it is two
    assert layers == set(range(1 if variant == "albert" else n_layers))


INTERLEAVED = ("gpt_neox", "bloom", "falcon", "falcon:new", "falcon:mha", "deberta")


@pytest.mark.parametrize(
    "variant", sorted(set(EXPECTED) - {*INTERLEAVED, "gpt_bigcode:mha", "deepseek_v3"})
)
def test_without_a_config_all_but_interleaved_matrices_are_split_the_same(variant):
    model = saved(variant)

    assert slots(place(model.shapes, None)) == slots(place(model.shapes, model.config))


@pytest.mark.parametrize("variant", [*INTERLEAVED, "gpt_bigcode:mha", "deepseek_v3"])
def test_without_a_config_an_interleaved_matrix_stays_whole(variant):
    model = saved(variant)

    placed = place(model.shapes, None)

    whole = [p for p in placed.placements if p.slot.role == "qkv"]
    assert len(whole) == model.model.config.num_hidden_layers
    assert all(p.shape == model.shapes[p.tensor] for p in whole)
    assert len({p.tensor for p in placed.placements}) == len(
        {p.tensor for p in place(model.shapes, model.config).placements}
    )


@pytest.mark.parametrize("variant", ["clip", "siglip"])
@pytest.mark.parametrize("stack", ["text", "vision"])
def test_a_tower_saved_alone_keeps_its_stack_with_and_without_its_prefix(variant, stack):
    word = f"{stack}_model."
    full = {name: s for name, s in saved(variant).shapes.items() if name.startswith(word)}
    bare = {name.removeprefix(word): s for name, s in full.items()}

    assert slots(place(bare, None)) == slots(place(full, None))
    assert {p.slot.stack for p in place(bare, None).placements} == {stack}


@pytest.mark.parametrize("inner", [1, 2])
def test_albert_counts_layers_over_its_shared_groups(inner):
    config = transformers.AlbertConfig(**CONFIGS["albert"])
    config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num = 4, 2, inner
    model = transformers.AlbertModel(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    placed = place(shapes, config.to_dict())

    assert {p.slot.layer for p in placed.placements} == set(range(2 * inner))
    assert slots(placed) == slots(place(shapes, None))


def test_a_language_model_with_eyes_has_a_stack_for_each():
    tower = saved("siglip").shapes
    vision = {n.removeprefix("vision_model."): s for n, s in tower.items() if "vision" in n}
    shapes = {f"model.language_model.{n}": s for n, s in saved("llama").shapes.items()}
    shapes |= {f"model.vision_tower.{n}": s for n, s in vision.items()}

    placed = place(shapes, None)

    assert {p.slot.stack for p in placed.placements} == {"decoder", "vision"}
    assert prefixes(placed) == {"model.language_model.", "model.vision_tower."}


VARIANTS = (
    *("bert", "distilbert", "albert", "modernbert", "gpt2", "gpt_neox", "falcon", "llama"),
    *("mixtral", "phi3", "t5", "bart", "vit", "deepseek_v3", "gpt_oss"),
)
WRAPPERS = ("module", "_orig_mod", "base_model", "model", "transformer", "0", "auto_model")
PATH_PARTS = {word for path in table().layers for word in path.split(".")}
parts_of_names = st.one_of(
    st.sampled_from(WRAPPERS), st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
)
wrapped = st.lists(parts_of_names, max_size=4).map(lambda parts: "".join(f"{p}." for p in parts))
heads = st.dictionaries(
    st.sampled_from(("classifier", "score", "lm_head", "qa_outputs", "head.0", "proj.dense")),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)


@settings(deadline=None)
@given(st.sampled_from(VARIANTS), wrapped, st.randoms(use_true_random=False), heads)
def test_any_prefix_any_order_and_extra_heads_give_the_same_placements(
    variant, prefix, order, extra
):
    last = prefix.rstrip(".").rpartition(".")[2]
    assume(last not in PATH_PARTS - {"transformer"} and last not in table().stack_of_owner)
    model = saved(variant)
    named = [(prefix + name, shape) for name, shape in model.shapes.items()]
    named += [(f"{name}.weight", shape) for name, shape in extra.items()]
    order.shuffle(named)

    placed = place(dict(named), model.config)

    assert slots(placed, more=True) == slots(place(model.shapes, model.config), more=True)
    assert prefixes(placed) == {prefix}
    assert placed.unread == ()


@settings(deadline=None)
@given(
    st.sampled_from(("bloom", "falcon:new", "gpt_bigcode:mha", "deepseek_v3", "phi3")),
    st.sampled_from(
        (
            *("num_attention_heads", "n_head", "num_kv_heads", "multi_query", "model_type"),
            *("new_decoder_architecture", "text_config", "v_head_dim", "qk_nope_head_dim"),
        )
    ),
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=5) | st.lists(st.none()),
)
def test_no_config_makes_parts_that_overlap_or_leave_rows_out(variant, key, value):
    model = saved(variant)

    assert_parts_share_out_all_rows(model, place(model.shapes, {**model.config, key: value}))
