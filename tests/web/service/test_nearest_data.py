"""Kept data sets over the API: near a model, and on the map."""

import numpy as np
import pytest
from catalogs import AXES, DIM, fill, make_data
from running import document
from services import API, served


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "c.duckdb"
    kept = [make_data("acme", AXES[0]), make_data("b", np.random.default_rng(1).normal(size=DIM))]
    fill(path, near=4, strangers=10, kept=kept, base="/secret/place/base").close()
    return path


@pytest.fixture(scope="module")
def client(db):
    with served(db, quick_seconds=60.0) as client:
        yield client


def test_the_answer_is_that_of_the_command_line_without_paths(client, db):
    answer = client.get(f"{API}/nearest-data", params={"model": "near-0"})

    expected = document(db, "find-data", "near-0")
    found = answer.json()
    assert answer.status_code == 200, answer.text
    assert found["data"] == expected["data"]
    assert found["data"][0]["data"] == "acme"
    assert found["query"] == {"model": "near-0", "base": "base"}
    assert "secret" not in answer.text


@pytest.mark.slow
def test_the_map_places_the_data_sets(client):
    document = client.get(f"{API}/map").json()

    assert [one["name"] for one in document["data"]] == ["acme", "b"]
    assert "secret" not in str(document)
