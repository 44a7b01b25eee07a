"""Ids that are told by how they begin or end."""

import pytest
from catalogs import refused, write

from deltadex.errors import RequestError, UnknownModel
from deltadex.store import Catalog

IDS = ("ann/bert-imdb", "ann/bert-sst2", "bo/bert-imdb-2", "run-7", "run-70", "runs/a/1", "zed")
MEANT = {
    **{"ze": "zed", "sst2": "ann/bert-sst2", "bert-imdb-": "bo/bert-imdb-2", "70": "run-70"},
    **{"bo": "bo/bert-imdb-2", "run-7": "run-7", "ann/bert-imdb": "ann/bert-imdb"},
    **{"runs/a": "runs/a/1", "a/1": "runs/a/1"},
}


def test_what_begins_or_ends_one_id_names_its_model(path, tmp_path, monkeypatch):
    write(path, *(refused(id, source="/here" if "run" in id else "hub") for id in (*IDS, "r1")))
    with Catalog.open(path) as catalog:
        for typed, meant in MEANT.items():
            assert catalog.model(typed).id == catalog.model(typed, "base").id == meant
        with pytest.raises(UnknownModel, match=r"several ids .*: ann/bert-imdb, bo/bert-imdb-2$"):
            catalog.model("bert-imdb")
        with pytest.raises(UnknownModel, match=r"several ids .*: r1, run-7, run-70, …$"):
            catalog.model("r")
        with pytest.raises(RequestError, match=r"name one: run-7, run-70, runs/a/1$"):
            catalog.model("/here")
        # a folder of that name is meant before an abbreviation
        (tmp_path / "ze").mkdir()
        monkeypatch.chdir(tmp_path)
        for unknown in ("ann/bert-s", "", "%", "zed/", "mdb-", "ze"):
            with pytest.raises(UnknownModel):
                catalog.model(unknown)
