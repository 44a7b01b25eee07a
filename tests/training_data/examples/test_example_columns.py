"""Columns are found by their names and by what is in them."""

import datetime
import hashlib
import uuid

import pytest
from data_set_files import write_csv, write_jsonl

from deltadex.data import ColumnChoice, Example, read_examples
from deltadex.data.columns import class_name, label_kind

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
        (
            {"premise": "text", "hypothesis": "short", "label": "number"},
            "classes",
            {"text": "premise", "pair": "hypothesis", "label": "label"},
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
    ],
)
def test_columns_are_found_by_name(tmp_path, columns, kind, found):
    assert read(tmp_path, **columns) == (kind, {p: (c, "name") for p, c in found.items()})


@pytest.mark.parametrize(
    ("columns", "kind", "found"),
    [
        *(
            ({"x": other, "y": "text", "z": "class"}, "classes", {"text": "y", "label": "z"})
            for other in ("id", "url", "uuid", "twitter date", "short")
        ),
        ({"x": "uuid", "y": "chinese"}, "texts", {"text": "y"}),
        # two columns that could be labels are none; nor are identifiers, dates and addresses
        ({"x": "text", "y": "class", "z": "class"}, "texts", {"text": "x"}),
        *(({"x": "text", "y": other}, "texts", {"text": "x"}) for other in ("date", "hash")),
    ],
)
def test_the_text_is_the_longest_natural_text_and_the_label_the_only_one(
    tmp_path, columns, kind, found
):
    assert read(tmp_path, **columns) == (kind, {p: (c, "looks") for p, c in found.items()})


def test_many_classes_are_classes_in_every_draw(tmp_path):
    label = "a long class name, of {}: ".ljust(60)
    rows = [{"text": f"some words {i}", "label": label.format(i % 500)} for i in range(1000)]
    path = write_csv(tmp_path / "a.csv", rows)

    for options in ({"max_examples": 128}, {"max_examples": 64, "seed": 3}):
        read = read_examples(path, **options)

        assert (read.kind, len(read.classes)) == ("classes", 500)
        assert all(isinstance(example.label, str) for example in read.examples)


def test_the_choice_overrides_names(tmp_path):
    choice = ColumnChoice(text="b", label="c")

    wanted = ("classes", {"text": ("b", "choice"), "label": ("c", "choice")})
    assert read(tmp_path, choice, text="text", b="short", label="number", c="class") == wanted
    assert read(tmp_path, ColumnChoice(label=""), text="text", label="number")[0] == "texts"


def test_a_chosen_completion_goes_with_the_text(tmp_path):
    choice = ColumnChoice(completion="b")

    wanted = {"completion": ("b", "choice"), "text": ("text", "name")}
    assert read(tmp_path, choice, text="text", b="short", label="class")[1] == wanted


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


@pytest.mark.parametrize(
    ("values", "rows", "kind"),
    [
        (range(101), 5, "numbers"),  # a percentage
        ([*range(75), *range(77, 600)], 2, "classes"),  # a file may lack a few
        (range(999), 2, "classes"),
        (range(1000), 2, "numbers"),  # further ones are not counted
        (range(300), 1, "names"),
        ([f"intent {i}" for i in range(999)], 2, "classes"),
        ([f"intent {i}" for i in range(1000)], 2, "names"),
        (["a", "b"], 30, "classes"),
    ],
)
def test_numbers_of_classes_leave_few_out_and_names_of_rows_are_none(values, rows, kind):
    assert label_kind({str(value): rows for value in values}) == kind
