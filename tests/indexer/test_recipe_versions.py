"""Families that deltadex 0.1 fingerprinted under version 2 of its recipe, and their upgrade."""

import json
import logging

import pytest
from factories import finetune, make_bert, make_checkpoint

from deltadex.indexer import IndexOptions, fingerprint_query, index_family
from deltadex.indexer import index as family_recipes_module
from deltadex.indexer.fingerprint import VERSIONS, make_recipe
from deltadex.records import LINEAR_DIM, LINEAR_LAYER_DIM
from deltadex.store import Catalog, block_dims, sketch_bytes

OLD = make_recipe("sketch", None, (), version=2)
NEW = make_recipe("sketch", None, ())
KIB = 1024


@pytest.fixture
def old(family, monkeypatch):
    """A catalog as deltadex 0.1 made it, of three of the four models."""
    (family / "models" / "b-1").rename(family / "later")
    with Catalog.open(family / "c.duckdb") as catalog:
        monkeypatch.setattr(
            family_recipes_module,
            "make_recipe",
            lambda name, rank, layout, share: make_recipe(name, rank, layout, share, version=2),
        )
        index_family(catalog, _options(family))
        monkeypatch.undo()
        assert {row.recipes for row in catalog.models()} == {(OLD.id,)}
        yield catalog


def _options(family, **more):
    return IndexOptions(base=str(family / "base"), source=family / "models", **more)


def test_a_new_family_gets_the_newest_version(family, catalog):
    report = index_family(catalog, _options(family))

    assert report.recipes == [NEW]
    assert NEW.version == max(VERSIONS["sketch"]) == 3
    assert report.to_json()["upgrade"] is None


def test_an_older_family_goes_on_under_its_version(old, family):
    (family / "later").rename(family / "models" / "b-1")

    report = index_family(old, _options(family))

    assert (report.recipes, report.indexed, report.unchanged) == ([OLD], 1, 3)
    assert old.model("b-1").recipes == (OLD.id,)
    assert old.linear_sketch("b-1") is None
    assert len(old.slots(old.model("b-1").key)[0].sketch) == 2 * sum(block_dims(OLD).values())


def test_a_query_and_a_model_that_is_added_go_on_under_their_family_s_version(old, family):
    recipe, later = old.find_recipe(None), str(family / "later")

    made = fingerprint_query(old, later, old.bases()[0], recipe)
    report = index_family(old, IndexOptions(base=str(family / "base"), models=(later,)))

    assert recipe == OLD
    assert made.fingerprints[0].vector.shape == (4096,)
    assert made.linear is None
    assert (report.recipes, report.indexed) == ([OLD], 1)


def test_an_upgrade_says_first_what_it_costs_and_keeps_what_there_was(old, family, caplog):
    caplog.set_level(logging.INFO, logger="deltadex")
    bytes_total = sum(row.record.bytes_total for row in old.models())

    report = index_family(old, _options(family, recipes=("sketch",)))

    upgrade = report.to_json()["upgrade"]
    assert (report.recipes, report.indexed) == ([NEW], 3)
    assert (upgrade["earlier"], upgrade["recipe"], upgrade["models"]) == (OLD.id, NEW.id, 3)
    assert upgrade["bytes_to_read"] == bytes_total > 0
    assert f"{OLD.id} → {NEW.id}: reads 3 models again" in caplog.text
    assert {row.recipes for row in old.models()} == {tuple(sorted((OLD.id, NEW.id)))}
    assert old.find_recipe(None) == NEW
    key = old.model("a-0").key
    assert len(old.slots(key, OLD.id)) == len(old.slots(key, NEW.id)) == len(old.slots(key)) == 12
    assert old.slots(key)[0].zero_share == 0.0
    # what was estimated is what is stored: vectors, sketches, linear sketches, of each model
    sketches = sum(len(stats.sketch) for stats in old.slots(key, NEW.id))
    linear = old.linear_sketch("a-0")
    numbers = linear.pooled.size + sum(layer.size for layer in linear.layers.values())
    assert upgrade["catalog_bytes"] == 3 * (4 * NEW.dim + sketches + 4 * numbers)

    (family / "later").rename(family / "models" / "b-1")
    again = index_family(old, _options(family))
    assert (again.recipes, again.indexed, again.unchanged, again.upgrade) == ([NEW], 1, 3, None)


def test_an_upgrade_continues_where_it_was_interrupted_and_another_budget_is_none(old, family):
    other = index_family(old, _options(family, budget="20%", limit=1))
    index_family(old, _options(family, recipes=("sketch",), limit=1))
    before = old.find_recipe(None)
    report = index_family(old, _options(family, recipes=("sketch",)))

    assert (other.recipes[0].version, other.recipes[0].share) == (3, 0.2)
    assert other.upgrade is None
    assert before == OLD
    assert (report.indexed, report.unchanged, report.upgrade.models) == (2, 1, 2)


def test_a_bert_base_model_takes_less_than_64_kib():
    n_slots, n_layers = 72, 12

    sketches = n_slots * sketch_bytes(block_dims(NEW))
    linear = 4 * (LINEAR_DIM + n_layers * LINEAR_LAYER_DIM)
    vector = 4 * NEW.dim

    assert (sketches, linear, vector) == (37_296, 16 * KIB, 8 * KIB)
    assert sketches + linear + vector <= 64 * KIB


# the linear sketch and zeros, from files


def test_sums_of_checkpoints_have_sums_of_sketches_in_any_form(tmp_path):
    base = make_bert(tmp_path / "base", seed=0, width=64)
    config = json.loads((tmp_path / "base" / "config.json").read_text("utf-8"))
    first, second = finetune(base, seed=1), finetune(base, seed=2, rank=3)
    merged = {name: base[name] + (first[name] - base[name]) + (second[name] - base[name])
              for name in base}  # fmt: skip
    for name, tensors, form in (
        ("first", first, {}),
        ("second", second, {"shards": 3, "order": sorted(second, reverse=True)}),
        ("merged", merged, {"form": "bin"}),
    ):
        make_checkpoint(tmp_path / "models" / name, tensors, config=config, **form)

    for budget in (None, "20%"):
        with Catalog.open(tmp_path / f"{budget}.duckdb") as catalog:
            report = index_family(catalog, _options(tmp_path, budget=budget))
            assert budget is None or report.bytes_read < 0.45 * report.bytes_total
            names, base_name = ("first", "second", "merged"), catalog.bases()[0]
            one, other, both = (catalog.linear_sketch(id, base_name) for id in names)

            # float32 weights near 0.02: roundings of 1e-9 an entry, 330,000 of them in 1,024
            # numbers near 0.05
            assert abs(both.pooled - one.pooled - other.pooled).max() < 1e-5 < abs(one.pooled).max()
            for key, numbers in both.layers.items():
                assert abs(numbers - one.layers[key] - other.layers[key]).max() < 1e-5


def test_matrices_that_did_not_change_are_all_zeros(tmp_path, catalog):
    base = make_bert(tmp_path / "base", seed=0)
    config = json.loads((tmp_path / "base" / "config.json").read_text("utf-8"))
    tuned = finetune(base, seed=1)
    half = {name: tuned[name] if "layer.1." in name else base[name] for name in base}
    down = "encoder.layer.1.output.dense.weight"
    half[down][:8] = base[down][:8]
    make_checkpoint(tmp_path / "models" / "m", half, config=config)

    index_family(catalog, _options(tmp_path))

    stats = catalog.slots(catalog.models()[0].key)
    linear = catalog.linear_sketch("m", catalog.bases()[0])
    shares = {str(s.slot): s.zero_share for s in stats}
    assert all((s.fro_norm == 0.0) == (s.slot.layer == 0) for s in stats)
    assert shares["encoder.0.q"] == 1.0
    assert shares["encoder.1.down"] == 8 / 32
    assert shares["encoder.1.q"] == 0.0
    assert linear.layers.keys() == {("encoder", 1)}
