"""Two data sets made comparable: what is left out is said, and no class is lost on the way."""

import pytest
from data_set_files import write_csv
from tiny_task_models import tiny_task_model

from deltadex.data import make_data_set, matched_examples, read_examples
from deltadex.data.gradients import DataQueryOptions
from deltadex.errors import RequestError
from deltadex.indexer.fingerprint import make_recipe

LETTERS = "abcdefgh"


def read(path, numbers, label, **options):
    rows = [
        {"text": f"{LETTERS[i % 8]} {LETTERS[i // 8 % 8]} cab bed fed {i}", "label": label(i)}
        for i in numbers
    ]
    return read_examples(write_csv(path, rows), **options)


def sides(path, first, second, **options):
    one = read(path / "one.csv", *first, **options)
    return one, read(path / "two.csv", *second, **options)


def parity(i):
    return "ab"[i % 2]


def test_a_class_that_one_file_lacks_is_left_out_and_said(tmp_path):
    def rare(i):
        return "rare" if i == 7 else parity(i)

    data, control, left_out = matched_examples(
        *sides(tmp_path, (range(60), rare), (range(60, 120), parity))
    )

    assert {example.label for example in data.examples} == {"a", "b"}
    assert len(data.examples) == len(control.examples) == 59
    assert left_out == ("left out: classes that only one of the two has ('rare')",)


def test_no_class_is_lost_where_the_longer_draw_is_cut(tmp_path):
    def rare(i):
        return "rare" if i in (7, 1007) else parity(i)

    one, two = sides(tmp_path, (range(400), rare), (range(1000, 1040), rare))

    for side in matched_examples(one, two)[:2]:
        assert {example.label for example in side.examples} == {"a", "b", "rare"}
        assert len(side.examples) == 40


def test_files_of_other_classes_are_refused(tmp_path):
    one, two = sides(tmp_path, (range(60), parity), (range(60, 120), lambda i: "xy"[i % 2]))

    with pytest.raises(RequestError, match=r"one.csv has the classes 'a', 'b', two.csv 'x', 'y'"):
        matched_examples(one, two)


def test_a_class_of_one_row_does_not_end_in_one_class_with_labels_permuted(tmp_path):
    """The row is drawn in place of the last: 128 of the permuted control would miss it."""
    examples = read(
        tmp_path / "a.csv", range(300), lambda i: "rare" if i == 7 else "a", max_examples=160
    )

    made = make_data_set(
        tiny_task_model("bert", None),
        examples,
        name="a",
        base="base",
        recipe=make_recipe("sketch", None, ()),
        options=DataQueryOptions(max_tokens=8),
    )

    assert made.counts["classes"] == 2
    assert [part for part in made.sketches if part.startswith("shuffled")]
