"""A small family beside its catalog, in a folder of its own for every test."""

import shutil

import pytest
from factories import make_family, query_adapter, save_tokenizer, write_files, write_reviews
from running import TEXTS

import deltadex as dx


@pytest.fixture(scope="session")
def indexed_family(tmp_path_factory):
    """`base`, `models`, `adapter`, texts, and two catalogs of the same four models."""
    folder = tmp_path_factory.mktemp("face")
    models = make_family(folder, pairs=("imdb", "sst2"))
    write_reviews(folder / "reviews.csv")
    write_reviews(folder / "questions.csv", n=32)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    write_files(folder / "adapter", query_adapter(base=str(folder / "base"), layers=1))
    with dx.open(folder / "family.duckdb") as db:
        db.index(folder / "base", models, labels=models / "labels.csv")
        db.backup(folder / "other.duckdb")
    return folder


@pytest.fixture
def family(indexed_family, tmp_path, monkeypatch):
    """The working folder: the same models, whose catalog names the base `base`."""
    for name in ("family.duckdb", "other.duckdb", "texts.txt", "reviews.csv", "questions.csv"):
        shutil.copy(indexed_family / name, tmp_path)
    for name in ("base", "models", "adapter"):
        (tmp_path / name).symlink_to(indexed_family / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def db(family):
    """The family's catalog, open."""
    with dx.open("family.duckdb") as opened:
        yield opened


@pytest.fixture
def tokenizer(family):
    """A tokenizer beside the base, for this test alone: other tests have texts of token ids."""
    base = (family / "base").resolve()
    before = set(base.iterdir())
    save_tokenizer(base)
    yield
    for file in set(base.iterdir()) - before:
        file.unlink()
