"""Small files: at the pinned commit, whole, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hub_repos import ODD, assert_same
from hub_standin import Fault, StandInHub
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.hub import describe, open_hub_model, read_small_file
from deltadex.indexer.hub.session import HubSession


def test_a_small_file_comes_at_the_pinned_commit(hub: StandInHub, session: HubSession) -> None:
    repo = hub.add("org/model", {"config.json": b'{"a": 1}', "extra.bin": b"stored elsewhere"})
    model = describe("org/model", session=session)

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'
    assert f"/resolve/{repo.sha}/config.json" in hub.log[-1].path
    assert read_small_file(model, "extra.bin", session=session) == b"stored elsewhere"
    assert "authorization" not in hub.requests("cdn")[-1].headers
    with pytest.raises(ModelError, match=r"^not-found: org/model: README.md"):
        read_small_file(model, "README.md", session=session)


@pytest.mark.parametrize("kind", ["truncate", "reset", "status", "stall"])
def test_a_small_file_is_asked_for_again(hub: StandInHub, session: HubSession, kind: str) -> None:
    hub.add("org/model", {"config.json": b'{"a": 1}'})
    model = describe("org/model", session=session)
    hub.faults.append(Fault(path="config.json", kind=kind, where="hub", after=3))

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html"},
        {"kind": "loop"},
        {"kind": "body", "body": b"{}"},
        {"kind": "body", "body": bytes((16 << 20) + 1), "headers": {"X-Repo-Commit": "*"}},
    ],
    ids=lambda fault: fault["kind"],
)
def test_what_is_not_the_small_file_is_refused(
    hub: StandInHub, session: HubSession, fault: dict[str, Any]
) -> None:
    repo = hub.add("org/model", {"config.json": b"{}"})
    model = describe("org/model", session=session)
    if "headers" in fault:
        fault["headers"] = {"X-Repo-Commit": repo.sha}
    hub.faults.append(Fault(path="config.json", where="hub", nth=0, **fault))

    with pytest.raises(ModelError, match=r"^hub-bad-answer: org/model: config.json"):
        read_small_file(model, "config.json", session=session)


def test_a_gated_file_without_a_token_says_so(hub: StandInHub, session: HubSession) -> None:
    hub.add("org/model", {"model.safetensors": save(ODD)}, gated="auto")
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)
    model = describe("org/model", session=anonymous)

    with pytest.raises(ModelError, match=r"^gated: org/model"):
        open_hub_model(model, session=anonymous)
    assert_same(open_hub_model(model, session=session), ODD)
