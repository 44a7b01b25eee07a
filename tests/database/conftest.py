"""A small family beside its catalog, in a folder of its own for every test."""

import shutil

import pytest
from factories import make_family

import deltadex as dx

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]


@pytest.fixture(scope="session")
def indexed_family(tmp_path_factory):
    """`base`, `models`, `texts.txt`, and two catalogs of the same four models."""
    folder = tmp_path_factory.mktemp("face")
    models = make_family(folder, pairs=("imdb", "sst2"))
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    with dx.open(folder / "family.duckdb") as db:
        db.index(folder / "base", models, labels=models / "labels.csv")
        db.backup(folder / "other.duckdb")
    return folder


@pytest.fixture
def family(indexed_family, tmp_path, monkeypatch):
    """The working folder: the same models, whose catalog names the base `base`."""
    for name in ("family.duckdb", "other.duckdb", "texts.txt"):
        shutil.copy(indexed_family / name, tmp_path)
    for name in ("base", "models"):
        (tmp_path / name).symlink_to(indexed_family / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def db(family):
    """The family's catalog, open."""
    with dx.open("family.duckdb") as opened:
        yield opened
