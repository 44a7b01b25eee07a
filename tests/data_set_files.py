"""The same rows as files of every format that a data set comes in."""

import csv
import gzip
import json
from functools import partial

import pyarrow as pa
from pyarrow import parquet

NAMES = ("bad", "good", "so-so")


def reviews(n=60):
    """Rows with a text of several words, a label and a number."""
    return [
        {"id": i, "review": f"Review “{i}”, a film; it ran on", "stars": i % 3} for i in range(n)
    ]


def features(labels=NAMES):
    """What `datasets` writes about the columns."""
    label = {"names": list(labels), "_type": "ClassLabel"}
    return {"review": {"dtype": "string", "_type": "Value"}, "stars": label}


def write_csv(path, rows, delimiter=",", encoding="utf-8"):
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path, rows):
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def write_parquet(path, rows, metadata=None, row_group_size=None):
    table = pa.Table.from_pylist(rows)
    if metadata:
        document = json.dumps({"info": {"features": metadata}})
        table = table.replace_schema_metadata({"huggingface": document})
    parquet.write_table(table, path, row_group_size=row_group_size)
    return path


def write_arrow(path, rows, batch=16, opened=pa.ipc.new_stream):
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as writer:
        writer.write_table(table, batch)
    return path


def write_gz(write):
    def write_and_pack(path, rows):
        plain = write(path.with_suffix(""), rows)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
        return path

    return write_and_pack


def save_to_disk(folder, rows, metadata=None):
    """As `datasets.Dataset.save_to_disk` lays a data set out, in two files."""
    folder.mkdir(parents=True)
    half = len(rows) // 2
    names = [f"data-{i:05}-of-00002.arrow" for i in range(2)]
    for name, part in zip(names, (rows[:half], rows[half:]), strict=True):
        write_arrow(folder / name, part)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": metadata or {}}))
    return folder


WRITERS = {
    "a.csv": write_csv,
    "a.tsv": partial(write_csv, delimiter="\t"),
    "a.jsonl": write_jsonl,
    "a.json": write_json,
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
    "b.arrow": partial(write_arrow, opened=pa.ipc.new_file),
    "a.csv.gz": write_gz(write_csv),
    "a.jsonl.gz": write_gz(write_jsonl),
    "saved": save_to_disk,
}
