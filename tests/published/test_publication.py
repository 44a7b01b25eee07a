"""What a publication writes, and what it does not."""

from contextlib import suppress

import duckdb
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from published_families import BASE, family, fill, indexed, publish, vector_of
from pyarrow import parquet
from running import run

import deltadex as dx
from deltadex.errors import BadIndex, RequestError, StoreLocked
from deltadex.records import GATED_NOTE, PRIVATE_NOTE
from deltadex.store import Catalog, files
from deltadex.store.published import publication
from deltadex.store.published.manifest import removal_hash


def published_rows(folder):
    return parquet.read_table([str(path) for path in folder.glob("models-*")]).to_pylist()


def published_ids(folder):
    return {row["id"] for row in published_rows(folder)}


def ids_by_part(folder):
    return {p.name: parquet.read_table(p)["id"].to_pylist() for p in folder.glob("models-*")}


def test_new_models_rewrite_the_last_part_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "PART_MODELS", 4)
    db, folder = fill(tmp_path / "c.duckdb", family(20)), tmp_path / "index"
    publish(db, folder)
    before = ids_by_part(folder)

    again = publish(db, folder)
    fill(db, family(2, first=20))
    more = publish(db, folder)

    assert (again["changed"], again["written"]) == (False, [])
    assert (more["added"], more["dropped"], more["models"], more["serial"]) == (2, 0, 22, 2)
    kept = before.keys() & ids_by_part(folder).keys()
    assert len(kept) >= len(before) - 1 > 1
    last = {id for name in before.keys() - kept for id in before[name]}
    assert last <= set(list(family(20))[-len(last) :])
    assert published_ids(folder) == set(family(22))
    counted = duckdb.sql(f"SELECT count(DISTINCT id) FROM '{folder}/models-*.parquet'")
    assert counted.fetchall() == [(22,)]


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 2)), min_size=1, max_size=2)
)
def test_an_excluded_model_never_reappears(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("exclude")
    db, index, ever = fill(folder / "c.duckdb", family(8)), folder / "index", set()
    with dx.open() as other:
        for place, (numbers, new) in enumerate(steps):
            excluded = {f"author-{n % 3}/model-{n}" for n in numbers}
            ever |= excluded
            # indexed again, as a model that its author uploads once more
            fill(db, {id: vector_of(hash(id) % 999) for id in sorted(excluded)})
            fill(db, family(new, first=20 + 5 * place))
            publish(db, index, exclude=sorted(excluded))
            other.attach(index) if not place else other.attached.refresh()

            assert not published_ids(index) & ever
            near = [hit["model"] for hit in other.find_similar("author-0/model-6", k=99)]
            assert near
            assert not set(near) & ever
            raw = b"".join(path.read_bytes() for path in index.iterdir())
            assert not any(id.encode() in raw for id in ever)


def test_nothing_private_is_published(tmp_path):
    token = "hf_" + "a" * 30
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        for outcome in (
            indexed("local", vector_of(0), source="/mnt/me/models/local", run="/mnt/me/run"),
            indexed("sent", vector_of(1), source="upload", author=token),
            indexed("/mnt/me/absolute", vector_of(2), source="/mnt/me/absolute"),
            indexed("me/private", vector_of(3), notes=(PRIVATE_NOTE,)),
            indexed("me/gated", vector_of(4), notes=(GATED_NOTE,)),
            indexed("me/open", vector_of(5), base_raw="/mnt/me/base", notes=("at /mnt/me",)),
            indexed("odd\x1b[2J", vector_of(6)),
            indexed("me/odd-label", vector_of(7), dataset="a\x1bb", license="x" * 9999),
        ):
            catalog.record(outcome)
    done = publish(tmp_path / "c.duckdb", tmp_path / "index")
    gated = publish(tmp_path / "c.duckdb", tmp_path / "gated", with_gated=True)

    rows = {row["id"]: row for row in published_rows(tmp_path / "index")}
    assert set(rows) == {"local", "sent", "me/open", "me/odd-label"}
    assert done["left_out"] == {"private": 1, "gated": 1, "a path or token as id": 2}
    assert gated["models"] == 5
    assert (rows["me/odd-label"]["dataset"], rows["me/odd-label"]["license"]) == (None, None)
    raw = b"".join(path.read_bytes() for path in (tmp_path / "index").iterdir())
    assert b"/mnt/me" not in raw
    assert str(tmp_path).encode() not in raw
    assert token.encode() not in raw


def test_a_base_in_a_folder_is_published_by_its_name_or_another(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        catalog.record(indexed("m", vector_of(0), base=str(tmp_path / "bert")))

    by_name = publish(tmp_path / "c.duckdb", tmp_path / "one")
    named = publish(tmp_path / "c.duckdb", tmp_path / "two", base_name="google/bert")

    assert (by_name["base"], named["base"]) == ("bert", "google/bert")
    with pytest.raises(RequestError, match="base-name"):
        publish(tmp_path / "c.duckdb", tmp_path / "three", base_name="/mnt/me/bert")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", [2, 99])
def test_a_publication_that_is_killed_leaves_the_former_index(tmp_path, monkeypatch, step):
    monkeypatch.setattr(publication, "PART_MODELS", 4)
    db, folder = fill(tmp_path / "c.duckdb", family(6)), tmp_path / "index"
    publish(db, folder)
    fill(db, family(7, first=6))
    with dx.open(db) as opened:
        opened.remove("author-0/model-0")
    renames, calls = files.os.replace, []

    def killed(*arguments):
        if len(calls) == step:
            raise Killed
        calls.append(arguments)
        renames(*arguments)

    with dx.open(db) as opened, monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", killed)
        was_killed = True
        with suppress(Killed):
            opened.publish(folder)
            was_killed = False
    with dx.open() as other:
        found = other.attach(folder)[0]["models"]
    done = publish(db, folder)

    assert found == (6 if was_killed else 12)
    assert published_ids(folder) == set(family(13)) - {"author-0/model-0"}
    assert done["models"] == 12
    assert len(list(folder.glob("models-*"))) == done["parts"]
    assert list(folder.glob(".*-*")) == []  # of files that were begun


def test_a_folder_in_use_of_another_family_or_damaged_is_not_published_into(tmp_path):
    db, folder = fill(tmp_path / "c.duckdb", family(3)), tmp_path / "index"
    listed = tmp_path / "list.txt"
    listed.write_text("# requests\nauthor-1/model-1  # by mail\n\nunknown/other\n")
    result = run(db, "publish", folder, "--exclude", listed)

    assert result.exit_code == 0, result.output
    assert "left out: 1 (removed)" in result.output
    # the list of the excluded is of hashes
    removed = {removal_hash(BASE, id) for id in ("author-1/model-1", "unknown/other")}
    assert set(publication.read_manifest(folder).removed) == removed
    with FileLock(folder / publication.LOCK), pytest.raises(StoreLocked, match="another process"):
        publish(db, folder)
    with pytest.raises(RequestError, match="choose another folder"):
        publish(fill(tmp_path / "b.duckdb", family(2), base="other/base"), folder)
    (folder / "deltadex-index.json").write_text("{}")
    with pytest.raises(BadIndex, match="its format cannot be used"):
        publish(db, folder)
