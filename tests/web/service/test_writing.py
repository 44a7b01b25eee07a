"""Nobody writes unless the operator says so, and then only with the token."""

import pytest
from services import API, TOKEN, WRITER, adapter_files, code, files, served


def fetch(client, id):
    body = {"models": [id], "base": "base"}
    return code(client.post(f"{API}/models", json=body, headers=WRITER))


def add(client, *, headers=WRITER, sent=None, **fields):
    data = {"model": "up/one", "base": "base", **fields}
    return client.post(
        f"{API}/models", data=data, files=sent or adapter_files(seed=3), headers=headers
    )


def test_a_service_is_read_only_until_told_otherwise(db):
    with served(db) as client:
        assert code(add(client)) == (403, "read-only")
        assert code(client.delete(f"{API}/models/a-0", headers=WRITER)) == (403, "read-only")
        asked = client.post(f"{API}/models", json={"models": ["x/y"], "base": "b"})
        assert code(asked) == (403, "read-only")


@pytest.mark.parametrize("header", [None, "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN])
def test_writing_needs_the_token(client, header):
    headers = {} if header is None else {"Authorization": header}

    for answer in (
        add(client, headers=headers),
        client.delete(f"{API}/models/a-0", headers=headers),
        client.delete(f"{API}/models/a-0?unknown=1", headers=headers),
        client.patch(f"{API}/models/a-0", content=b"{", headers=headers),
        client.post(f"{API}/sql", content=b"[", headers=headers),
        client.get(f"{API}/snapshot", headers=headers),
    ):
        assert code(answer) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert client.get(f"{API}/models/a-0").status_code == 200


def test_an_id_with_a_line_break_is_no_other_model(client):
    answer = client.delete(f"{API}/models/a-0%0A", headers=WRITER)

    assert code(answer) == (404, "not-found")
    assert client.get(f"{API}/models/a-0").status_code == 200


def test_an_added_adapter_is_found_and_can_be_removed(client):
    answer = add(client, dataset="a", author="somebody")

    assert answer.status_code == 201, answer.text
    assert (answer.json()["indexed"], answer.json()["model"]) == (1, "up/one")
    shown = client.get(f"{API}/models/up/one").json()
    assert (shown["dataset"], shown["author"], shown["kind"]) == ("a", "somebody", "adapter")
    assert (shown["source"], shown["base"], len(shown["slots"])) == ("upload", "base", 2)
    same = client.post(f"{API}/similar/adapter", files=adapter_files(seed=3)).json()
    assert same["neighbours"][0]["model"] == "up/one"
    assert same["neighbours"][0]["cosine"] == pytest.approx(1.0)
    assert code(add(client)) == (409, "id-taken")
    removed = client.delete(f"{API}/models/up/one", headers=WRITER)
    assert removed.json() == {"removed": "up/one", "base": "base"}
    assert client.get(f"{API}/models/up/one").status_code == 404
    assert client.get(f"{API}/families").json()["families"][0]["models"] == 5


@pytest.mark.parametrize("id", ["", "/etc/x", "a/../b", "a\nb", "x" * 201])
def test_an_id_is_checked(client, id):
    assert code(add(client, model=id)) == (422, "invalid")


@pytest.mark.parametrize(
    "sent",
    [
        {"config": ("c", b"{}")},
        {"config": ("c", b"{}"), "weights": ("w", b"x"), "more": ("m", b"")},
    ],
)
def test_both_files_and_no_others_are_sent(client, sent):
    assert client.post(
        f"{API}/models", data={"model": "m"}, files=sent, headers=WRITER
    ).status_code in (400, 422)


def test_a_bad_adapter_is_refused_with_its_code_and_not_recorded(client):
    answer = add(client, sent=files(b"{}", b"short"))

    assert answer.status_code == 422
    assert answer.json()["code"] in ("truncated", "bad-header")
    assert client.get(f"{API}/models/up/one").status_code == 404


def test_an_unknown_field_or_body_is_refused(client):
    assert code(add(client, path="/etc")) == (422, "invalid")
    answer = client.post(f"{API}/models", content=b"x", headers=WRITER)
    assert code(answer) == (415, "media-type")


def test_nothing_is_fetched_unless_the_operator_allows_it(client):
    assert fetch(client, "someone/model") == (403, "hub-closed")


@pytest.mark.parametrize("id", ["/etc", "./x", "a/b/c", "../x", "~/x", "a/..", "https://x.y/z"])
def test_only_ids_of_the_hub_are_fetched(client, id):
    assert fetch(client, id) == (422, "invalid")


def test_a_folder_of_the_server_is_never_taken_for_an_id(db, shared_db, monkeypatch):
    monkeypatch.chdir(shared_db.parent)
    with served(db, token=TOKEN, allow_hub=True) as client:
        assert fetch(client, "models/a-0") == (422, "bad-request")
