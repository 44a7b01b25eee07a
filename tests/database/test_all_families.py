"""A data set asked of every family: an encoder's, a decoder's, and one whose base is away."""

import json
import shutil

import pytest
import torch
from factories import finetune, make_family, save_models, save_tokenizer, write_reviews
from running import run
from tiny_networks import tiny_model

import deltadex as dx
from deltadex.errors import DataError, RequestError

PAIRS = ("a", "b", "c", "d", "e", "f")


def make_gpt2_family(folder, *, models=4):
    """`folder/base` and `folder/models/M`: a tiny decoder, and random updates of it."""
    torch.manual_seed(0)
    base = tiny_model("gpt2", "ForCausalLM", vocab_size=64)
    base.save_pretrained(folder / "base")
    save_tokenizer(folder / "base")
    weights = base.state_dict()
    save_models(folder, {f"g-{n}": finetune(weights, seed=n) for n in range(models)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`c.duckdb` over twelve encoders, four decoders, and two whose base is away; `reviews.csv`."""
    folder = tmp_path_factory.mktemp("families")
    make_family(folder / "bert", pairs=PAIRS)
    save_tokenizer(folder / "bert" / "base")
    make_gpt2_family(folder / "gpt2")
    make_family(folder / "lost", pairs=("a",), runs=1)
    write_reviews(folder / "reviews.csv")
    with dx.open(folder / "c.duckdb") as db:
        for name in ("bert", "gpt2", "lost"):
            db.index(folder / name / "base", folder / name / "models")
    shutil.rmtree(folder / "lost" / "base")
    return folder


@pytest.fixture
def db(folder, tmp_path):
    shutil.copy(folder / "c.duckdb", tmp_path)
    with dx.open(tmp_path / "c.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def joint(folder):
    with dx.open(folder / "c.duckdb", read_only=True) as opened:
        return opened.data.find_models(folder / "reviews.csv", 20).to_json()


def names(rows):
    """Of families, without the folder that they are in."""
    return [row["base"].split("/")[-2] for row in rows]


def test_every_family_that_can_be_asked_answers_as_it_does_alone(folder, joint, db):
    assert names(joint["families"]) == ["bert", "gpt2"]
    assert [row["loss"] for row in joint["families"]] == ["classification", "causal"]
    assert (joint["query"]["loss"], joint["query"]["n_texts"], joint["compared"]) == (None, 24, 16)
    (left_out,) = joint["left_out"]
    assert names([left_out]) == ["lost"]
    assert "no such folder" in left_out["reason"]
    for family in joint["families"]:
        alone = db.data.find_models(folder / "reviews.csv", 20, base=family["base"]).to_json()
        own = [row for row in joint["neighbours"] if row["base"] == family["base"]]
        for key in ("model", "z", "probability", "dataset"):
            assert [row[key] for row in own] == [row[key] for row in alone["neighbours"]]
        assert [alone["query"][key] for key in ("reading", "control")] == [
            family[key] for key in ("reading", "control")
        ]
        assert (alone["left_out"], alone["families"][0]["seconds"] > 0) == ([], True)


@pytest.mark.slow
def test_a_name_keeps_the_data_set_of_every_family_and_each_answers_to_it(folder, db):
    from_file = db.data.find_models(folder / "reviews.csv", 20, keep="acme")
    from_name = db.data.find_models("acme", 20)
    db.data.remove("acme", base=str(folder / "gpt2" / "base"))
    of_one = db.data.find_models("acme").to_json()

    assert list(from_name) == list(from_file)
    assert names(of_one["families"]) == ["bert"]
    assert names(of_one["left_out"]) == ["gpt2", "lost"]
    assert "no data set of that name is kept" in of_one["left_out"][0]["reason"]


def test_what_no_model_of_a_family_passes_is_a_reason(folder, db):
    answer = db.data.find_models(folder / "reviews.csv", where="id LIKE 'g-%'").to_json()

    assert names(answer["families"]) == ["gpt2"]
    assert answer["query"]["loss"] == "causal"
    assert [row["reason"] for row in answer["left_out"]] == [
        "no model of it passes the filters"
    ] * 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"data": "nosuch.csv"}, RequestError, r"^nosuch.csv: no such file"),
        ({"where": "frog = 1"}, RequestError, r"is not a column"),
        ({"loss": "seq2seq"}, DataError, r"^none of 3 families can be asked: .*bert.*gpt2.*lost"),
    ],
)
def test_where_no_family_can_be_asked_the_reasons_are_one_error(
    folder, db, options, error, message
):
    with pytest.raises(error, match=message):
        db.data.find_models(**{"data": folder / "reviews.csv"} | options)


@pytest.mark.slow
def test_the_command_names_families_that_could_not_be_asked(folder):
    as_json = run(folder, "find-trained-on", folder / "reviews.csv", "--json")
    screen = run(folder, "find-trained-on", folder / "reviews.csv", "--label", "label")

    assert as_json.exit_code == 0, as_json.output
    assert names(json.loads(as_json.stdout)["left_out"]) == ["lost"]
    assert "lost/base is not asked" in as_json.stderr
    lines = screen.stdout.splitlines()
    assert len([line for line in lines if "lost/base" in line and "no such folder" in line]) == 1
    assert len([line for line in lines if "labels in column" in line]) == 1
    assert "models of 2 bases nearest to reviews.csv" in screen.stdout
