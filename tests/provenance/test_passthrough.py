"""A model with whole layers of several models names them, or says that they were looked for."""

import json

import pytest
import torch
from factories import finetune, make_bert, make_checkpoint
from test_trace import LAYER

import deltadex as dx


def stacked(*slices):
    """The layers of some models, (tensors, first, end) each, one after the other, as mergekit's
    passthrough writes them."""
    first = slices[0][0]
    out = {n: t for n, t in first.items() if not LAYER.search(n)}
    sources = [(tensors, layer) for tensors, a, b in slices for layer in range(a, b)]
    for number, (tensors, layer) in enumerate(sources):
        for name, tensor in tensors.items():
            match = LAYER.search(name)
            if match and int(match[2]) == layer:
                out[LAYER.sub(rf"\g<1>{number}.", name)] = tensor.clone()
    return out


class Family:
    def __init__(self, folder):
        self.folder = folder
        self.base = make_bert(folder / "base", seed=0, layers=6, width=64)
        self.config = json.loads((folder / "base" / "config.json").read_text())
        self.tuned = [finetune(self.base, seed=seed) for seed in range(1, 6)]
        for number, tensors in enumerate(self.tuned):
            self.save(f"models/m{number}", tensors)
        with dx.open(folder / "c.duckdb") as db:
            db.index(folder / "base", folder / "models")

    def save(self, name, tensors):
        return make_checkpoint(self.folder / name, tensors, config=self.config)

    def trace(self, name, *slices, change=lambda tensors: tensors):
        folder = self.save(name, change(stacked(*slices)))
        with dx.open(self.folder / "c.duckdb") as db:
            return db.trace(str(folder)).to_json()


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return Family(tmp_path_factory.mktemp("passthrough"))


def slices_of(answer):
    return {row["model"]: row["slices"] for row in answer["parents"]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parents_of_a_passthrough_merge_are_named_with_their_layers(family, dtype):
    first, second = family.tuned[0], family.tuned[2]
    answer = family.trace(
        f"two-{dtype}",
        (first, 0, 4),
        (second, 2, 6),
        change=lambda t: {n: v.to(dtype) if v.is_floating_point() else v for n, v in t.items()},
    )

    assert (answer["verdict"], answer["method"], answer["complete"]) == (
        "merge",
        "passthrough",
        True,
    )
    assert slices_of(answer) == {
        "m0": [[0, 0], [1, 1], [2, 2], [3, 3]],
        "m2": [[4, 2], [5, 3], [6, 4], [7, 5]],
    }
    said = "a passthrough merge of m0 (layers 0 to 3) and m2 (layers 2 to 5)"
    assert said in answer["sentence"]


def test_a_shorter_model_of_two_is_one_too(family):
    answer = family.trace("short", (family.tuned[1], 0, 2), (family.tuned[3], 4, 6))

    assert slices_of(answer) == {"m1": [[0, 0], [1, 1]], "m3": [[2, 4], [3, 5]]}


def test_layers_of_the_base_itself_are_a_parents(family):
    answer = family.trace("own", (family.base, 0, 4), (family.tuned[1], 2, 6))

    assert set(slices_of(answer)) == {str(family.folder / "base"), "m1"}


def test_training_since_is_said(family):
    answer = family.trace(
        "since",
        (family.tuned[0], 0, 4),
        (family.tuned[2], 2, 6),
        change=lambda t: finetune(t, seed=9, scale=0.01),
    )

    assert (answer["verdict"], answer["complete"]) == ("merge", False)
    assert set(slices_of(answer)) == {"m0", "m2"}
    assert "changed since" in answer["sentence"]


def test_one_models_layers_twice_are_no_merge(family):
    answer = family.trace("self", (family.tuned[3], 0, 4), (family.tuned[3], 2, 6))

    assert (answer["verdict"], answer["parents"]) == ("transformed", [])
    assert [row["model"] for row in answer["related"]] == ["m3"]
    assert "its layers are those of m3" in answer["sentence"]


def test_parents_that_are_not_indexed_are_said_to_be_missing(family):
    strange = [finetune(family.base, seed=seed) for seed in (70, 71)]
    none = family.trace("none", (strange[0], 0, 4), (strange[1], 2, 6))
    half = family.trace("half", (family.tuned[1], 0, 4), (strange[1], 2, 6))

    assert "its layers are those of none of the 6 models that were compared" in none["sentence"]
    assert "layers 4 to 7 of none of the 6 models that were compared" in half["sentence"]
    assert none["verdict"] == half["verdict"] == "transformed"


def test_models_whose_files_are_gone_are_counted_as_not_compared(family):
    moved = family.folder / "models" / "m2"
    moved.rename(family.folder / "elsewhere")
    try:
        answer = family.trace("gone", (family.tuned[0], 0, 4), (family.tuned[2], 2, 6))
    finally:
        (family.folder / "elsewhere").rename(moved)

    assert "not compared: 1 whose files are not on this machine" in answer["sentence"]
    assert [row["model"] for row in answer["related"]] == ["m0"]
