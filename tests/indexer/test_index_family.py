import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from factories import finetune, make_bert, make_checkpoint, make_neox, read_config, save_models
from safetensors.torch import load_file, save_file

from deltadex.errors import BaseError
from deltadex.indexer import IndexOptions, index_family, run
from deltadex.indexer.fingerprint import family_layout, mean_factors_recipe
from deltadex.indexer.run import fingerprint_member
from deltadex.records import Slot
from deltadex.search import StoredQuery, evaluate, find_similar
from deltadex.store import Catalog


def _options(folder, **more):
    return IndexOptions(base=str(folder / "base"), source=folder / "models", **more)


def _codes(report):
    return {o.model.id: o.code for o in report.refused}


def _vector(catalog, id):
    row = catalog.model(id)
    return catalog.family(row.base, catalog.find_recipe(None, row.base)).by_id([id])[1][0]


def test_a_family_is_indexed_found_and_scored_and_a_second_run_reads_nothing(family, catalog):
    options = _options(family, labels=family / "models" / "labels.csv")
    report = index_family(catalog, options)

    assert (report.indexed, report.refused) == (4, [])
    assert find_similar(catalog, StoredQuery("a-0"), k=1).neighbours[0].model == "a-1"
    assert evaluate(catalog)["micro"] == 1.0
    assert evaluate(catalog, exclude="author")["micro"] == 1.0
    again = index_family(catalog, options)
    assert (again.indexed, again.unchanged, again.bytes_read) == (0, 4, 0)


def test_an_edited_card_of_a_folder_changes_labels_but_those_of_a_user(family, catalog):
    index_family(catalog, _options(family))
    catalog.label("a-0", dataset="mine")
    for id in ("a-0", "a-1"):
        (family / "models" / id / "README.md").write_text("---\ndatasets: imdb\n---\n")

    again = index_family(catalog, _options(family))

    assert (again.unchanged, again.bytes_read) == (4, 0)
    assert [catalog.model(id).dataset for id in ("a-0", "a-1")] == ["mine", "imdb"]


def test_embeddings_are_not_read_without_footprints(tmp_path, catalog):
    base = make_bert(tmp_path / "base", seed=0)
    wide = {**finetune(base, seed=1), "embeddings.word_embeddings.weight": torch.zeros(50_000, 32)}
    save_models(tmp_path, {"m": wide})

    report = index_family(catalog, replace(_options(tmp_path), footprints=False))

    assert report.indexed == 1
    assert report.bytes_read < 0.1 * report.bytes_total


def test_models_that_end_together_share_a_transaction_and_are_reported_after_it(
    family, catalog, monkeypatch
):
    groups, reported = [], []
    record_all = Catalog.record_all

    def counted(self, outcomes, at=None):
        record_all(self, outcomes, at)
        groups.append(len(outcomes))

    class Watching:
        def begin(self, models, bytes_total):
            pass

        def outcome(self, outcome):
            reported.append(outcome.model.id)
            assert outcome.model.id in {row.id for row in catalog.models()}

    monkeypatch.setattr(Catalog, "record_all", counted)
    monkeypatch.setattr(run, "GROUP_S", 60.0)

    index_family(catalog, _options(family), Watching())

    assert groups == [4]
    assert sorted(reported) == ["a-0", "a-1", "b-0", "b-1"]

    groups.clear()
    monkeypatch.setattr(run, "GROUP_S", 0.001)
    index_family(catalog, _options(family, recipes=("mean-factors",)))
    assert sum(groups) == 4
    assert len(groups) > 1


def test_shards_and_forms_do_not_change_the_fingerprint(tmp_path, catalog):
    base = make_bert(tmp_path / "base", seed=0)
    tuned, config = finetune(base, seed=1, rank=3), tmp_path / "base"
    models = tmp_path / "models"
    save_models(tmp_path, {"one": tuned, "prefix": {f"bert.{n}": t for n, t in tuned.items()}})
    make_checkpoint(
        models / "many", tuned, config=config, shards=4, order=sorted(tuned, reverse=True)
    )
    make_checkpoint(models / "bin", tuned, config=config, form="bin")

    index_family(catalog, _options(tmp_path))

    for other in ("many", "bin", "prefix"):
        assert _vector(catalog, "one") @ _vector(catalog, other) >= 0.9999


def test_storage_types_keep_the_direction_of_a_normal_update(tmp_path, catalog):
    least = {"float64": 0.9999, "float16": 0.99, "bfloat16": 0.97}
    base = make_bert(tmp_path / "base", seed=0, width=128)
    tuned = finetune(base, seed=1, rank=4, scale=0.01)
    for dtype in ("float32", *least):
        stored = {n: t.to(getattr(torch, dtype)) for n, t in tuned.items()}
        save_models(tmp_path, {dtype: stored})

    index_family(catalog, _options(tmp_path))

    near = {n.model: n.score for n in find_similar(catalog, StoredQuery("float32"), k=3).neighbours}
    for dtype, cosine in least.items():
        assert _vector(catalog, "float32") @ _vector(catalog, dtype) >= cosine
        assert near[dtype] >= cosine


def test_every_bad_model_gets_its_own_code_and_stops_nothing(tmp_path, catalog):
    base = make_bert(tmp_path / "base", seed=0)
    config, models = read_config(tmp_path / "base"), tmp_path / "models"
    tuned = finetune(base, seed=1)
    name = next(n for n in tuned if n.endswith("query.weight"))

    def made(id, tensors, **more):
        return make_checkpoint(models / id, tensors, config=more.pop("config", config), **more)

    made("good", tuned)
    made("far", finetune(base, seed=1, scale=0.9))  # a long fine-tune is not a stranger
    made("stranger", make_bert(tmp_path / "other", seed=9))
    made("nan", {**tuned, name: torch.full_like(tuned[name], float("nan"))})
    made("inf", {**tuned, name: torch.full_like(tuned[name], float("inf"))})
    made("huge", {**tuned, name: torch.full_like(tuned[name], 3e38)})
    made("huge-bf16", {**tuned, name: torch.full_like(tuned[name], 3e38).bfloat16()})
    made("huge-f64", {**tuned, name: torch.full_like(tuned[name].double(), 1e300)})
    made("same", base)
    made("same-bf16", {n: t.bfloat16() for n, t in base.items()})
    made("shallow", {n: t for n, t in tuned.items() if "layer.1." not in n})
    made("wide", {**tuned, name: torch.zeros(64, 32)})
    made("gptq", tuned, config={**config, "quantization_config": {"quant_method": "gptq"}})
    made("gpt2", tuned, config={**config, "model_type": "gpt2"})
    made("config", tuned)
    (models / "config" / "config.json").write_text("{")
    truncated = made("truncated", tuned) / "model.safetensors"
    truncated.write_bytes(truncated.read_bytes()[:-100])
    made("shard", tuned, shards=3)
    next((models / "shard").glob("*-00002-of-*")).unlink()
    made("pickle", tuned)
    (models / "pickle" / "model.safetensors").unlink()
    torch.save(tuned, models / "pickle" / "pytorch_model.bin", _use_new_zipfile_serialization=False)

    report = index_family(catalog, _options(tmp_path))

    huge = {"huge", "huge-bf16", "huge-f64"}
    assert _codes(report) == {
        **dict.fromkeys({"nan", "inf"} | huge, "non-finite"),
        **dict.fromkeys(("same", "same-bf16"), "no-update"),
        "stranger": "wrong-base",
        "wide": "shape-mismatch",
        "gptq": "quantized",
        "gpt2": "other-base",
        "config": "bad-config",
        "truncated": "truncated",
        "shard": "missing-shard",
        "pickle": "legacy-pickle",
    }
    assert report.indexed == 3
    (note,) = catalog.model("shallow").notes
    assert note.startswith("its layers are other layers of the base (6 of the base's 12 matrices")
    assert note.endswith("layer 1 dropped")
    reasons = {o.model.id: o.reason for o in report.refused}
    assert "|ΔW|/|W| = 1.4" in reasons["stranger"]
    assert {id for id, reason in reasons.items() if "NaN or infinity" in reason} == {"nan", "inf"}
    assert {id for id, reason in reasons.items() if f"{name!r} overflows: " in reason} == huge
    assert all("\n" not in reason for reason in reasons.values())
    again = index_family(catalog, _options(tmp_path))
    assert (_codes(again), again.bytes_read) == (_codes(report), 0)


def test_an_id_of_another_folder_is_not_overwritten(family, tmp_path, catalog):
    index_family(catalog, _options(family))
    before = _vector(catalog, "a-0")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(family / "models" / "b-0", elsewhere / "a-0")

    report = index_family(catalog, replace(_options(family), source=elsewhere))

    assert _codes(report) == {"a-0": "id-taken"}
    assert np.array_equal(_vector(catalog, "a-0"), before)


def test_a_model_whose_weights_were_taken_away_stays_indexed(family, catalog):
    index_family(catalog, _options(family))
    before = _vector(catalog, "a-0")
    folder = family / "models" / "a-0"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(family / "base")})
    )

    report = index_family(catalog, _options(family))

    assert _codes(report) == {"a-0": "no-weights"}
    assert catalog.model("a-0").status == "indexed"
    assert np.array_equal(_vector(catalog, "a-0"), before)


def test_a_base_that_cannot_be_used_is_one_clear_line(family, catalog):
    weights = family / "base" / "model.safetensors"
    tensors = load_file(weights)
    name = next(n for n in tensors if n.endswith("query.weight"))
    save_file({**tensors, name: tensors[name] * float("nan")}, weights)

    report = index_family(catalog, _options(family))

    assert set(_codes(report).values()) == {"needs-base"}
    assert "NaN" in report.refused[0].reason
    weights.unlink()
    with pytest.raises(BaseError, match="no-weights"):
        index_family(catalog, _options(family))


def test_a_refused_model_is_read_again_if_that_is_asked_for(family, catalog, monkeypatch):
    weights = family / "models" / "a-0" / "model.safetensors"
    tensors = {name: t * float("nan") for name, t in load_file(weights).items()}
    save_file(tensors, weights)
    read = []

    def noted(member, *arguments):
        read.append(member.record.id)
        return fingerprint_member(member, *arguments)

    monkeypatch.setattr(run, "fingerprint_member", noted)
    reports = [
        index_family(catalog, _options(family, **more)) for more in ({}, {}, {"retry_failed": True})
    ]

    assert sorted(read) == ["a-0", "a-0", "a-1", "b-0", "b-1"]
    assert [_codes(report) for report in reports] == [{"a-0": "non-finite"}] * 3


def test_both_recipes_from_one_reading(family, catalog):
    labels = family / "models" / "labels.csv"

    report = index_family(
        catalog, _options(family, recipes=("sketch", "mean-factors"), labels=labels)
    )

    assert report.indexed == 4
    assert len(catalog.model("a-0").recipes) == 2
    assert evaluate(catalog, recipe="mean-factors")["queries"] == 4
    rows = {**dict.fromkeys(("q", "k", "v", "o", "down"), 32), "up": 64}
    layout = family_layout([(Slot("encoder", 0, role), n) for role, n in rows.items()])
    assert catalog.find_recipe("mean-factors") == mean_factors_recipe(8, layout)


def test_a_fused_matrix_of_another_shape_is_a_mismatch_of_shapes(tmp_path, catalog):
    base = load_file(make_neox(tmp_path / "base") / "model.safetensors")
    name = next(iter(base))
    save_models(tmp_path, {"narrow": {**finetune(base, seed=1), name: torch.zeros(40, 32)}})

    (refused,) = index_family(catalog, _options(tmp_path)).refused

    assert refused.code == "shape-mismatch"
    assert f"{name!r} gives decoder.0.qkv the shape (40, 32), the base has (96, 32)" in str(refused)
