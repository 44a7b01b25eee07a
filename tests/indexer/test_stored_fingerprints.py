"""What a model takes in a catalog; linear sketches and zeros, from files."""

import json

from factories import finetune, make_bert, make_checkpoint

from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.fingerprint import make_recipe
from deltadex.records import LINEAR_DIM, LINEAR_LAYER_DIM
from deltadex.store import Catalog, block_dims, sketch_bytes

RECIPE = make_recipe("sketch", None, ())
KIB = 1024


def _options(family, **more):
    return IndexOptions(base=str(family / "base"), source=family / "models", **more)


def test_a_bert_base_model_takes_less_than_64_kib():
    n_slots, n_layers = 72, 12

    sketches = n_slots * sketch_bytes(block_dims(RECIPE))
    linear = 4 * (LINEAR_DIM + n_layers * LINEAR_LAYER_DIM)
    vector = 4 * RECIPE.dim

    assert (sketches, linear, vector) == (37_296, 16 * KIB, 8 * KIB)
    assert sketches + linear + vector <= 64 * KIB


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
