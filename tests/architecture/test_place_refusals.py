"""What placing refuses, what it reports, and what it passes over."""

import pytest
from tiny_models import slots

from deltadex.errors import ModelError
from deltadex.indexer.architecture import place

BERT_LAYER = {
    **{f"attention.self.{role}": (32, 32) for role in ("query", "key", "value")},
    "attention.output.dense": (32, 32),
    "intermediate.dense": (48, 32),
    "output.dense": (32, 48),
}


def bert(prefix="", layers=2):
    return {
        f"{prefix}encoder.layer.{n}.{name}.weight": shape
        for n in range(layers)
        for name, shape in BERT_LAYER.items()
    }


@pytest.mark.parametrize(
    "names", [(), ("0.weight", "2.weight"), ("encoder.stages.0.layers.1.convolution.weight",)]
)
def test_nets_without_matrices_in_blocks_are_refused_as_having_none(names):
    with pytest.raises(ModelError, match="no-attention"):
        place(dict.fromkeys(names, (8, 8)), None)


def test_a_known_name_on_a_vector_is_reported_by_name():
    vector = {"encoder.layer.1.output.dense.weight": (64,)}

    placed = place(bert() | vector, None)

    assert placed.unread == tuple(vector)
    with pytest.raises(
        ModelError, match=r"unknown-architecture: .*layer\.1\.output\.dense\.weight'"
    ):
        placed.require_known()


@pytest.mark.parametrize(
    "extra",
    [
        {"h.0.attn.bias": (1, 1, 64, 64), "h.0.attn.masked_bias": ()},
        {"encoder.layer.0.attention.self.rotary_embeddings.inv_freq": (8,)},
        {"classifier.0.dense.weight": (32, 32), "classifier.2.weight": (2, 32)},
        {"heads.layers.0.dense.weight": (32, 32), "heads.layers.1.dense.weight": (32, 32)},
        {"encoder.layer.0.attention.self.q_norm.weight": (4, 8)},
    ],
)
def test_masks_heads_and_strays_do_not_disturb(extra):
    placed = place(bert() | extra, None)

    assert slots(placed) == slots(place(bert(), None))
    assert placed.unread == ()
    assert set(extra) <= set(placed.ignored)


@pytest.mark.parametrize(
    "name",
    [
        "layers.1." * 20_000 + "self_attn.q_proj.weight",
        "a" * 100_000 + ".0." + "attn." * 20_000 + "weight",
        f"layers.{'9' * 5_000}.self_attn.q_proj.weight",
        "layers.٣.self_attn.q_proj.weight",
    ],
)
def test_a_hostile_name_is_refused_at_once_and_in_short(name):
    with pytest.raises(ModelError) as err:
        place({name: (8, 8)}, None)

    assert len(err.value.reason) < 400


def test_two_models_in_one_file_are_two_stacks():
    placed = place(bert("model_a.") | bert("model_b."), None)

    assert {p.slot.stack for p in placed.placements} == {"encoder", "model_b"}
    assert len(placed.placements) == 2 * len(bert())


def test_two_names_for_one_slot_are_refused():
    shapes = bert() | {"encoder.layer.1.attention.self.query_proj.weight": (32, 32)}

    with pytest.raises(ModelError, match=r"^unknown-architecture: .*all fill encoder\.1\.q: "):
        place(shapes, None)
