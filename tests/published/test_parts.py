"""Parts by unknown publishers: the hashes are right, and the content is not."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from published_families import RECIPE, family, fill, publish
from pyarrow import parquet

import deltadex as dx
from deltadex.database.questions import open_attached
from deltadex.errors import BadIndex
from deltadex.store.published import manifest as parts
from deltadex.store.published.manifest import MANIFEST, sha256_of


@pytest.fixture
def index(tmp_path):
    publish(fill(tmp_path / "c.duckdb", family(5)), tmp_path / "index")
    return tmp_path / "index"


def exchange(index, change, *, kind="models", write=parquet.write_table):
    """Replace a file of an index by another table, under the hash that it has."""
    document = json.loads((index / MANIFEST).read_bytes())
    file = document["parts"][0] if kind == "models" else document[kind]
    table = change(parquet.read_table(index / file["name"]))
    (index / file["name"]).unlink()
    write(table, index / "new")
    data = (index / "new").read_bytes()
    digest = sha256_of(data)
    file.update(name=f"{kind}-{digest[:16]}.parquet", sha256=digest, bytes=len(data))
    (index / "new").rename(index / file["name"])
    (index / MANIFEST).write_text(json.dumps(document))


def column(table, name, values, type=None):
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, type or table.schema.field(name).type))


def refused(index, match):
    with dx.open() as db:
        with pytest.raises(BadIndex, match=match) as error:
            db.attach(index)
        assert len(db.attached()) == 0
    assert str(error.value).isprintable()


def ids(table):
    return table.column("id").to_pylist()


CHANGES = {
    "an id twice": (lambda t: column(t, "id", [ids(t)[0]] * 5), "ids are there twice"),
    "an id that controls a terminal": (lambda t: column(t, "id", ["a\x1b[2J", *ids(t)[1:]]), "id"),
    "an empty id": (lambda t: column(t, "id", ["", *ids(t)[1:]]), "id"),
    "a long id": (lambda t: column(t, "id", ["x" * 100_000, *ids(t)[1:]]), "id is too long"),
    "no id": (lambda t: column(t, "id", [None, *ids(t)[1:]], pa.string()), "id is missing"),
    "a long author": (lambda t: column(t, "author", ["x" * 9_999] * 5), "author is too long"),
    "a turned label": (lambda t: column(t, "dataset", ["a\u202eb"] * 5), "dataset"),
    "another kind": (lambda t: column(t, "kind", ["gradient"] * 5), "kind without statistics"),
    "a negative count": (lambda t: column(t, "downloads", [-1] * 5), "downloads"),
    "no length": (lambda t: column(t, "norm", [float("nan")] * 5), "norm"),
    "a column less": (lambda t: t.drop_columns(["author"]), "not a part"),
    "a column more": (lambda t: t.append_column("x", pa.array([1] * 5)), "columns"),
    "numbers for texts": (lambda t: column(t, "author", [1] * 5, pa.int64()), "columns"),
    "a row less": (lambda t: t.slice(1), "rows"),
    "short vectors": (lambda t: column(t, "vector", [b"\0" * 8] * 5, pa.binary(8)), "columns"),
    "vectors of zeros": (lambda t: column(t, "vector", [bytes(32)] * 5), "5 vectors"),
    "no vector": (lambda t: column(t, "vector", [None] * 5), "columns|vector"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_part_that_is_none_is_refused(index, name):
    change, match = CHANGES[name]
    exchange(index, change)

    refused(index, match)


def test_a_file_that_is_no_parquet_is_refused(index):
    exchange(index, lambda t: t, write=lambda _, path: path.write_bytes(b"PAR1" * 99))

    refused(index, "not a part")


@pytest.mark.parametrize(
    "numbers", [[1.0] * 15, [float("nan")] * 16, [9.0] * 16, []], ids=["few", "nan", "long", "none"]
)
def test_means_that_are_none_are_refused(index, numbers):
    exchange(index, lambda t: column(t, "numbers", [numbers], pa.list_(pa.float32())), kind="means")

    refused(index, "mean")


def test_one_changed_byte_is_refused_and_nothing_is_attached(index):
    (part,) = index.glob("models-*")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)

    refused(index, "SHA-256 differs")


def test_a_file_that_is_missing_or_a_pipe_is_refused(index):
    import os

    (part,) = index.glob("models-*")
    part.unlink()
    refused(index, "no such file")
    os.mkfifo(part)
    refused(index, "no such file")


def test_a_good_index_is_attached(index):
    with dx.open() as db:
        row = db.attach(index)[0]
        near = db.find_similar("author-0/model-0", k=9)

    assert (row["models"], row["recipe"]) == (5, RECIPE.id)
    assert len(near) == 4
    assert np.isfinite([hit["z"] for hit in near]).all()


def test_threads_share_an_open_part(tmp_path, monkeypatch):
    """Unguarded, pyarrow ends the process."""
    monkeypatch.setattr(parts, "ROWS_AT_ONCE", 2)
    publish(fill(tmp_path / "c.duckdb", family(60)), tmp_path / "index")
    with dx.open(tmp_path / "mine.duckdb") as db:
        db.attach(tmp_path / "index")
        (index,) = open_attached(db._catalog)
        expected = np.concatenate(list(index.vectors()))
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(lambda _: np.concatenate(list(index.vectors())), range(40)))

    assert all(np.array_equal(vectors, expected) for vectors in read)
