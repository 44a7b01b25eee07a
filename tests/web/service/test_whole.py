"""Labels, counts, kept data, and the catalog as a whole: who may see and change what."""

import base64
import hashlib
import time
from pathlib import Path

import pytest
from services import API, WRITER, code, served, settled

import deltadex as dx
from deltadex.service.api import snapshots


def test_labels_are_set_and_taken_away_with_the_token(client):
    at = f"{API}/models/a-0"

    labelled = client.patch(at, json={"dataset": "new", "author": "me"}, headers=WRITER).json()
    assert (labelled["dataset"], labelled["before"]["dataset"]) == ("new", "a")
    assert client.get(at).json()["author"] == "me"
    assert client.patch(at, json={"clear": True}, headers=WRITER).json()["dataset"] is None
    for wrong in ({"path": "x"}, {}, {"dataset": " "}, {"dataset": "x", "clear": True}):
        assert client.patch(at, json=wrong, headers=WRITER).status_code == 422
    assert code(client.patch(f"{API}/models/no", json={"dataset": "x"}, headers=WRITER)) == (
        *(404, "unknown-model"),
    )
    assert client.patch(at, json={"dataset": "a", "author": "author0"}, headers=WRITER).is_success


@pytest.mark.parametrize(
    "filters",
    [{}, {"dataset": "a"}, {"status": "failed"}, {"q": "b-"}, {"where": "author = 'author1'"}],
)
def test_counts_are_those_of_the_models_that_are_listed(client, shared_db, filters):
    listed = client.get(f"{API}/models", params=filters).json()
    facets = client.get(f"{API}/facets", params=filters).json()

    assert facets["total"] == listed["total"]
    for facet in ("dataset", "author", "kind", "base", "status", "license"):
        counts = {r["value"]: r["models"] for r in facets["facets"] if r["facet"] == facet}
        values = [model[facet] for model in listed["models"]]
        assert counts == {value: values.count(value) for value in values}
    assert str(shared_db.parent) not in str(facets)


def test_values_beyond_the_most_frequent_are_counted_together(client):
    facets = client.get(f"{API}/facets?most=1").json()

    assert facets["others"]["dataset"] == 3
    assert code(client.get(f"{API}/facets?where=source='x'")) == (422, "bad-filter")


def test_the_catalog_itself_is_for_who_has_the_token(client, shared_db, tmp_path):
    select = {"statement": "SELECT count(*) AS n FROM models"}
    answer = client.get(f"{API}/snapshot", headers=WRITER)
    digest = base64.b64encode(hashlib.sha256(answer.content).digest()).decode()
    assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert client.get(f"{API}/snapshot", headers=WRITER).content == answer.content
    part = client.get(f"{API}/snapshot", headers={**WRITER, "Range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, answer.content[:10])
    for wrong, status in {"bytes=99999999-": 416, "bytes=9-0": 400, "lines=1-2": 400}.items():
        part = client.get(f"{API}/snapshot", headers={**WRITER, "Range": wrong})
        assert code(part) == (status, "bad-range")
        assert part.headers["content-range"] == f"bytes */{len(answer.content)}"
    (tmp_path / "copy.duckdb").write_bytes(answer.content)
    with dx.open(tmp_path / "copy.duckdb", read_only=True) as copy:
        assert len(copy.models()) == 5
    assert client.post(f"{API}/sql", json=select, headers=WRITER).json()["rows"] == [{"n": 5}]
    for statement in ("DELETE FROM models", "FROM read_text('/etc/passwd')", "COPY models TO 'x'"):
        refused = client.post(f"{API}/sql", json={"statement": statement}, headers=WRITER)
        assert code(refused) == (422, "bad-query")


@pytest.mark.parametrize("path", ["/", f"{API}/openapi.json"])
def test_a_client_that_refuses_gzip_is_sent_none(client, path):
    for accepted, packed in ("gzip;q=0", None), ("GZIP; q=0.0 ,x", None), ("gzip;q=0.1", "gzip"):
        answer = client.get(path, headers={"Accept-Encoding": accepted})
        assert answer.headers.get("content-encoding") == packed


def test_a_copy_is_deleted_also_where_its_client_came_back_for_it(shared_db, monkeypatch):
    monkeypatch.setattr(snapshots, "KEPT_S", 0.5)
    with served(shared_db, share_catalog=True, quick_seconds=0.0) as client:
        job = client.get(f"{API}/snapshot").headers["Location"]
        assert settled(client, job).status_code == 200
        [place] = client.service.snapshots._places
        while Path(place.name).exists():
            time.sleep(0.02)
        assert code(client.get(job)) == (404, "unknown-job")


def test_it_is_closed_or_open_to_all_without_a_token(shared_db):
    select = {"statement": "SELECT count(*) AS n FROM models"}
    with served(shared_db) as client:
        assert code(client.get(f"{API}/snapshot", headers=WRITER)) == (403, "catalog-closed")
        assert code(client.post(f"{API}/sql", json=select)) == (403, "catalog-closed")
    with served(shared_db, share_catalog=True) as client:
        assert client.get(f"{API}/snapshot").status_code == 200
        assert client.post(f"{API}/sql", json=select).json()["rows"] == [{"n": 5}]


def test_llms_txt_names_every_request(client):
    text = client.get("/llms.txt").text
    document = client.get(f"{API}/openapi.json").json()

    for path, operations in document["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path.removeprefix(f'{API}/')}" in text
