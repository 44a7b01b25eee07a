from dataclasses import replace

import numpy as np
import pytest
from catalogs import SLOT

from deltadex.errors import RequestError
from deltadex.records import Recipe, Slot
from deltadex.search.family_scores import ADAPTERS, OTHERS
from deltadex.search.neighbours import Explained, explain_slots
from deltadex.store import SketchMatrix, true_cosines
from deltadex.store.sketch_codes import encode_sketch

RECIPE = Recipe(
    name="sketch", rank=4, dim=64, params=(("slot_blocks", "update:64,output:128,input:64"),)
)
SIZES = {"update": 64, "output": 128, "input": 64}
BLOCKS = tuple(SIZES)


def make_stats(slot, numbers, weights=(1.0, 1.0, 1.0), **changes):
    """A slot whose blocks are these 256 numbers, one after the other."""
    blocks = np.split(np.asarray(numbers, np.float64), np.cumsum(list(SIZES.values()))[:-1])
    return replace(SLOT, slot=slot, sketch=encode_sketch(blocks, list(weights)), **changes)


def explain(query, ours, model, theirs, recipe=RECIPE, kinds=("full", "full")):
    return explain_slots(
        Explained(query, kinds[0], ours), Explained(model, kinds[1], theirs), recipe
    )


def make_model(seed, slots, like=None):
    """Random numbers in every slot, or half those of another seed."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(like)
    return [
        make_stats(
            slot,
            rng.normal(size=256) + (other.normal(size=256) if like is not None else 0),
            weights=rng.uniform(0.2, 1.0, size=3),
        )
        for slot in slots
    ]


SLOTS = [Slot(stack, layer, role) for stack in ("encoder", "decoder") for layer in (0, 1)
         for role in ("q", "down")]  # fmt: skip


def cosine_of_find_similar(ours, theirs, weights):
    """The plain cosine of two models, as a search shows it."""
    a, b = (
        SketchMatrix.of_rows([{s.slot: s.sketch for s in model}], RECIPE)
        for model in (ours, theirs)
    )
    shares = np.array([weights[block] for block in BLOCKS])
    coded = shares @ a.cosines(b)[:, 0, 0] / shares.sum()
    return float(true_cosines(np.array([coded]))[0])


@pytest.mark.parametrize(
    ("kinds", "weights"),
    [(("full", "full"), OTHERS), (("full", "adapter"), OTHERS), (("adapter", "adapter"), ADAPTERS)],
)
@pytest.mark.parametrize("like", [None, 0])
def test_contributions_sum_to_the_cosine_that_a_search_shows(kinds, weights, like):
    a, b = make_model(0, SLOTS), make_model(1, SLOTS[1:], like)
    expected = cosine_of_find_similar(a, b, weights)

    found = explain("a", a, "b", b, kinds=kinds)

    assert found["similarity"] == pytest.approx(expected)
    for totals in (found["slots"], found["by_role"], found["by_layer"], found["by_block"]):
        assert sum(total["contribution"] for total in totals) == pytest.approx(expected)


@pytest.mark.parametrize("block", range(3))
def test_a_block_that_one_model_lacks_carries_nothing(block):
    a = make_model(0, SLOTS)
    weights = [float(number != block) for number in range(3)]
    of_b = np.random.default_rng(2).normal(size=(len(SLOTS), 256))
    b = [
        make_stats(slot, numbers, weights=weights)
        for slot, numbers in zip(SLOTS, of_b, strict=True)
    ]
    left = {name: OTHERS[name] * weight for name, weight in zip(BLOCKS, weights, strict=True)}

    found = explain("a", a, "b", b)

    assert found["similarity"] == pytest.approx(cosine_of_find_similar(a, b, left))
    assert explain("b", b, "a", a)["similarity"] == pytest.approx(found["similarity"])
    assert [total["contribution"] == 0.0 for total in found["by_block"]] == [
        weight == 0.0 for weight in weights
    ]


def test_a_similarity_in_one_place_is_found_there():
    alike = Slot("decoder", 1, "q")
    same = np.random.default_rng(5).normal(size=256)
    a, b = (
        [
            make_stats(
                slot, same if slot == alike else np.random.default_rng((k, i)).normal(size=256)
            )
            for i, slot in enumerate(SLOTS)
        ]
        for k in (1, 2)
    )

    found = explain("a", a, "b", b)

    assert found["slots"][0]["slot"] == str(alike)
    assert found["slots"][0]["contribution"] > 2 * abs(found["slots"][1]["contribution"])
    by_role = {total["role"]: total["contribution"] for total in found["by_role"]}
    assert by_role["q"] > 2 * abs(by_role["down"])
    assert max(found["by_layer"], key=lambda total: total["contribution"])["layer"] == "decoder.1"


def test_slots_of_one_model_alone_are_named_and_count_in_its_length():
    a, b = make_model(0, SLOTS[:3]), make_model(1, SLOTS[2:4])
    b.append(make_stats(SLOTS[0], np.zeros(256), fro_norm=0.0))

    found = explain("a", a, "b", b)

    assert found["only_query"] == list(map(str, SLOTS[:2]))
    assert found["only_model"] == [str(SLOTS[3])]
    assert found["similarity"] == pytest.approx(cosine_of_find_similar(a, b, OTHERS))


def test_models_without_a_common_slot_have_no_similarity_and_no_shares():
    found = explain("a", make_model(0, SLOTS[:1]), "b", make_model(0, SLOTS[1:]))

    assert (found["similarity"], found["slots"]) == (0.0, [])
    assert {total["share"] for total in found["by_block"]} == {None}


def test_without_sketches_or_of_another_size_a_pair_cannot_be_explained():
    (fits,) = make_model(0, SLOTS[:1])
    short = replace(fits, sketch=fits.sketch[:-1])

    with pytest.raises(RequestError, match="recipe mean-factors stores no slot sketches"):
        explain("a", [fits], "b", [fits], Recipe(name="mean-factors", rank=8, dim=64))
    with pytest.raises(RequestError, match="b has a sketch of 69 bytes, not 70: index it again"):
        explain("a", [fits], "b", [short])
