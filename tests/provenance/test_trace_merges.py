"""`trace` of merges: from files to the document and mergekit's config."""

import shutil

import pytest
import torch
import yaml
from factories import make_bert, make_checkpoint
from merging import dare
from safetensors.torch import load_file

import deltadex as dx
from deltadex.errors import RequestError


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, five fine-tunes, a copy of one, and merges of the first two; all but two indexed."""
    folder = tmp_path_factory.mktemp("merges")
    base = make_bert(folder / "base", seed=0, width=64)
    tuned = [
        make_bert(folder / "models" / f"m{n}", seed=n, width=64, base=base) for n in range(1, 6)
    ]
    shutil.copytree(folder / "models" / "m5", folder / "models" / "m5-again")
    first, second = tuned[:2]
    mean = {n: 0.7 * first[n] + 0.3 * second[n] for n in first}
    third, fourth = tuned[2:4]
    for name, tensors, classes in (("m3", third, 3), ("m4", fourth, 5)):
        head = {"classifier.weight": torch.zeros(classes, 64)}
        make_checkpoint(folder / "models" / name, tensors | head, config=folder / "base")
    headed = {n: 0.4 * third[n] + 0.6 * fourth[n] for n in first}
    updates = {n: torch.stack([third[n] - base[n], fourth[n] - base[n]]) for n in first}
    drawn = {n: base[n] + dare(pair, 0.5, 0.5) for n, pair in updates.items()}
    trained = {
        n: 0.5 * t + 0.5 * fourth[n] + 2e-5 * torch.randn(t.shape) if t.dim() == 2 else t
        for n, t in third.items()
    }
    trimmed = {n: without_outliers(base[n], third[n], fourth[n]) for n in first}
    merges = {"models/mean": mean, "drawn": drawn, "trained": trained, "trimmed": trimmed}
    merges["headed"] = headed
    merges["graded"] = {n: graded(n, t, fourth[n]) for n, t in third.items()}
    for name, tensors in merges.items():
        make_checkpoint(folder / name, tensors, config=folder / "base")
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", folder / "models")
    return folder


def graded(name, one, other):
    """A mean: .2 of one in the first layer, in others .8, but .6 in attention."""
    share = 0.2 if ".layer.0." in name else 0.6 if ".attention." in name else 0.8
    return share * one + (1 - share) * other


def without_outliers(base, *parents, density=0.6, outliers=0.05):
    """Model breadcrumbs (Davari, Belilovsky 2023)."""
    if base.dim() != 2:
        return parents[0]
    merged = base.clone()
    for part in (parent - base for parent in parents):
        ranks = part.abs().flatten().argsort(descending=True).argsort() / part.numel()
        kept = (ranks >= outliers) & (ranks < density + outliers)
        merged += 0.5 * part * kept.view_as(part)
    return merged


def trace(family, model, **options):
    with dx.open(family / "c.duckdb") as db:
        return db.trace(str(model), **options).to_json()


def weights(rows):
    return {row["model"]: row["weight"] for row in rows}


def test_an_indexed_merge_is_proven_and_written_as_mergekits_config(family, tmp_path):
    answer = trace(family, "mean", mergekit=tmp_path / "merge.yaml")

    assert (answer["verdict"], answer["method"], answer["complete"]) == ("merge", "linear", True)
    assert weights(answer["parents"]) == pytest.approx({"m1": 0.7, "m2": 0.3}, abs=1e-4)
    assert answer["reconstructed_share"] > 0.99
    assert answer["chance_share"] < 0.01
    text = (tmp_path / "merge.yaml").read_text("utf-8")
    assert yaml.safe_load(text) == {
        "merge_method": "linear",
        "dtype": "float32",
        "models": [
            {"model": str(family / "models" / name), "parameters": {"weight": weight}}
            for name, weight in (("m1", 0.7), ("m2", 0.3))
        ],
    }
    assert any(line.startswith("# reproduces ") for line in text.splitlines())


def test_weights_by_layer_and_of_attention_are_slices_with_a_filter(family, tmp_path):
    answer = trace(family, family / "graded", mergekit=tmp_path / "merge.yaml")

    slices = yaml.safe_load((tmp_path / "merge.yaml").read_text("utf-8"))["slices"]
    own = [
        {s["model"].rpartition("/")[2]: s["parameters"]["weight"] for s in one["sources"]}
        for one in slices
    ]
    assert answer["complete"] is True
    assert slices[0]["sources"][0]["layer_range"] == [0, 1]
    assert own[0] == {"m3": 0.2, "m4": 0.8}
    assert own[1]["m3"] == [{"filter": "attention", "value": 0.6}, {"value": 0.8}]


def test_a_folder_that_is_not_indexed_is_read_for_its_parents(family):
    answer = trace(family, family / "drawn")

    assert (answer["verdict"], answer["method"]) == ("merge", "dare_linear")
    assert weights(answer["parents"]) == pytest.approx({"m3": 0.5, "m4": 0.5}, abs=0.02)
    assert answer["density"] == pytest.approx(0.5, abs=0.02)


def test_training_after_a_merge_is_said_and_not_proven(family):
    answer = trace(family, family / "trained")

    assert (answer["verdict"], answer["complete"]) == ("merge", False)
    assert set(weights(answer["parents"])) == {"m3", "m4"}
    assert answer["reconstructed_share"] < 0.5
    assert "changed since" in answer["merge"]


def test_a_fine_tune_is_no_merge_and_has_no_config(family, tmp_path):
    answer = trace(family, "m3")

    assert (answer["verdict"], answer["parents"]) == ("fine-tune", [])
    assert answer["merge"] == "not a merge of what is indexed"
    with pytest.raises(RequestError, match="m3: no config file: not a merge"):
        trace(family, "m3", mergekit=tmp_path / "none.yaml")
    assert trace(family, "m5")["copies"] == ["m5-again"]


def test_a_part_of_an_indexed_merge_is_none_of_it_and_the_rest(family):
    answer = trace(family, "m1")

    assert (answer["verdict"], answer["parents"]) == ("fine-tune", [])
    assert "mean is a merge of it, with a weight of 0.7" in answer["notes"]


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("weight", "parents"), [(1, {}), (0.98, {"m1": 0.98}), (0.9, {"m1": 0.9})])
def test_a_copy_in_a_shorter_type_is_a_copy_and_a_scaled_update_none(
    family, tmp_path, type, weight, parents
):
    base, tuned = (load_file(family / n / "model.safetensors") for n in ("base", "models/m1"))
    short = {n: t.lerp(tuned[n], weight).to(type) for n, t in base.items()}
    make_checkpoint(tmp_path / "short", short, config=family / "base")

    answer = trace(family, tmp_path / "short")

    assert answer["verdict"] == ("merge" if parents else "fine-tune")
    assert answer["copies"] == ([] if parents else ["m1"])
    assert weights(answer["parents"]) == pytest.approx(parents, abs=2e-3)


def test_parents_whose_files_are_gone_are_named_and_not_proven(family):
    moved = family / "models" / "m1"
    moved.rename(family / "elsewhere")
    try:
        answer = trace(family, "mean")
    finally:
        (family / "elsewhere").rename(moved)

    assert answer["reconstructed_share"] is None
    assert weights(answer["parents"]) == pytest.approx({"m1": 0.7, "m2": 0.3}, abs=1e-3)
    assert "not proven by its weights: m1: not-found: its files are not there" in " ".join(
        answer["notes"]
    )


def test_a_parent_that_was_removed_is_missed(family, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path / "c.duckdb")
    with dx.open(tmp_path / "c.duckdb") as db:
        db.remove("m2")
        answer = db.trace("mean").to_json()

    assert answer["verdict"] == "fine-tune"
    assert weights(answer["related"]) == pytest.approx({"m1": 0.7}, abs=0.1)
    assert "a parent that is not indexed" in answer["merge"]


def test_of_a_method_that_is_not_known_parents_are_named_and_no_file_is_written(family, tmp_path):
    answer = trace(family, family / "trimmed")

    assert set(weights(answer["parents"])) == {"m3", "m4"}
    wanted = (None, None, None)
    assert (answer["method"], answer["complete"], answer["reconstructed_share"]) == wanted
    assert answer["merge"].startswith("a merge by a method that is not known: ")
    with pytest.raises(RequestError, match="no config file: a merge by a method that is not known"):
        trace(family, family / "trimmed", mergekit=tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


def test_heads_of_unequal_shape_are_named_in_the_file_and_are_no_part_of_the_recipe(
    family, tmp_path
):
    answer = trace(family, family / "headed", mergekit=tmp_path / "merge.yaml")

    assert (answer["method"], answer["complete"]) == ("linear", True)
    lines = (tmp_path / "merge.yaml").read_text("utf-8").splitlines()
    (note,) = [line for line in lines if "classifier.weight" in line]
    assert note.startswith("# of unequal shapes, no part of this recipe: classifier.weight;")
