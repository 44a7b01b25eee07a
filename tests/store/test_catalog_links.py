"""Symbolic links in the place of a catalog, or of what is beside it."""

import shutil

import pytest
from outcomes import indexed

from deltadex.errors import StoreError
from deltadex.store import Catalog, back_up


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    with Catalog.open(folder / "c.duckdb") as catalog:
        catalog.record(indexed("m"))
    return folder


@pytest.fixture
def db(made, tmp_path):
    return shutil.copytree(made, tmp_path / "folder") / "c.duckdb"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("c.duckdb.wal", "c.duckdb.commits", "c.duckdb.holder", "c.duckdb.index"),
        *("c.duckdb.index/0123.lock", "c.duckdb.index/0123.sketches", "c.duckdb.attached"),
        *("c.duckdb.attached/imdb/models.parquet.partial", "c.duckdb.published"),
    ],
)
def test_a_link_beside_a_catalog_is_refused_and_not_followed(db, tmp_path, name, read_only):
    precious, link = tmp_path / "precious", db.parent / name
    precious.write_bytes(b"precious")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(precious)
    before = db.read_bytes()

    with pytest.raises(StoreError, match=rf"{name}: a symbolic link"):
        Catalog.open(db, read_only=read_only)

    assert precious.read_bytes() == b"precious"
    assert db.read_bytes() == before
    link.unlink()
    with Catalog.open(db, read_only=read_only) as catalog:
        assert [row.id for row in catalog.models()] == ["m"]


def test_a_link_to_no_catalog_makes_nothing(tmp_path):
    link = tmp_path / "c.duckdb"
    link.symlink_to(tmp_path / "made" / "up.duckdb")

    with pytest.raises(StoreError, match="a symbolic link"):
        Catalog.open(link)

    assert list(tmp_path.iterdir()) == [link]


def test_a_catalog_is_not_opened_under_a_second_name(db):
    """Each name would have a write-ahead log of its own."""
    link = db.with_name("link.duckdb")
    link.symlink_to(db)

    with pytest.raises(StoreError, match=f"name the file itself, .*{db.name}"):
        Catalog.open(link)


def test_a_folder_above_a_catalog_may_be_a_link(db, tmp_path):
    (tmp_path / "link").symlink_to(db.parent)

    with Catalog.open(tmp_path / "link" / db.name) as catalog:
        catalog.record(indexed("n"))

    with Catalog.open(db) as catalog:
        assert sorted(row.id for row in catalog.models()) == ["m", "n"]


def test_a_backup_replaces_no_link(db, tmp_path):
    precious, link = tmp_path / "precious", tmp_path / "b.duckdb"
    precious.write_bytes(b"precious")
    link.symlink_to(precious)

    with Catalog.open(db) as catalog, pytest.raises(StoreError, match="a symbolic link"):
        back_up(catalog, link, replace=True)

    assert precious.read_bytes() == b"precious"
    assert link.is_symlink()
