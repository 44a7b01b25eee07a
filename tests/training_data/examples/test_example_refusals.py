"""Bad input: a clear line for a file that cannot be read, a count for a row that cannot."""

import gzip
import io
import json
import zipfile

import pytest
from data_set_files import reviews, write_csv, write_jsonl, write_parquet
from factories import write_file

from deltadex.data import ColumnChoice, read_examples
from deltadex.data.rows import text_tables
from deltadex.errors import DataError

ROWS = reviews()
ROW = '{"text": "one two"}'
LINES = "".join(f"some words {i},{i % 2}\n" for i in range(40))
BROKEN = "".join(f'{{"text": "some words {i}"}}\n' for i in range(40)) + "{broken\n" * 20
ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("a.csv", LINES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.parquet", b"", "the file is empty"),
        ("a.csv", "text,label\n", "no row with values"),
        ("a.csv", "text,label\none two,1\nthree four,0\nfive,1\n", "3 examples in 3 rows"),
        ("a.csv", "text\n" + "the same\n" * 50, "1 example in 50 rows, equal texts counted once"),
        ("a.csv", "id,n\n" + "1,2\n" * 20, "no column of texts found; .* --text: id, n"),
        ("a.csv", ",".join(["a"] * 1001) + "\n", "1,001 columns; at most 1,000"),
        ("a.csv", bytes(range(256)) * 40, "a binary file"),
        ("a.csv", b"PAR1" + b"x" * 100, "a parquet file, not a file of text"),
        ("a.csv", ZIP.getvalue(), "a zip archive"),
        ("a.txt", "some words\n".encode("utf-16-le") * 20, "without a byte order mark"),
        ("a.csv", b"\xff\xfe\x00\xd8\x41\x00" + b"a\x00" * 40, "says UTF-16.*save it as UTF-8"),
        ("a.csv.gz", gzip.compress(LINES.encode())[:-30], "ends before its data does"),
        ("a.csv.gz", b"\x1f\x8b" + b"\x07" * 50, "a damaged gzip file"),
        ("a.parquet", b"PAR1" + b"\0" * 100 + b"PAR1", "not a whole parquet file"),
        ("a.arrow", b"\xff\xff\xff\xff" + b"\1" * 100, "not a whole Arrow file"),
        ("a.parquet.gz", b"PAR1", "unpack the file"),
        ("a.pkl", b"cos\nsystem\n", "may be a pickle, which is never opened"),
        ("a.json", '{\n "data": [1]}', "one JSON object over many lines"),
        ("a.json", '[{"text": "one two"}, {"text": ', "the list ends in record 2"),
        ("a.json", f"[{ROW}]\n[{ROW}]", "more after its list of 1 record; write one list"),
        ("a.json", "[1, 2, 3]", "no record with a column; record 1: not an object"),
        ("a.jsonl", "text\nwords\n", "no record with a column; line 1: not JSON"),
        ("a.jsonl", BROKEN, r"20 of 60 rows cannot be used: 20 not JSON \(line 41\)"),
    ],
)
def test_a_file_that_is_no_data_set_is_refused_in_a_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as refusal:
        read_examples(write_file(tmp_path / name, content))

    assert "\n" not in str(refusal.value)
    assert name in str(refusal.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_examples(tmp_path / "lost.csv")


def test_a_damaged_parquet_is_refused(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xee" * 596 + data[600:])

    with pytest.raises(DataError, match="not a whole parquet file"):
        read_examples(path)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    path = write_csv(tmp_path / "a.csv", ROWS)

    with pytest.raises(DataError, match=r"no column 'x' for --pair; .*: id, review, stars"):
        read_examples(path, ColumnChoice(pair="x"))


def test_lists_of_labels_are_refused(tmp_path):
    rows = [{"text": f"some words {i}", "labels": [i % 3, 1]} for i in range(20)]

    with pytest.raises(DataError, match="column 'labels' has lists of labels"):
        read_examples(write_jsonl(tmp_path / "a.jsonl", rows))
    assert read_examples(tmp_path / "a.jsonl", ColumnChoice(label="")).kind == "texts"


def test_a_chosen_label_that_only_names_rows_is_refused(tmp_path):
    rows = [{"text": f"some words {i}", "who": f"user{i}"} for i in range(60)]
    path = write_csv(tmp_path / "a.csv", rows)

    with pytest.raises(DataError, match="no classes: 60 different values in 60 rows"):
        read_examples(path, ColumnChoice(label="who"))
    assert read_examples(path).kind == "texts"


@pytest.mark.parametrize(
    ("name", "extra", "reason", "first"),
    [
        ("a.jsonl", '{"text": "cut off\n', "not JSON", "line 41"),
        ("a.jsonl", '["text"]\n', "not an object with columns", "line 41"),
        ("a.jsonl", '{"text": "half \\ud83d", "label": 1}\n', "undecodable", "line 41"),
        ("a.jsonl", '{"text": 7}\n', "not a text", "line 41"),
        ("a.csv", "one,two,three\n", "more fields than the header", "line 42"),
        ("a.csv", "alone\n", "fewer fields than the header", "line 42"),
        ("a.csv", "nul \0 within,1\n", "NUL characters", "line 42"),
        ("a.csv", b"b\xe4d words,1\n", "undecodable", "line 42"),
    ],
)
def test_a_broken_row_is_counted_with_its_place(tmp_path, name, extra, reason, first):
    rows = [{"text": f"words ü {i}", "label": i % 2} for i in range(40)]
    path = (write_csv if name == "a.csv" else write_jsonl)(tmp_path / name, rows)
    extra = extra if isinstance(extra, bytes) else extra.encode()
    path.write_bytes(path.read_bytes() + extra)

    read = read_examples(path)

    assert len(read.examples) == 40
    assert [(skip.reason, skip.rows, skip.first) for skip in read.skipped] == [(reason, 1, first)]


@pytest.mark.parametrize(
    ("encoding", "suffix"),
    [("utf-8-sig", "csv"), ("utf-16", "jsonl"), ("utf-32", "txt"), ("cp1252", "csv")],
)
def test_another_encoding_is_read(tmp_path, encoding, suffix):
    texts = [f"Überraschung — naïve {i} café" for i in range(20)]
    if suffix == "jsonl":
        lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    else:
        lines = [*(["text"] if suffix == "csv" else []), *texts]
    path = write_file(tmp_path / f"a.{suffix}", ("\n".join(lines) + "\n").encode(encoding))

    read = read_examples(path)

    assert {example.text for example in read.examples} == set(texts)
    assert ("read as Windows-1252" in read.describe()) == (encoding == "cp1252")


def test_quotes_that_are_never_closed_are_plain_characters(tmp_path):
    lines = "".join(f'"Well {i} he said\t{i % 2}\n' for i in range(20))

    read = read_examples(write_file(tmp_path / "a.tsv", "sentence\tlabel\n" + lines))

    assert {example.text for example in read.examples} == {f'"Well {i} he said' for i in range(20)}
    assert "quotes are plain characters" in read.describe()


def test_a_quote_that_is_never_closed_costs_the_last_row_alone(tmp_path):
    rows = [{"text": f"words, and {i}", "label": i % 2} for i in range(40)]
    path = write_csv(tmp_path / "a.csv", rows)
    path.write_text(path.read_text() + '"open, it is,1\nmore,1\n')

    read = read_examples(path)

    assert {example.text for example in read.examples} == {row["text"] for row in rows}
    assert [(skip.reason, skip.first) for skip in read.skipped] == [
        ("a quote that is never closed", "line 43")
    ]


def test_a_table_without_a_header_has_numbered_columns(tmp_path):
    lines = "".join(
        f'{i % 4 + 1},"Headline {i} of it","A text of more words, {i}"\n' for i in range(60)
    )

    read = read_examples(write_file(tmp_path / "a.csv", lines))

    assert read.rows == 60
    wanted = {("text", "3", "looks"), ("label", "1", "looks")}
    assert {(found.part, found.column, found.by) for found in read.found} == wanted


def test_a_line_or_a_row_without_end_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "LONGEST_LINE", 1000)
    lines = "".join(f"some words {i}\n" for i in range(20))

    read = read_examples(write_file(tmp_path / "a.txt", lines + "x y " * 5000 + "\nlast words\n"))

    assert [(skip.reason[:9], skip.first) for skip in read.skipped] == [("more than", "line 21")]
    assert "last words" in {example.text for example in read.examples}
    for tail in ('x,"' + "y\n" * 5000, "x" * 5000 + ",1\n"):
        path = write_file(tmp_path / "a.csv", "text,label\n" + LINES + tail)
        with pytest.raises(DataError, match=r"a row of more than 1,000 characters; is there a"):
            read_examples(path)


def test_long_texts_are_cut_and_counted(tmp_path):
    rows = [{"text": f"{i} " + "word " * 30_000 * (i == 3) + "end"} for i in range(10)]

    read = read_examples(write_jsonl(tmp_path / "a.jsonl", rows))

    assert max(len(example.text) for example in read.examples) == 100_000
    assert "1 examples cut" not in read.describe()
    assert "1 example cut to 100,000 characters" in read.describe()
