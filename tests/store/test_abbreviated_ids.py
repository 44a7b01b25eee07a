"""Ids that are told by how they begin or end."""

import pytest

from deltadex.errors import UnknownModel
from deltadex.records import ModelRecord, Refused
from deltadex.store import Catalog

IDS = ("ann/bert-imdb", "ann/bert-sst2", "bo/bert-imdb-2", "run-7", "run-70", "runs/a/1", "zed")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    with Catalog.open(tmp_path_factory.mktemp("ids") / "c.duckdb") as catalog:
        for id in IDS:
            model = ModelRecord(id=id, base="base", source="/here" if "run" in id else "hub")
            catalog.record(
                Refused(model=model, code="truncated", reason="", bytes_read=0, seconds=0.0)
            )
        yield catalog


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ze", "zed"),
        ("sst2", "ann/bert-sst2"),
        ("bert-imdb-", "bo/bert-imdb-2"),
        ("bo", "bo/bert-imdb-2"),
        ("run-7", "run-7"),
        ("70", "run-70"),
        ("ann/bert-imdb", "ann/bert-imdb"),
        ("runs/a", "runs/a/1"),
        ("a/1", "runs/a/1"),
    ],
)
def test_what_begins_or_ends_one_id_names_its_model(catalog, typed, meant):
    assert catalog.model(typed).id == meant
    assert catalog.model(typed, "base").id == meant


def test_the_choices_are_named_where_several_fit(catalog):
    with pytest.raises(UnknownModel, match=r"several ids .*: ann/bert-imdb, bo/bert-imdb-2$"):
        catalog.model("bert-imdb")


@pytest.mark.parametrize("typed", ["ann/bert-s", "", "%", "zed/", "mdb-"])
def test_hub_ids_and_parts_from_inside_stay_unknown(catalog, typed):
    with pytest.raises(UnknownModel):
        catalog.model(typed)


def test_a_folder_of_that_name_is_meant_before_an_abbreviation(catalog, tmp_path, monkeypatch):
    (tmp_path / "ze").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UnknownModel):
        catalog.model("ze")
