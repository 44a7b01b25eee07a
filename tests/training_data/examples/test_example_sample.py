"""The drawn sample is a function of the texts, the size and the seed alone."""

import random

import pytest
from data_set_files import reviews, write_csv, write_jsonl, write_parquet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltadex.data import ColumnChoice, read_examples
from deltadex.data.examples import Example, HashSample
from deltadex.data.rows import data_files, text_tables

LETTERS = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"))
TEXTS = st.lists(st.text(LETTERS, min_size=3).map(str.strip), min_size=9, max_size=40)
ROWS = TEXTS.map(
    lambda texts: [{"text": f"words {text} é", "label": i % 2} for i, text in enumerate(texts)]
).filter(lambda rows: len({row["text"] for row in rows}) >= 9)
FILES = settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FILES
@given(rows=ROWS, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_formats_and_the_order_of_rows_do_not_change_the_sample(tmp_path, rows, seed, order):
    shuffled = rows.copy()
    order.shuffle(shuffled)

    drawn = [
        read_examples(path, max_examples=8, seed=seed)
        for path in (
            write_csv(tmp_path / "a.csv", rows),
            write_jsonl(tmp_path / "a.jsonl", rows),
            write_parquet(tmp_path / "a.parquet", rows),
            write_csv(tmp_path / "b.csv", shuffled),
        )
    ]

    assert all(read.examples == drawn[0].examples for read in drawn)
    assert all(read.classes == drawn[0].classes for read in drawn)


@FILES
@given(rows=ROWS, block=st.integers(1, 200))
def test_the_size_of_a_block_does_not_change_the_sample(tmp_path, rows, block):
    csv = write_csv(tmp_path / "a.csv", rows)
    json = tmp_path / "a.json"
    json.write_text("[" + ",\n".join(write_jsonl(json, rows).read_text().splitlines()) + "]")
    parquet = write_parquet(tmp_path / "a.parquet", rows)
    whole = [read_examples(path, max_examples=8) for path in (csv, json, parquet)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_tables, "BLOCK_BYTES", block + 64)
        patch.setattr(text_tables, "BLOCK_CHARACTERS", block)
        patch.setattr(data_files, "BATCH_ROWS", block)
        in_blocks = [read_examples(path, max_examples=8) for path in (csv, json, parquet)]

    assert in_blocks == whole


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(tmp_path):
    path = write_csv(tmp_path / "a.csv", reviews(200))

    wanted = read_examples(path, max_examples=20).examples
    assert read_examples(path, max_examples=100).examples[:20] == wanted
    assert (
        read_examples(path, max_examples=20, seed=1).examples
        != read_examples(path, max_examples=20).examples
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_draw_misses_no_class_that_it_has_room_for(tmp_path, seed):
    """Two rare classes of a row in 600: a draw of 16 has one of them in 1 of 20 draws."""
    rows = [
        {"text": f"words {i}", "label": "ab"[i % 2] if i % 300 else f"rare{i // 300}"}
        for i in range(600)
    ]
    read = read_examples(write_csv(tmp_path / "a.csv", rows), max_examples=16, seed=seed)
    other = [{**row, "label": "ab"[i % 2]} for i, row in enumerate(rows)]
    plain = read_examples(write_csv(tmp_path / "b.csv", other), max_examples=16, seed=seed)

    assert {name for name, drawn in read.classes.items() if drawn} == {"a", "b", "rare0", "rare1"}
    assert len(read.examples) == 16
    texts, of_plain = ([example.text for example in one.examples] for one in (read, plain))
    assert sum(a != b for a, b in zip(texts, of_plain, strict=True)) <= 2
    shuffled = random.Random(seed).sample(rows, len(rows))
    again = read_examples(write_csv(tmp_path / "c.csv", shuffled), max_examples=16, seed=seed)
    assert again.examples == read.examples


def test_more_classes_than_examples_are_drawn_as_rows_are(tmp_path):
    rows = [{"text": f"words {i}", "label": f"class {i % 40}"} for i in range(400)]

    read = read_examples(write_csv(tmp_path / "a.csv", rows), max_examples=16)
    without = read_examples(tmp_path / "a.csv", ColumnChoice(label=""), max_examples=16)

    assert [e.text for e in read.examples] == [e.text for e in without.examples]
    drawn = sum(n > 0 for n in read.classes.values())
    assert f"{drawn} of the classes are drawn" in read.describe()


def test_equal_texts_are_drawn_once_with_the_first_label_by_name():
    offers = [Example(text=f"text {i}", label=label) for i in range(20) for label in ("b", "a")]
    random.Random(0).shuffle(offers)
    sample = HashSample(10, 0)

    for example in offers:
        sample.offer(sample.key(example), example)

    drawn = [example for example, _ in sample.drawn(are_classes=False)]
    assert len({example.text for example in drawn}) == len(drawn) == 10
    assert {example.label for example in drawn} == {"a"}
