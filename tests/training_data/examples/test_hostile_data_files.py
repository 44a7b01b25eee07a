"""Files that are made to hang, to fill the memory or to end in a traceback."""

import gzip
import os
import struct

import pyarrow as pa
import pytest
from data_set_files import reviews, save_to_disk, write_arrow
from pyarrow import parquet

from deltadex.data import ColumnChoice, Example, read_examples
from deltadex.data.rows import text_tables
from deltadex.errors import DataError

ROWS = 40
TEXTS = [f"some words {i}" for i in range(ROWS)]
LABELS = [i % 2 for i in range(ROWS)]
DEEP = 10_000
ODD = {
    "nanoseconds": pa.array([1] * ROWS, pa.timestamp("ns")),
    "time": pa.array([1] * ROWS, pa.time64("ns")),
    "duration": pa.array([1] * ROWS, pa.duration("ns")),
    "far": pa.array([10**8] * ROWS, pa.date32()),
    "year 300000": pa.array([10**16] * ROWS, pa.timestamp("ms")),
    "bytes": pa.array([b"\xff\xfe"] * ROWS),
    "images": pa.array([{"bytes": b"\xff", "path": "a"}] * ROWS),
    "months": pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval()),
}


def save(path, table=None, **columns):
    """As parquet or as an Arrow stream."""
    table = pa.table(columns) if table is None else table
    if path.suffix == ".parquet":
        parquet.write_table(table, path, store_schema=False)
        return path
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    return path


def refusal(path, *choice, **options):
    with pytest.raises(DataError) as raised:
        read_examples(path, *choice, **options)
    assert "\n" not in str(raised.value)
    assert path.name in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_columns_that_are_not_needed_are_not_decoded(tmp_path, name):
    odd = ODD if name == "a.arrow" else {k: v for k, v in ODD.items() if k != "months"}

    read = read_examples(save(tmp_path / name, **odd, text=TEXTS, label=LABELS))

    assert {(example.text, example.label) for example in read.examples} == {
        (text, str(label)) for text, label in zip(TEXTS, LABELS, strict=True)
    }


@pytest.mark.parametrize(
    ("part", "column", "kind"),
    [("label", "far", "date32"), ("text", "time", "time64"), ("completion", "bytes", "binary")],
)
def test_a_chosen_column_of_another_type_is_refused_by_its_type(tmp_path, part, column, kind):
    path = save(tmp_path / "a.arrow", **{column: ODD[column]}, text=TEXTS)

    line = refusal(path, ColumnChoice(**{part: column}))

    assert f"column {column!r} is of type {kind}" in line
    assert f"--{part} takes texts" in line


def test_decimals_are_labels_and_dates_are_said_to_be_none(tmp_path):
    decimals = pa.array(LABELS, pa.decimal128(5, 0))
    days = pa.array(LABELS, pa.date32())

    with_decimals = read_examples(save(tmp_path / "a.parquet", text=TEXTS, label=decimals))
    with_days = read_examples(save(tmp_path / "b.parquet", text=TEXTS, label=days))

    assert {example.label for example in with_decimals.examples} == {"0", "1"}
    assert with_days.kind == "texts"
    assert 'column "label" is no label: of type date32[day]' in with_days.describe()


@pytest.mark.parametrize(("name", "nested"), [("a.parquet", True), ("a.arrow", False)])
def test_a_dictionary_that_stands_for_gigabytes_is_refused(tmp_path, name, nested):
    """4 MB at most that stand for 100 GB: a text of a MB, 100,000 times."""
    places = pa.array([0, 1] * 50_000, pa.int32())
    texts = pa.DictionaryArray.from_arrays(places, [f"some words {i} " * 70_000 for i in range(2)])
    if nested:
        offsets = pa.array(range(100_001), pa.int32())
        roles = pa.array(["assistant"] * 100_000)
        messages = pa.StructArray.from_arrays([roles, texts], ["role", "content"])
        path = save(tmp_path / name, messages=pa.ListArray.from_arrays(offsets, messages))
    else:
        path = save(tmp_path / name, text=texts, label=LABELS[:2] * 50_000)
    assert path.stat().st_size < (400_000 if name == "a.parquet" else 4_000_000)

    assert "that unpack to more than" in refusal(path)


def test_a_gzip_file_that_stands_for_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "LEAST_LIMIT", 1 << 24)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text\n" + (b"some words of it " * (1 << 18) + b"\n") * 5))

    assert "that unpack to more than" in refusal(path)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "saved", "/dev/zero"])
def test_pipes_and_devices_are_refused_before_they_are_opened(tmp_path, name):
    path = tmp_path / name
    if name == "saved":
        path = save_to_disk(path, reviews())
        (path / "data-00000-of-00002.arrow").unlink()
        os.mkfifo(path / "data-00000-of-00002.arrow")
    elif name.startswith("a."):
        os.mkfifo(path)

    with pytest.raises(DataError, match=r"a (pipe|device), not a file; write the data to a file"):
        read_examples(path)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "dataset_info.json", "state.json"])
def test_json_of_ten_thousand_levels_is_refused(tmp_path, name):
    document = "[" * DEEP + "]" * DEEP
    if name.startswith("a."):
        (tmp_path / name).write_text(document)
        assert "nested too deeply" in refusal(tmp_path / name)
    else:
        path = save_to_disk(tmp_path / "saved", reviews())
        (path / name).write_text(document)
        assert f"{name}: not JSON" in refusal(path)


def test_offsets_that_lead_out_of_an_arrow_file_are_refused(tmp_path):
    offset = 2**30
    path = write_arrow(tmp_path / "a.arrow", [{"text": "ab", "label": 1}] * 8, 8)
    data, offsets = path.read_bytes(), struct.pack("<9i", *range(0, 18, 2))
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, struct.pack("<9i", *range(0, 16, 2), offset)))

    assert "not a whole Arrow file" in refusal(path)


def test_text_of_parquet_that_is_not_utf8_is_refused_by_its_column(tmp_path):
    path = save(tmp_path / "a.parquet", text=TEXTS)
    parquet.write_table(pa.table({"text": TEXTS}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"some words 7", b"some \xff\xffrds 7"))

    assert "column 'text' has text that is not UTF-8" in refusal(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_of_two_columns_with_one_name_the_first_is_read(tmp_path, name):
    columns = [pa.array(TEXTS), pa.array(LABELS), pa.array(range(ROWS))]
    table = pa.Table.from_arrays(columns, names=["text", "label", "label"])

    read = read_examples(save(tmp_path / name, table))

    assert Example(text="some words 7", label="1") in read.examples
    assert 'several columns are named "label": the next is read as "label_1"' in read.describe()
