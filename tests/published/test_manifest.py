"""Indexes by unknown publishers: their manifests, parts and vectors."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from published_families import family, fill, place_at, publish
from pyarrow import parquet

import deltadex as dx
from deltadex.errors import BadIndex
from deltadex.questions.face.searches import open_attached
from deltadex.store.exchange import manifest_bytes, sha256_of
from deltadex.store.published import manifest
from deltadex.store.published import manifest as parts


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    publish(fill(folder / "c.duckdb", family(5)), folder / "index")
    return folder / "index"


@pytest.fixture
def document(published):
    return json.loads((published / manifest.MANIFEST).read_bytes())


WRONG = {
    "a later format": (("format",), 4, "format 4"),
    "an earlier format": (("format",), 2, "format 2, this deltadex reads 3"),
    "another recipe": (("recipe", "rank"), 3, "recipe_id"),
    "a large recipe": (("recipe", "dim"), 10**9, "dim"),
    "a truth as number": (("serial",), True, "serial"),
    "other totals": (("models",), 6, "models"),
    "a path as a file": (("parts", 0, "name"), "../../etc/passwd", "models"),
    "a file by another name": (("parts", 0, "sha256"), "0" * 64, "models"),
    "an id for a hash": (("removed",), ["a/b"], "removed"),
    "too large a file": (("parts", 0, "bytes"), 1 << 40, "bytes"),
    "fewer bytes than vectors": (("parts", 0, "bytes"), 100, "parts"),
    "too many in a part": (("parts", 0, "models"), 1 << 30, "models"),
    "a base that turns text round": (("base",), "x\u202e", "base"),
    "a list for an object": (("shapes",), [], "shapes"),
}


MISSING = ("recipe", "parts", "index", "created", "removed")


@pytest.mark.parametrize("name", [*WRONG, *MISSING])
def test_what_cannot_be_or_is_missing_is_refused_by_field(document, name):
    path, value, field = WRONG.get(name, ((name,), None, name))
    place_at(document, path, value)
    if name in MISSING:
        del document[name]

    with pytest.raises(BadIndex, match=field):
        manifest.parse_manifest(manifest_bytes(document))


@example(b"[" * 200_000)
@given(
    data=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=9,
    ).map(lambda value: json.dumps(value).encode())
)
def test_anything_else_is_refused_in_one_line(data):
    with pytest.raises(BadIndex) as refused:
        manifest.parse_manifest(data)

    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()


# parts of which the hashes are right, and the content is not


@pytest.fixture
def index(published, tmp_path):
    return shutil.copytree(published, tmp_path / "index")


def exchange(index, change):
    """Replace the part of an index by another table, under the hash that it has."""
    document = json.loads((index / manifest.MANIFEST).read_bytes())
    (file,) = document["parts"]
    table = change(parquet.read_table(index / file["name"]))
    (index / file["name"]).unlink()
    parquet.write_table(table, index / "new")
    data = (index / "new").read_bytes()
    digest = sha256_of(data)
    file.update(name=f"models-{digest[:16]}.parquet", sha256=digest, bytes=len(data))
    (index / "new").rename(index / file["name"])
    (index / manifest.MANIFEST).write_bytes(manifest_bytes(document))


def column(table, name, values, type=None):
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, type or table.schema.field(name).type))


def ids(table):
    return table.column("id").to_pylist()


CHANGES = {
    "an id twice": (lambda t: column(t, "id", [ids(t)[0]] * 5), "4 ids listed twice"),
    "an id that controls a terminal": (lambda t: column(t, "id", ["a\x1b[2J", *ids(t)[1:]]), "id"),
    "a long id": (lambda t: column(t, "id", ["x" * 100_000, *ids(t)[1:]]), "id is too long"),
    "a long author": (lambda t: column(t, "author", ["x" * 9_999] * 5), "author is too long"),
    "another kind": (lambda t: column(t, "kind", ["gradient"] * 5), "a kind that deltadex"),
    "a negative count": (lambda t: column(t, "downloads", [-1] * 5), "downloads"),
    "no length": (lambda t: column(t, "norm", [float("nan")] * 5), "norm"),
    "a column less": (lambda t: t.drop_columns(["author"]), "not a part"),
    "numbers for texts": (lambda t: column(t, "author", [1] * 5, pa.int64()), "columns"),
    "a row less": (lambda t: t.slice(1), "rows"),
    "short vectors": (lambda t: column(t, "vector", [b"\0" * 8] * 5, pa.binary(8)), "columns"),
    "vectors of zeros": (lambda t: column(t, "vector", [bytes(66)] * 5), "5 vectors"),
    "no vector": (lambda t: column(t, "vector", [None] * 5), "columns|vector"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_part_that_is_none_is_refused(index, name):
    change, match = CHANGES[name]
    exchange(index, change)

    with dx.open() as db:
        with pytest.raises(BadIndex, match=match) as error:
            db.attach(index)
        assert len(db.attached()) == 0
    assert str(error.value).isprintable()


def test_threads_share_an_open_part(tmp_path, monkeypatch):
    """Unguarded, pyarrow ends the process."""
    monkeypatch.setattr(parts, "ROWS_AT_ONCE", 2)
    publish(fill(tmp_path / "c.duckdb", family(30)), tmp_path / "index")
    with dx.open(tmp_path / "mine.duckdb") as db:
        db.attach(tmp_path / "index")
        (index,) = open_attached(db._catalog)
        expected = np.concatenate(list(index.vectors()))
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(lambda _: np.concatenate(list(index.vectors())), range(16)))

    assert all(np.array_equal(vectors, expected) for vectors in read)


# vectors as parts have them

DIMS = (1, 3, 16, 63, 64, 65, 200)


@st.composite
def unit_rows(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, dim = draw(st.integers(1, 4)), draw(st.sampled_from(DIMS))
    # some numbers are far larger than others
    rows = rng.normal(size=(n, dim)) * np.exp(draw(st.floats(0, 6)) * rng.normal(size=(n, dim)))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@given(rows=unit_rows())
def test_eight_bits_come_back_within_the_stated_tolerance(rows):
    dim = rows.shape[1]
    stored = manifest.encode_vectors(rows)
    back = manifest.decode_vectors(stored, dim).astype(np.float64)

    assert stored.shape == (len(rows), manifest.vector_bytes(dim))
    padded = np.zeros((len(rows), -(-dim // manifest.BLOCK) * manifest.BLOCK))
    padded[:, :dim] = np.abs(rows)
    largest = np.repeat(
        padded.reshape(len(rows), -1, manifest.BLOCK).max(axis=2), manifest.BLOCK, axis=1
    )[:, :dim]
    # decoding divides by the length, which is that of the original within the same error
    assert (np.abs(back - rows) <= largest / 250 + 2.0**-17 + 0.02 * np.abs(rows)).all()
    assert np.abs((back * rows).sum(axis=1) - 1).max() < 1e-3
