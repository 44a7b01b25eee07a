import json

import numpy as np
import pytest

from deltadex.errors import RequestError
from deltadex.records import Recipe, Slot, SlotStats
from deltadex.search.explain import Explained, explain_slots
from deltadex.search.sketch_scores import SketchMeans

RECIPE = Recipe(
    name="sketch", rank=4, dim=64, params=(("slot_blocks", "update:4,output:8,input:4"),)
)


def make_stats(slot, sketch, fro_norm=1.0, relative_norm=0.1):
    return SlotStats(
        slot=slot,
        shape=(8, 8),
        fro_norm=fro_norm,
        relative_norm=relative_norm,
        sigma=np.ones(1, np.float32),
        energy=1.0,
        stable_rank=1.0,
        noise_floor=0.0,
        sketch=np.asarray(sketch, np.float16),
    )


def explain(query, ours, model, theirs, recipe, means=None):
    a, b = Explained(query, "full", ours), Explained(model, "full", theirs)
    return explain_slots(a, b, recipe, means or SketchMeans())


def make_model(seed, slots):
    rng = np.random.default_rng(seed)
    return [make_stats(slot, rng.normal(size=16)) for slot in slots]


SLOTS = [Slot(stack, layer, role) for stack in ("encoder", "decoder") for layer in (0, 1)
         for role in ("q", "down")]  # fmt: skip


def joined(model):
    return np.concatenate([stats.sketch for stats in model]).astype(np.float64)


def test_contributions_sum_to_the_cosine_of_all_sketches():
    a, b = make_model(0, SLOTS), make_model(1, SLOTS)
    expected = joined(a) @ joined(b) / np.linalg.norm(joined(a)) / np.linalg.norm(joined(b))

    found = explain("a", a, "b", b, RECIPE)

    assert found.similarity == pytest.approx(expected)
    for totals in (found.slots, found.by_role, found.by_layer, found.by_block):
        assert sum(total.contribution for total in totals) == pytest.approx(expected)


def test_shares_sum_to_one_where_models_are_alike():
    model = make_model(0, SLOTS)

    found = explain("a", model, "a", model, RECIPE)

    assert found.similarity == pytest.approx(1.0)
    for totals in (found.slots, found.by_role, found.by_layer, found.by_block):
        assert sum(total.share for total in totals) == pytest.approx(1.0)


def test_a_similarity_in_one_place_is_found_there():
    alike = Slot("decoder", 1, "q")
    a, b = (
        [make_stats(s, np.eye(16)[5] if s == alike else np.eye(16)[k]) for s in SLOTS]
        for k in (1, 2)
    )

    found = explain("a", a, "b", b, RECIPE)

    assert found.similarity == pytest.approx(1 / len(SLOTS))
    assert (found.slots[0].slot, found.slots[0].share) == (alike, pytest.approx(1.0))
    assert {t.name: t.share for t in found.by_role} == {"q": 1.0, "down": 0.0}
    assert {t.name for t in found.by_layer if t.share} == {"decoder.1"}
    assert {t.name: t.share for t in found.by_block} == {
        "update": 0,
        "output": 1,
        "input": 0,
    }


def test_slots_of_one_model_alone_are_named_and_count_in_its_length():
    a, b = make_model(0, SLOTS[:3]), make_model(1, SLOTS[2:4])
    b.append(make_stats(SLOTS[0], np.zeros(16), fro_norm=0.0))

    found = explain("a", a, "b", b, RECIPE)

    assert found.only_query == tuple(SLOTS[:2])
    assert found.only_model == (SLOTS[3],)
    shared = a[2].sketch.astype(float) @ b[0].sketch.astype(float)
    lengths = np.linalg.norm(joined(a)) * np.linalg.norm(joined(b))
    assert found.similarity == pytest.approx(shared / lengths)


def test_models_without_a_common_slot_have_no_similarity_and_no_shares():
    found = explain("a", make_model(0, SLOTS[:1]), "b", make_model(0, SLOTS[1:]), RECIPE)

    assert (found.similarity, found.slots) == (0.0, ())
    assert {total.share for total in found.by_block} == {None}


def test_json_survives_a_round_trip_and_shows_norms_side_by_side():
    a, b = (
        [make_stats(SLOTS[0], np.ones(16))],
        [make_stats(SLOTS[0], np.ones(16), relative_norm=None)],
    )

    document = explain("a", a, "b", b, RECIPE).to_json()

    assert json.loads(json.dumps(document)) == document
    (slot,) = document["slots"]
    assert slot["slot"] == "encoder.0.q"
    assert slot["relative_norm"] == {"query": 0.1, "model": None}
    assert slot["blocks"] == pytest.approx({"update": 0.25, "output": 0.5, "input": 0.25})


def test_a_recipe_without_sketches_cannot_explain():
    recipe = Recipe(name="mean-factors", rank=8, dim=64)

    with pytest.raises(RequestError, match="recipe mean-factors stores no slot sketches"):
        explain("a", make_model(0, SLOTS), "b", make_model(1, SLOTS), recipe)


def test_sketches_of_another_size_cannot_be_explained():
    short = [make_stats(SLOTS[0], np.ones(12))]

    with pytest.raises(RequestError, match=r"b has 12 features at encoder\.0\.q, expected 16"):
        explain("a", make_model(0, SLOTS), "b", short, RECIPE)
