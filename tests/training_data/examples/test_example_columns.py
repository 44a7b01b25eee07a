"""Columns are found by their names and by what is in them."""

import datetime
import hashlib
import uuid

import pytest
from data_set_files import write_csv, write_jsonl

from deltadex.training_data.examples import ColumnChoice, Example, read_examples
from deltadex.training_data.examples.labels import class_name, label_kind

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
VALUES = {
    "number": lambda i: i % 7,
    "class": lambda i: ("yes", "no")[i % 2],
    "text": lambda i: f"{WORDS[i % 9]} {WORDS[i % 7]} and so it went {i}",
    "short": lambda i: f"so {WORDS[i % 9]} {i}",
    "id": lambda i: i,
    "url": lambda i: f"https://example.org/a/very/long/path/to/some/page-{i}.html",
    "date": lambda i: f"2024-01-{i % 28 + 1:02}",
    "hash": lambda i: hashlib.sha256(str(i).encode()).hexdigest(),
    "uuid": lambda i: str(uuid.UUID(int=i)),
    "twitter date": lambda i: f"Tue Feb 24 11:{i % 60:02}:00 +0000 2015",
    "chinese": lambda i: f"今天天气很好我们去公园第{i}次",
}


def read(tmp_path, choice=None, **columns):
    rows = [{name: VALUES[kind](i) for name, kind in columns.items()} for i in range(60)]
    examples = read_examples(write_jsonl(tmp_path / "a.jsonl", rows), choice)
    return examples.kind, {found.part: (found.column, found.by) for found in examples.found}


@pytest.mark.parametrize(
    ("columns", "kind", "found"),
    [
        ({"Text": "text", "Label": "class"}, "classes", {"text": "Text", "label": "Label"}),
        ({"content": "short", "title": "text"}, "texts", {"text": "content"}),
        ({"tweet": "text", "stars": "number"}, "classes", {"text": "tweet", "label": "stars"}),
        (
            {"premise": "text", "hypothesis": "short", "label": "number"},
            "classes",
            {"text": "premise", "pair": "hypothesis", "label": "label"},
        ),
        (
            {"question": "short", "sentence": "text", "label": "class"},
            "classes",
            {"text": "question", "pair": "sentence", "label": "label"},
        ),
        (
            {"question": "short", "answer": "text", "label": "class"},
            "classes",
            {"text": "question", "pair": "answer", "label": "label"},
        ),
        (
            {"completion": "text", "prompt": "short"},
            "completions",
            {"text": "prompt", "completion": "completion"},
        ),
        (
            {"instruction": "text", "input": "short", "output": "text"},
            "completions",
            {"text": "instruction", "input": "input", "completion": "output"},
        ),
        (
            {"id": "id", "context": "text", "question": "short", "answer": "short"},
            "completions",
            {"text": "question", "pair": "context", "completion": "answer"},
        ),
        ({"text": "text", "target": "class"}, "classes", {"text": "text", "label": "target"}),
        (
            {"text": "text", "target": "short"},
            "completions",
            {"text": "text", "completion": "target"},
        ),
    ],
)
def test_columns_are_found_by_name(tmp_path, columns, kind, found):
    assert read(tmp_path, **columns) == (kind, {p: (c, "name") for p, c in found.items()})


@pytest.mark.parametrize("other", ["id", "url", "date", "hash", "uuid", "twitter date", "short"])
def test_the_text_is_the_column_with_the_longest_natural_text(tmp_path, other):
    kind, found = read(tmp_path, **{"x": other, "y": "text", "z": "class"})

    assert kind == "classes"
    assert found == {"text": ("y", "looks"), "label": ("z", "looks")}


def test_texts_of_scripts_without_spaces_are_texts(tmp_path):
    assert read(tmp_path, x="uuid", y="chinese")[1] == {"text": ("y", "looks")}


def test_two_columns_that_could_be_labels_are_none(tmp_path):
    assert read(tmp_path, x="text", y="class", z="class")[0] == "texts"


@pytest.mark.parametrize("other", ["id", "date", "url", "hash"])
def test_identifiers_dates_and_addresses_are_no_labels(tmp_path, other):
    assert read(tmp_path, x="text", y=other) == ("texts", {"text": ("x", "looks")})


def test_the_choice_overrides_names(tmp_path):
    choice = ColumnChoice(text="b", label="c")

    assert read(tmp_path, choice, text="text", b="short", label="number", c="class") == (
        "classes",
        {"text": ("b", "choice"), "label": ("c", "choice")},
    )
    assert read(tmp_path, ColumnChoice(label=""), text="text", label="number")[0] == "texts"


def test_a_chosen_completion_goes_with_the_text(tmp_path):
    choice = ColumnChoice(completion="b")

    assert read(tmp_path, choice, text="text", b="short", label="class")[1] == {
        "completion": ("b", "choice"),
        "text": ("text", "name"),
    }


def test_inputs_follow_instructions_and_answers_may_be_those_of_squad(tmp_path):
    rows = [
        {"instruction": f"Do {i}", "input": "this" * (i % 2), "output": f"done {i}"}
        for i in range(8)
    ]
    read = read_examples(write_jsonl(tmp_path / "a.jsonl", rows))
    assert Example(text="Do 1\n\nthis", completion="done 1") in read.examples
    assert Example(text="Do 2", completion="done 2") in read.examples

    rows = [
        {"context": f"It is {i}.", "question": f"What {i}?", "answers": {"text": [f"{i} it is"]}}
        for i in range(8)
    ]
    read = read_examples(write_jsonl(tmp_path / "b.jsonl", rows))
    assert Example(text="What 1?", completion="1 it is", pair="It is 1.") in read.examples


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([i % 10 / 2 for i in range(60)], "classes"),
        ([i / 7 for i in range(60)], "numbers"),
        ([str(i / 7) for i in range(60)], "numbers"),
        ([i % 5 for i in range(60)], "classes"),
        ([True, False] * 30, "classes"),
    ],
)
def test_many_fractions_are_numbers_and_few_values_are_classes(tmp_path, labels, kind):
    rows = [{"text": f"some words {i}", "score": label} for i, label in enumerate(labels)]

    for path in (write_csv(tmp_path / "a.csv", rows), write_jsonl(tmp_path / "a.jsonl", rows)):
        read = read_examples(path)

        assert read.kind == kind
        assert {type(example.label) for example in read.examples} == {
            float if kind == "numbers" else str
        }


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ((1, 1.0, "1", " 1 ", "1.0"), "1"),
        ((True, "True", "true"), "true"),
        ((0.5, "0.5"), "0.5"),
        (("very good", " very good"), "very good"),
        ((None, [1], {"a": 1}, float("nan"), datetime.date(2024, 1, 1)), None),
    ],
)
def test_a_label_has_the_same_name_from_every_format(values, name):
    assert {class_name(value) for value in values} == {name}


def test_as_many_names_as_rows_are_no_classes():
    assert label_kind({f"user{i}": 1 for i in range(60)}) == "names"
    assert label_kind({"a": 30, "b": 30}) == "classes"
