"""Every format gives the same examples; folders give the split that is wanted."""

import gzip
import hashlib

import pytest
from data_set_files import (
    NAMES,
    WRITERS,
    features,
    reviews,
    save_to_disk,
    write_csv,
    write_jsonl,
    write_parquet,
)

from deltadex.data import read_examples
from deltadex.errors import DataError


def texts(read):
    return {example.text for example in read.examples}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_examples(tmp_path, name):
    rows = reviews()
    expected = read_examples(write_csv(tmp_path / "expected.csv", rows), max_examples=20)

    actual = read_examples(WRITERS[name](tmp_path / name, rows), max_examples=20)

    assert actual.examples == expected.examples
    assert actual.classes == expected.classes
    assert (actual.kind, actual.rows, actual.skipped) == ("classes", 60, ())
    assert {row["review"] for row in rows} >= texts(actual)
    stars = {row["review"]: str(row["stars"]) for row in rows}
    assert all(example.label == stars[example.text] for example in actual.examples)


def test_class_names_come_from_parquet_and_from_a_saved_data_set(tmp_path):
    rows = reviews()
    expected = {row["review"]: NAMES[row["stars"]] for row in rows}

    for path in (
        write_parquet(tmp_path / "a.parquet", rows, features()),
        save_to_disk(tmp_path / "saved", rows, features()),
    ):
        read = read_examples(path)

        assert {example.text: example.label for example in read.examples} == expected
        assert tuple(read.classes) == NAMES


def test_rows_without_a_class_are_skipped(tmp_path):
    rows = reviews()
    rows[3]["stars"] = -1

    read = read_examples(write_parquet(tmp_path / "a.parquet", rows, features()))

    assert [(skip.reason, skip.rows, skip.first) for skip in read.skipped] == [
        ("no label", 1, "row 4")
    ]


def test_of_several_splits_train_is_read_unless_another_is_chosen(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    rows = reviews(80)
    save_to_disk(tmp_path / "train", rows[:60])
    save_to_disk(tmp_path / "test", rows[60:])

    train, test = read_examples(tmp_path), read_examples(tmp_path, split="test")

    assert (train.rows, test.rows) == (60, 20)
    assert "of split 'train'" in train.describe()
    assert not texts(train) & texts(test)
    with pytest.raises(DataError, match="no split 'dev'; choose with --split: test, train"):
        read_examples(tmp_path, split="dev")


def test_a_downloaded_repository_is_read_by_the_splits_in_its_names(tmp_path):
    (tmp_path / "README.md").write_text("# a data set\n")
    (tmp_path / ".git").mkdir()
    write_csv(tmp_path / ".git" / "train.csv", reviews())
    data = tmp_path / "data"
    data.mkdir()
    rows = reviews(90)
    write_parquet(data / "train-00000-of-00002.parquet", rows[:30])
    write_parquet(data / "train-00001-of-00002.parquet", rows[30:60])
    write_parquet(data / "validation-00000-of-00001.parquet", rows[60:])

    assert texts(read_examples(tmp_path)) == {row["review"] for row in rows[:60]}
    assert texts(read_examples(tmp_path, split="dev")) == {row["review"] for row in rows[60:]}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "no data file in it"),
        (("en/train.csv", "fr/train.csv"), r"several folders \(en, fr\); name one"),
        (("train.csv", "train.jsonl"), r"several formats \(.csv, .jsonl\); name one"),
        (("dev.csv", "test.csv"), "no split 'train'; choose with --split: test, validation"),
    ],
)
def test_a_folder_that_is_not_one_data_set_is_refused(tmp_path, names, message):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        (write_csv if path.suffix == ".csv" else write_jsonl)(path, reviews())

    with pytest.raises(DataError, match=message):
        read_examples(tmp_path)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", "not JSON"),
        ('{"_data_files": []}', "names no data files"),
        ('{"_data_files": [{"filename": "../other.arrow"}]}', "outside its folder"),
        ('{"_indices_files": [{"filename": "i.arrow"}]}', "flatten_indices"),
        ('{"_data_files": [{"filename": "lost.arrow"}]}', "lost.arrow: no such file"),
    ],
)
def test_a_damaged_saved_data_set_is_refused(tmp_path, state, message):
    (save_to_disk(tmp_path / "saved", reviews()) / "state.json").write_text(state)

    with pytest.raises(DataError, match=message):
        read_examples(tmp_path / "saved")


def test_the_digest_is_of_the_file_or_of_the_names_and_bytes_of_a_folder(tmp_path):
    path = write_csv(tmp_path / "train.csv", reviews())

    assert read_examples(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    before = read_examples(tmp_path).sha256
    path.rename(tmp_path / "train-0.csv")
    assert read_examples(tmp_path).sha256 != before != read_examples(tmp_path).sha256


def test_lines_of_plain_text_are_texts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i} of it\n" for i in range(12)) + "\nx\n")

    read = read_examples(path)

    assert texts(read) == {f"line {i} of it" for i in range(12)}
    wanted = {("empty", "line 13"), ("too short", "line 14")}
    assert {(skip.reason, skip.first) for skip in read.skipped} == wanted
    assert "a text in each line" in read.describe()


def test_paragraphs_of_a_book_are_texts(tmp_path):
    end = "\r\n"
    blocks = [end.join((f"Paragraph {i} goes", "over two lines.")) for i in range(12)]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress((end + end).join(blocks).encode()))

    read = read_examples(path)

    assert texts(read) == {f"Paragraph {i} goes over two lines." for i in range(12)}
    assert "a text in each paragraph" in read.describe()


def test_the_sentence_says_what_was_read(tmp_path):
    rows = [*reviews(), {"id": 0, "review": " ", "stars": 1}]

    read = read_examples(write_csv(tmp_path / "reviews.csv", rows), max_examples=32, seed=4)

    assert read.describe() == (
        'reviews.csv: 32 of 61 rows drawn (seed 4); text = column "review" (by name), '
        'label = column "stars" (by name, 3 classes); 1 row skipped: 1 empty (first: line 62)'
    )
