"""One repository described: by the Hub, by the local cache, or refused with a code."""

from __future__ import annotations

import pytest
from hub_standin import Fault

from deltadex.errors import ModelError
from deltadex.indexer.hub import describe
from deltadex.indexer.hub.session import HubSession

BAD_TOKEN = {"X-Error-Message": "Invalid credentials in Authorization header"}


def test_a_repository_is_pinned_to_its_commit(hub, session):
    repo = hub.add("org/model", {"model.safetensors": b"", "config.json": b"{}"}, downloads=4)

    model = describe("org/model", session=session)

    assert (model.id, model.sha, model.downloads) == ("org/model", repo.sha, 4)
    assert model.files == ("config.json", "model.safetensors")
    assert len(hub.log) == 1


def test_an_id_of_one_segment_is_an_id(hub, session):
    hub.add("gpt2", {"model.safetensors": b""})

    assert describe("gpt2", session=session).id == "gpt2"


def test_a_renamed_repository_is_described_under_its_new_name(hub, session):
    hub.add("org/new")
    hub.renamed["old"] = "org/new"

    assert describe("old", session=session).id == "org/new"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 401, "headers": BAD_TOKEN}, "unauthorized"),
        ({"status": 403}, "unauthorized"),
        ({"status": 403, "headers": {"X-Error-Code": "GatedRepo"}}, "gated"),
        ({"status": 401, "headers": {"X-Error-Code": "GatedRepo"}}, "gated"),
        ({"status": 401}, "private-or-missing"),
        ({"status": 404}, "private-or-missing"),
        ({"status": 451}, "disabled"),
        ({"status": 400}, "hub-bad-answer"),
        ({"status": 418}, "hub-bad-answer"),
        ({"status": 500}, "hub-unreachable"),
        ({"status": 504}, "hub-unreachable"),
        ({"status": 429}, "rate-limited"),
        ({"status": 429, "headers": {"RateLimit": '"api";r=0;t=300'}}, "rate-limited"),
        ({"kind": "html"}, "hub-bad-answer"),
        ({"kind": "body", "body": b"nonsense"}, "hub-bad-answer"),
        ({"kind": "body", "body": b"[]"}, "hub-bad-answer"),
        ({"kind": "body", "body": b"{}"}, "hub-bad-answer"),
        ({"kind": "loop"}, "hub-bad-answer"),
        ({"kind": "drip"}, "hub-unreachable"),
    ],
    ids=str,
)
def test_every_refusal_has_its_code_and_no_secrets(hub, session, fault, code):
    hub.add("org/model", {"model.safetensors": b""})
    hub.faults.append(Fault(path="/api/models", where="hub", nth=0, **{"kind": "status", **fault}))

    with pytest.raises(ModelError) as caught:
        describe("org/model", session=session)

    assert caught.value.code == code
    assert caught.value.reason.startswith("org/model: ")
    assert "\n" not in caught.value.reason
    assert "SECRET" not in caught.value.reason


def test_missing_private_and_disabled_repositories_are_told_apart_where_the_hub_does(hub, session):
    hub.add("org/gone", disabled=True)
    hub.add("org/mine", private=True)
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)

    with pytest.raises(ModelError, match=r"^disabled: "):
        describe("org/gone", session=session)
    with pytest.raises(ModelError, match=r"^private-or-missing: "):
        describe("org/mine", session=anonymous)
    with pytest.raises(ModelError, match=r"^private-or-missing: "):
        describe("org/never", session=session)
    with pytest.raises(ModelError, match=r"^not-found: .*revision"):
        describe("org/mine", revision="v9", session=session)
    assert describe("org/mine", session=session).id == "org/mine"


@pytest.mark.parametrize("id", ["", "a/b/c", "../etc/passwd", "a b", "-x", "https://x.y/z"])
def test_what_is_no_id_is_not_requested(hub, session, id):
    with pytest.raises(ModelError, match=r"^not-found: "):
        describe(id, session=session)
    assert hub.log == []


def test_an_odd_description_is_read_without_huggingface_hub(hub, session):
    hub.add("org/odd", {"model.safetensors": b""}, createdAt="yesterday")

    assert describe("org/odd", session=session).files == ("model.safetensors",)


def test_an_unreachable_hub_is_given_up_with_its_code(session):
    session.endpoint = "http://127.0.0.1:9"

    with pytest.raises(ModelError, match=r"^hub-unreachable: org/model: no connection"):
        describe("org/model", session=session)


def test_offline_the_cache_describes_a_model(session, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = tmp_path / "models--org--model" / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"")
    (snapshot / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "models--org--model" / "refs").mkdir()
    (tmp_path / "models--org--model" / "refs" / "main").write_text("c" * 40)

    model = describe("org/model", session=session)

    assert (model.sha, model.files) == ("c" * 40, ("config.json", "model.safetensors"))
    assert model.config == {"model_type": "bert"}
    with pytest.raises(ModelError, match=r"^offline: "):
        describe("org/other", session=session)
