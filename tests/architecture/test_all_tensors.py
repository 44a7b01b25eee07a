"""The law: tensors = slots + known others + those that are named as unread; what no rule names is
whole in a slot of its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS, saved

from deltadex.indexer.architecture import in_slots_of, place, place_modules, require_within_base

VARIANTS = sorted(CONFIGS)
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


@settings(deadline=None)
@given(
    st.sampled_from(VARIANTS),
    st.dictionaries(st.tuples(st.integers(0, 99), UNKNOWN), MATRICES, min_size=1, max_size=4),
    st.sampled_from(["", ".weight"]),
    st.sampled_from(["", "module.", "base_model.model."]),
)
def test_every_tensor_has_a_slot_or_is_a_known_other(variant, extra, ending, prefix):
    model = saved(variant)
    names = [f"{prefix}{name}{ending}" for name in in_layers(variant, extra)]
    added = dict(zip(names, extra.values(), strict=True))
    shapes = {prefix + name: shape for name, shape in model.shapes.items()} | added

    placed = place(shapes, model.config)

    slots, known = {p.tensor for p in placed.placements}, set(placed.ignored)
    assert len(slots) + len(known) == len(shapes)
    assert slots | known == set(shapes)
    assert placed.unread == ()
    whole = [(p.tensor, p.rows, p.shape) for p in placed.placements if p.tensor in added]
    n_matrices = sum(shape[0] if len(shape) == 3 else 1 for shape in added.values())
    assert len(whole) == n_matrices
    assert all((rows, shape) == (None, added[name][-2:]) for name, rows, shape in whole)


@settings(deadline=None)
@given(st.sampled_from(VARIANTS), st.tuples(st.integers(0, 99), UNKNOWN), st.integers(2, 9))
def test_an_adapters_module_without_a_rule_has_the_slot_that_it_has_in_a_checkpoint(
    variant, extra, size
):
    model = saved(variant)
    (name,) = in_layers(variant, [extra])
    placements = place(model.shapes, model.config).placements
    known = next(p for p in placements if p.rows is None and p.index is None)
    modules = {known.tensor.removesuffix(".weight"): known.shape, name: (size, size)}
    stored = place(model.shapes | {f"{name}.weight": (size, size)}, model.config)

    (own,) = [p for p in place_modules(modules, None).placements if p.tensor == name]

    assert stored.by_key[own.key].tensor == f"{name}.weight"
    require_within_base(in_slots_of(place_modules(modules, model.config), stored), stored)


@pytest.mark.parametrize("factor", ["lora_A.default.weight", "ia3_l.default"])
def test_factors_of_any_shape_are_unread(factor):
    more = {f"encoder.layer.{n}.attention.self.query.{factor}": (32, 1) for n in range(2)}

    assert place(saved("bert").shapes | more, None).unread == tuple(more)
