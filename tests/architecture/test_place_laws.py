"""Laws of placing: neither prefix nor order nor company changes where a tensor belongs."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_models import prefixes as prefixes_of
from tiny_models import saved

from deltadex.indexer.architecture import place, table

VARIANTS = (
    *("bert", "distilbert", "albert", "modernbert", "gpt2", "gpt_neox", "falcon", "llama"),
    *("mixtral", "phi3", "t5", "bart", "vit", "deepseek_v3", "gpt_oss"),
)
WRAPPERS = ("module", "_orig_mod", "base_model", "model", "transformer", "0", "auto_model")
PATH_PARTS = {word for path in table().layers for word in path.split(".")}
parts_of_names = st.one_of(
    st.sampled_from(WRAPPERS),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
)
prefixes = st.lists(parts_of_names, max_size=4).map(lambda parts: "".join(f"{p}." for p in parts))
heads = st.dictionaries(
    st.sampled_from(("classifier", "score", "lm_head", "qa_outputs", "head.0", "proj.dense")),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)


def facts(placed):
    return [
        (p.slot, p.part, p.module, p.index, p.transposed, p.rows, p.shape)
        for p in placed.placements
    ]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VARIANTS), prefixes, st.randoms(use_true_random=False), heads)
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

    assert facts(placed) == facts(place(model.shapes, model.config))
    assert prefixes_of(placed) == {prefix}
    assert placed.unknown == ()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=30), st.lists(st.integers(0, 4), max_size=4)))
def test_no_set_of_names_makes_an_unforeseen_error(shapes):
    mixed = saved("bert").shapes | {name: tuple(shape) for name, shape in shapes.items()}

    placed = place(mixed, None)

    assert len(placed.placements) >= 12


settings_values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.text(max_size=5), st.lists(st.none())
)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(("bloom", "falcon:new", "gpt_bigcode:mha", "deepseek_v3", "phi3")),
    st.sampled_from(
        (
            *("num_attention_heads", "n_head", "num_kv_heads", "multi_query", "model_type"),
            *("new_decoder_architecture", "text_config", "v_head_dim", "qk_nope_head_dim"),
        )
    ),
    settings_values,
)
def test_no_config_makes_parts_that_overlap_or_leave_rows_out(variant, key, value):
    model = saved(variant)

    placed = place(model.shapes, {**model.config, key: value})

    numbers = {name: tensor.numel() for name, tensor in model.tensors.items()}
    for p in placed.placements:
        numbers[p.tensor] -= p.cut(model.tensors[p.tensor]).numel()
    assert all(numbers[p.tensor] == 0 for p in placed.placements)
