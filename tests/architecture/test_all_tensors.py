"""The law: tensors = slots + known others + those that are named as unread."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS, saved

from deltadex.errors import ModelError
from deltadex.indexer.architecture import place, place_modules

VARIANTS = sorted(set(CONFIGS) - {"mamba"})
UNKNOWN = st.lists(st.from_regex(r"z[a-z]{0,6}[0-9]?", fullmatch=True), min_size=1, max_size=3).map(
    ".".join
)
SIZES = st.integers(2, 9)
MATRICES = st.one_of(st.tuples(SIZES, SIZES), st.tuples(SIZES, SIZES, SIZES))


def in_layers(variant, rests):
    """Names in layers of a model that its own tensors are in."""
    placed = place(saved(variant).shapes, saved(variant).config).placements
    starts = sorted({p.tensor.removesuffix(".weight").rpartition(".")[0] for p in placed})
    return [f"{starts[at % len(starts)]}.{rest}" for at, rest in rests]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(VARIANTS),
    st.dictionaries(st.tuples(st.integers(0, 99), UNKNOWN), MATRICES, min_size=1, max_size=4),
    st.sampled_from(["", ".weight"]),
    st.sampled_from(["", "module.", "base_model.model."]),
)
def test_every_tensor_has_a_slot_or_is_a_known_other_or_is_named(variant, extra, ending, prefix):
    model = saved(variant)
    names = [f"{prefix}{name}{ending}" for name in in_layers(variant, extra)]
    added = dict(zip(names, extra.values(), strict=True))
    shapes = {prefix + name: shape for name, shape in model.shapes.items()} | added

    placed = place(shapes, model.config)

    parts = [{p.tensor for p in placed.placements}, set(placed.ignored), set(placed.unread)]
    assert sum(map(len, parts)) == len(shapes)
    assert set.union(*parts) == set(shapes)
    assert parts[2] == set(added)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(VARIANTS), st.tuples(st.integers(0, 99), UNKNOWN), st.integers(2, 9))
def test_a_module_of_an_adapter_that_has_no_slot_is_named(variant, extra, size):
    model = saved(variant)
    (name,) = in_layers(variant, [extra])
    known = place(model.shapes, model.config).placements[0]
    modules = {known.tensor.removesuffix(".weight"): (8, 8), name: (size, size)}

    placed = place_modules(modules, None)

    assert placed.unread == (name,)
    with pytest.raises(ModelError) as err:
        placed.require_known()
    assert repr(name) in err.value.reason


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.0.attention.self.query.lora_A.default.weight",
        "encoder.layer.0.attention.self.query.ia3_l.default",
        "encoder.layer.0.attention.self.query.lora_magnitude_vector.default.weight",
        "encoder.layer.0.attention.self.query.vera_lambda_b.default",
        "blobs.0.fc.weight",
    ],
)
def test_factors_of_any_shape_and_repeated_blocks_of_any_name_are_unread(name):
    shape = (32, 1) if "default" in name else (8, 8)
    more = {name: shape, name.replace(".0.", ".1."): shape}

    assert place(saved("bert").shapes | more, None).unread == tuple(more)
