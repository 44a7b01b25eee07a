"""From two files and a family of tiny language models to an answer with a control."""

import csv

import numpy as np
import pytest
import torch
import transformers
from running import document, run
from tiny_networks import make_tokenizer, tiny_config

import deltadex as dx
from deltadex.errors import RequestError

MODELS, EXAMPLES = 12, 64


def random_texts(seed, n=EXAMPLES):
    rng = np.random.default_rng(seed)
    return [" ".join("".join(rng.choice(list("abcdefgh"), 3)) for _ in range(6)) for _ in range(n)]


def write_texts(path, texts):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """`base`, `models`, and files of what model 0 saw, of later texts, and of labelled ones."""
    folder = tmp_path_factory.mktemp("control")
    torch.manual_seed(0)
    base = transformers.AutoModelForCausalLM.from_config(tiny_config("gpt2")).float()
    tokenizer = make_tokenizer()
    for saved in (base, tokenizer):
        saved.save_pretrained(folder / "base")
    for number in range(MODELS):
        texts = random_texts(number)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
        train(model, tokenizer, texts)
        model.save_pretrained(folder / "models" / f"m{number}")
    write_texts(folder / "seen.csv", random_texts(0))
    write_texts(folder / "later.csv", random_texts(100))
    write_texts(folder / "few.csv", random_texts(101, 20))
    with dx.open(folder / "family.duckdb") as db:
        db.index(folder / "base", folder / "models")
    return folder


def train(model, tokenizer, texts):
    """Five steps over all texts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=24)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    for _ in range(5):
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def answer(family):
    with dx.open(family / "family.duckdb") as db:
        return db.data.find_models(family / "seen.csv", MODELS, control=family / "later.csv")


def test_the_model_of_the_data_is_told_from_models_of_other_data(answer):
    comparison = answer.to_json()["comparison"]
    assert comparison["control"] == "later.csv"
    assert (comparison["examples"], comparison["groups"]) == (EXAMPLES, 8)
    assert comparison["others"] == MODELS - 1
    assert [row["model"] for row in comparison["models"]] == [row["model"] for row in answer]
    by_model = {row["model"]: row for row in comparison["models"]}
    assert by_model["m0"]["verdict"] == "nearer to the data"
    assert by_model["m0"]["low"] > 0
    # of eleven at 5 %: four or more have a probability of .002
    assert sum(row["verdict"] != "cannot tell" for row in by_model.values()) <= 4


@pytest.mark.slow
def test_two_files_of_one_name_are_told_apart_and_what_they_share_is_said(family):
    """Labels of other classes do not count: a causal base uses none."""
    texts = random_texts(0, 104)
    for folder, part, label in (("one", texts[:64], "x"), ("two", texts[40:], "y")):
        (family / folder).mkdir()
        with (family / folder / "t.csv").open("w", newline="") as file:
            rows = [[text, f"{label}{i % 3}"] for i, text in enumerate(part)]
            csv.writer(file).writerows([["text", "label"], *rows])
    one, two = (str(family / name) for name in ("one/t.csv", "two/t.csv"))
    asked = (family / "family.duckdb", "find-trained-on", one, "--control", two, "-k", "2")

    answer, screen = document(*asked), " ".join(run(*asked).output.split())

    assert (answer["query"]["texts"], answer["comparison"]["control"]) == (one, two)
    assert answer["comparison"]["examples"] == 40
    assert "left out: 24 of 64 examples (38%) that" in answer["comparison"]["left_out"][0]
    assert "left out: 24 of 64 examples (38%)" in screen
    assert "against the control" in screen
    assert "label =" not in answer["query"]["reading"]
    assert answer["query"]["settings"]["columns"] == {"text": "text"}


@pytest.mark.parametrize(
    ("control", "line"),
    [("seen.csv", "same file"), ("few.csv", "at least 32"), ("none.csv", "no such file")],
)
def test_a_control_that_cannot_serve_is_refused(family, control, line):
    with dx.open(family / "family.duckdb") as db, pytest.raises(RequestError, match=line):
        db.data.find_models(family / "seen.csv", control=family / control)
