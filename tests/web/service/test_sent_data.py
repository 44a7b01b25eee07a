"""Data sets sent to a service: whose models were trained on them, as a job, nothing kept."""

import tempfile

import pytest
from factories import save_tokenizer, write_reviews
from running import document
from services import API, make_indexed_family, served, wait_until

from deltadex.service.api import sent_data


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    pytest.importorskip("transformers", reason="deltadex[studies] is not installed")
    folder = tmp_path_factory.mktemp("sent")
    db = make_indexed_family(folder)
    save_tokenizer(folder / "base")
    return db, write_reviews(folder / "reviews.csv")


def sent(client, content, name="reviews.csv", *, now=False, **fields):
    headers = {"Prefer": "respond-async"} if now else {}
    return client.post(
        f"{API}/trained-on", files={"data": (name, content)}, data=fields, headers=headers
    )


@pytest.mark.slow
def test_a_data_set_is_a_job_that_stops_and_leaves_nothing(family, tmp_path, monkeypatch):
    db, reviews = family
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with served(db) as client:
        begun = sent(client, reviews.read_bytes(), now=True)
        place = f"{API}/jobs/{begun.json()['job']}"
        at_work = client.get(place).json()
        stopped = client.delete(place)
        wait_until(lambda: not list(tmp_path.iterdir()))

    assert (begun.status_code, at_work["ahead"], at_work["status"]) == (202, 0, "computing")
    assert begun.headers["location"] == place
    assert stopped.json()["cancelled"] is True


def test_a_data_set_is_answered_as_the_command_answers(family, tmp_path, monkeypatch):
    db, reviews = family
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with served(db) as client:
        answer = sent(client, reviews.read_bytes(), "/etc/../.hidden/my reviews.CSV", k=3)
        refused = sent(client, b"text,label\n,\n")

    assert answer.status_code == 200, answer.text
    given, expected = answer.json(), document(db, "find-trained-on", reviews, "-k", "3")
    assert given["neighbours"] == [row | {"base": "base"} for row in expected["neighbours"]]
    assert given["query"]["texts"] == "my-reviews.csv"
    assert given["query"]["base"] == "base"
    assert given["meaning"] == expected["meaning"]
    assert str(reviews.parent) not in answer.text
    assert refused.status_code == 422
    assert str(tmp_path) not in refused.text
    assert list(tmp_path.iterdir()) == []


REFUSED = [
    (b"x", "weights.bin", {}, 422, "a file of one of .csv"),
    (b"x" * (sent_data.DATA_LIMIT + 1), "a.csv", {}, 413, "at most 8 MiB"),
    (b"text\nx\n", "a.csv", {"base": "nobody"}, 404, "nobody"),
    (b"text\nx\n", "a.csv", {"keep": "mine"}, 422, "'keep' is unknown"),
    (b"text\nx\n", "a.csv", {"control": "/etc/passwd"}, 422, "'control' is unknown"),
    (b"text\nx\n", "a.csv", {"device": "cuda"}, 422, "'device' is unknown"),
    (b"text\nx\n", "a.csv", {"k": 101}, 422, "k"),
]


def test_what_cannot_be_asked_is_refused_in_a_line(family):
    with served(family[0]) as client:
        for content, name, fields, status, words in REFUSED:
            answer = sent(client, content, name, **fields)

            assert answer.status_code == status, (name, fields)
            assert words in answer.json()["detail"]


@pytest.mark.slow
def test_a_base_that_is_nowhere_and_a_missing_extra_say_so(tmp_path, monkeypatch):
    from catalogs import fill

    fill(tmp_path / "c.duckdb", base="somebody/base-that-is-nowhere").close()
    with served(tmp_path / "c.duckdb") as client:
        nowhere = sent(client, b"text\nsome words\n")
        monkeypatch.setattr(sent_data, "find_spec", lambda name: None)
        without = sent(client, b"text\nsome words\n")
        takes = client.get(f"{API}/families").json()["takes"]

    assert (nowhere.status_code, nowhere.json()["code"]) == (422, "needs-base")
    assert "somebody/base-that-is-nowhere" in nowhere.json()["detail"]
    assert (without.status_code, without.json()["code"]) == (422, "needs-studies")
    assert takes["data"] == 0
    assert takes["adapter"] > 0
