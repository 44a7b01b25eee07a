"""The base that `trace` finds is the one that a model was made from, and no decoy has one."""

import pytest
import torch
from factories import (
    LAYER,
    configure,
    finetune,
    fused_adapter,
    in_order,
    make_bert,
    make_checkpoint,
    make_neox,
    write_files,
)
from traced_bases import MAKERS

import deltadex as dx
from deltadex.errors import RequestError, UnknownModel

ARCHITECTURES = sorted(MAKERS)
FIRST = [
    pytest.param(name, marks=[] if name == "bert" else pytest.mark.slow) for name in ARCHITECTURES
]
"""One architecture always, the others in test-all."""


def each_matrix(tensors, change):
    return {n: change(t) if LAYER.search(n) and t.dim() == 2 else t for n, t in tensors.items()}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_fine_tune_comes_from_its_base_and_a_copy_is_one(bases, tmp_path, name):
    tuned = bases.trace(tmp_path / "tuned", name, finetune(bases.tensors[name], seed=1))
    copied = bases.trace(tmp_path / "copy", name, bases.tensors[name], shards=2)

    layers = bases.configs[name].get("num_hidden_layers", 4)
    assert (tuned["verdict"], tuned["base"]) == ("fine-tune", bases.path(name))
    assert tuned["layers"] == [[layer, layer] for layer in range(layers)]
    assert tuned["p"] <= 1e-6
    assert tuned["distance"] == pytest.approx(0.05, rel=0.2)
    assert tuned["changes"] == copied["changes"] == []
    assert (copied["verdict"], copied["distance"]) == ("copy", 0.0)
    assert copied["sentence"].endswith(f": a copy of {bases.path(name)}")


@pytest.mark.parametrize(
    ("name", "order", "change"),
    [
        ("bert", (0, 2, 3), "layer 1 dropped"),
        ("gpt2", (0, 1, 1, 2, 3), "layer 1 duplicated"),
        ("llama", (0, 1, 2, 1, 2, 3), "layers 1, 2 duplicated"),
        ("bert", (3, 1, 0, 2), "layers in another order"),
        ("gpt2", (0, 2, 1, 3, 2, 0, 3, 1), "layers 0 to 3 duplicated; layers interleaved"),
    ],
)
def test_the_layer_map_says_what_was_done_to_layers(bases, tmp_path, name, order, change):
    kept = finetune(bases.tensors[name], seed=1, scale=0.02)
    rest = range(4, bases.configs[name].get("num_hidden_layers", 4))

    answer = bases.trace(tmp_path / "m", name, in_order(kept, [*order, *rest]))

    assert answer["layers"] == [[i, layer] for i, layer in enumerate([*order, *rest])]
    assert (answer["verdict"], answer["base"]) == ("transformed", bases.path(name))
    assert "; ".join(answer["changes"]) == change
    assert "; whether its layers are of several models was not looked for)" in answer["sentence"]


def int8(matrix):
    step = matrix.abs().amax(dim=1, keepdim=True) / 127
    return torch.round(matrix / step) * step


def four_bits(matrix):
    groups = matrix.reshape(-1, 32)
    step = groups.abs().amax(dim=1, keepdim=True) / 7
    return (torch.round(groups / step) * step).reshape(matrix.shape)


def pruned(matrix):
    return torch.where(matrix.abs() < matrix.abs().median(), 0.0, matrix)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("gpt2", int8, "as of 8 bits"),
        ("llama", four_bits, "as of 4 bits"),
        ("gpt2", pruned, "% of the entries of its"),
    ],
)
def test_values_that_were_rounded_or_pruned_are_named(bases, tmp_path, name, change, words):
    answer = bases.trace(tmp_path / "m", name, each_matrix(bases.tensors[name], change))

    assert (answer["verdict"], answer["base"]) == ("transformed", bases.path(name))
    assert len(answer["changes"]) == 1
    assert words in answer["changes"][0]


def test_a_copy_in_a_shorter_type_is_a_copy_and_a_grown_vocabulary_is_named(bases, tmp_path):
    tensors = bases.tensors["bert"]
    short = bases.trace(tmp_path / "short", "bert", {n: t.bfloat16() for n, t in tensors.items()})
    words = "embeddings.word_embeddings.weight"
    grown = {**tensors, words: torch.cat([tensors[words], torch.ones(6, 32)])}
    larger = bases.trace(tmp_path / "grown", "bert", grown)

    wanted = ("copy", ["stored as bfloat16, the base as float32"])
    assert (short["verdict"], short["changes"]) == wanted
    wanted = ("transformed", ["vocabulary grown from 64 to 70"])
    assert (larger["verdict"], larger["changes"]) == wanted


@pytest.mark.parametrize("name", FIRST)
def test_renamed_tensors_are_found_by_shape_alone(bases, tmp_path, name):
    tuned = finetune(bases.tensors[name], seed=1)
    renamed = {f"w{number}": t for number, t in enumerate(tuned.values())}

    answer = bases.trace(tmp_path / "m", name, renamed)

    layers = bases.configs[name].get("num_hidden_layers", 4)
    assert (answer["verdict"], answer["base"]) == ("fine-tune", bases.path(name))
    assert answer["layers"] == [[layer, layer] for layer in range(layers)]
    assert answer["changes"] == ["tensors renamed"]


def shuffled(matrix, generator):
    order = torch.randperm(matrix.numel(), generator=generator)
    return matrix.flatten()[order].reshape(matrix.shape)


@pytest.mark.parametrize("name", FIRST)
def test_decoys_of_the_same_config_are_unknown(bases, tmp_path, name):
    generator = torch.Generator().manual_seed(7)
    base = bases.tensors[name]
    fresh = MAKERS[name](tmp_path / "fresh", 9)
    embedded = {n: base[n] if not LAYER.search(n) else t for n, t in fresh.items()}
    decoys = {
        "fresh": fresh,
        "base's embeddings": embedded,
        "shuffled": each_matrix(base, lambda t: shuffled(t, generator)),
    }

    for decoy, tensors in decoys.items():
        answer = bases.trace(tmp_path / decoy, name, tensors)
        assert (answer["verdict"], answer["base"], answer["layers"]) == ("unknown", None, []), decoy
        assert answer["p"] > 1e-6
        assert answer["sentence"].endswith("its weights are none of the 3 known bases'")


@pytest.mark.slow
def test_layers_beside_those_of_the_base_are_said_and_one_in_a_crowd_is_not_enough(bases, tmp_path):
    base, fresh = bases.tensors["llama"], MAKERS["llama"](tmp_path / "fresh", 9)
    replaced = bases.trace(
        tmp_path / "a", "llama", {n: fresh[n] if ".5." in n else base[n] for n in base}
    )
    alone = bases.trace(
        tmp_path / "b", "llama", {n: base[n] if ".5." in n else fresh[n] for n in base}
    )

    assert replaced["base"] == bases.path("llama")
    assert replaced["changes"] == ["layer 5 replaced, or not recognised"]
    assert alone["verdict"] == "unknown"


def test_neurons_that_were_permuted_are_named(bases, tmp_path):
    base = bases.tensors["llama"]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3))
    permuted = {
        n: t[order] if "gate" in n or "up_" in n else t[:, order] if "down" in n else t
        for n, t in base.items()
    }

    answer = bases.trace(tmp_path / "m", "llama", permuted)

    assert (answer["verdict"], answer["base"]) == ("transformed", bases.path("llama"))
    assert answer["changes"] == ["FFN neurons permuted in 6 of 6 layers"]


def test_of_equal_bases_all_are_named_and_the_first_by_name_is_chosen(bases, tmp_path):
    for name in ("twin-b", "twin-a", "other"):
        tensors = finetune(bases.tensors["bert"], seed=5) if name == "other" else None
        make_checkpoint(
            tmp_path / name, tensors or bases.tensors["bert"], config=bases.configs["bert"]
        )
    tuned = finetune(bases.tensors["bert"], seed=1, scale=0.02)
    model = make_checkpoint(tmp_path / "m", tuned, config=bases.configs["bert"])
    with dx.open(tmp_path / "c.duckdb") as db:
        db.known_bases.add(*(tmp_path / name for name in ("twin-b", "twin-a", "other")))

        answer = db.trace(str(model)).to_json()

    assert answer["base"] == str(tmp_path / "twin-a")
    wanted = [(str(tmp_path / "twin-b"), True), (str(tmp_path / "other"), False)]
    assert [(row["base"], row["as_close"]) for row in answer["alternatives"]] == wanted


def test_a_card_that_names_another_known_base_is_said(bases, tmp_path):
    config = {**bases.configs["bert"], "_name_or_path": bases.path("gpt2")}
    folder = make_checkpoint(tmp_path / "m", finetune(bases.tensors["bert"], seed=1), config=config)

    said = bases.db.trace(str(folder)).to_json()["notes"]
    configure(folder, _name_or_path=str(folder))
    itself = bases.db.trace(str(folder)).to_json()

    assert said == [f"its files name {bases.path('gpt2')}; its weights show {bases.path('bert')}"]
    assert itself["notes"] == ["its card names the model itself as its base"]
    assert itself["base"] == bases.path("bert")


@pytest.mark.slow
def test_a_matrix_without_numbers_is_no_evidence_and_costs_no_answer(bases, tmp_path):
    tensors = dict(bases.tensors["bert"])
    name = "encoder.layer.1.output.dense.weight"
    tensors[name] = torch.full_like(tensors[name], float("nan"))

    answer = bases.trace(tmp_path / "m", "bert", tensors)

    assert answer["base"] == bases.path("bert")
    assert answer["distance"] == 0.0


def test_what_cannot_be_traced_is_said_in_one_line(bases, tmp_path):
    quantised = {**bases.configs["bert"], "quantization_config": {"quant_method": "gptq"}}
    make_checkpoint(tmp_path / "gptq", bases.tensors["bert"], config=quantised)
    with pytest.raises(RequestError, match=r"quantized: weights are stored as GPTQ$"):
        bases.db.trace(str(tmp_path / "gptq"))
    with pytest.raises(UnknownModel, match="no model of the catalog and no folder"):
        bases.db.trace("nobody")
    with dx.open() as db, pytest.raises(RequestError, match="no base is known: `deltadex bases"):
        db.trace(bases.path("bert"))


def test_a_base_of_another_width_is_none_and_nothing_of_the_model_is_read(bases, tmp_path):
    make_bert(tmp_path / "wide", seed=0, width=64)

    answer = bases.db.trace(str(tmp_path / "wide")).to_json()

    assert (answer["verdict"], answer["p"]) == ("unknown", None)
    assert answer["bytes_read"] < 0.2 * answer["bytes_total"]  # the header


@pytest.mark.parametrize("width", [32, 64])
def test_a_fused_matrix_of_an_adapter_fits_the_base_that_has_it_in_three_slots(tmp_path, width):
    base = make_neox(tmp_path / "net")
    named = write_files(tmp_path / "named", fused_adapter(str(base), width=width))
    write_files(tmp_path / "models" / "unnamed", fused_adapter(None, width=width))
    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(base, tmp_path / "models")
        traced = db.trace(str(named)).to_json()

    found = ("fine-tune", str(base)) if width == 32 else ("unknown", None)
    assert (traced["verdict"], traced["base"]) == found
    assert report.to_json()["indexed"] == (width == 32)
