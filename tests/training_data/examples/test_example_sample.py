"""The drawn sample is a function of the texts, the size and the seed alone."""

import random
from collections import Counter

import pytest
from data_set_files import reviews, write_csv, write_jsonl, write_parquet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltadex.text_files import text_stream
from deltadex.training_data.examples import arrow_table, json_table, read_examples
from deltadex.training_data.examples.example import Example
from deltadex.training_data.examples.sample import Sample

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
        patch.setattr(text_stream, "BLOCK_BYTES", block + 64)
        patch.setattr(json_table, "BLOCK_CHARACTERS", block)
        patch.setattr(arrow_table, "BATCH_ROWS", block)
        in_blocks = [read_examples(path, max_examples=8) for path in (csv, json, parquet)]

    assert in_blocks == whole


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(tmp_path):
    path = write_csv(tmp_path / "a.csv", reviews(200))

    assert (
        read_examples(path, max_examples=100).examples[:20]
        == read_examples(path, max_examples=20).examples
    )
    assert (
        read_examples(path, max_examples=20, seed=1).examples
        != read_examples(path, max_examples=20).examples
    )


def test_every_row_is_drawn_as_often_as_every_other():
    examples = [Example(text=f"text {i}") for i in range(50)]
    drawn = Counter()
    for seed in range(400):
        sample = Sample(10, seed)
        for example in examples:
            sample.offer(sample.key(example), example)
        drawn.update(example.text for example, _ in sample.drawn())

    # 400 draws at 1 in 5: mean 80, standard deviation 8
    assert len(drawn) == 50
    assert all(abs(count - 80) < 5 * 8 for count in drawn.values())
    assert sum((count - 80) ** 2 / 64 for count in drawn.values()) < 49 + 5 * 98**0.5


def test_equal_texts_are_drawn_once_with_the_first_label_by_name():
    offers = [Example(text=f"text {i}", label=label) for i in range(20) for label in ("b", "a")]
    random.Random(0).shuffle(offers)
    sample = Sample(10, 0)

    for example in offers:
        sample.offer(sample.key(example), example)

    drawn = [example for example, _ in sample.drawn()]
    assert len({example.text for example in drawn}) == len(drawn) == 10
    assert {example.label for example in drawn} == {"a"}
