"""Small files: at the pinned commit, whole, or refused."""

import gzip
import hashlib
import tracemalloc
from dataclasses import replace

import pytest
from hub_repos import ODD, assert_same
from hub_standin import Fault
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.hub import HubWeights, describe, read_small_file
from deltadex.indexer.hub.files import MAX_SMALL_FILE
from deltadex.indexer.hub.session import HubSession


def test_a_small_file_comes_at_the_pinned_commit(hub, session):
    repo = hub.add("org/model", {"config.json": b'{"a": 1}', "extra.bin": b"stored elsewhere"})
    model = describe("org/model", session=session)

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'
    assert f"/resolve/{repo.sha}/config.json" in hub.log[-1].path
    assert read_small_file(model, "extra.bin", session=session) == b"stored elsewhere"
    assert "authorization" not in hub.requests("cdn")[-1].headers
    with pytest.raises(ModelError, match=r"^not-found: org/model: README.md"):
        read_small_file(model, "README.md", session=session)


@pytest.mark.parametrize("kind", ["truncate", "reset", "status", "stall"])
def test_a_small_file_is_requested_again(hub, session, kind):
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
def test_what_is_not_the_small_file_is_refused(hub, session, fault):
    repo = hub.add("org/model", {"config.json": b"{}"})
    model = describe("org/model", session=session)
    if "headers" in fault:
        fault["headers"] = {"X-Repo-Commit": repo.sha}
    hub.faults.append(Fault(path="config.json", where="hub", nth=0, **fault))

    with pytest.raises(ModelError, match=r"^hub-bad-answer: org/model: config.json"):
        read_small_file(model, "config.json", session=session)


def test_a_gated_file_without_a_token_says_so(hub, session):
    hub.add("org/model", {"model.safetensors": save(ODD)}, gated="auto")
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)
    model = describe("org/model", session=anonymous)

    with pytest.raises(ModelError, match=r"^gated: org/model"):
        HubWeights(model, session=anonymous).open()
    assert_same(HubWeights(model, session=session).open(), ODD)


@pytest.mark.parametrize("name", ["config.json", "card.bin"])
def test_a_content_that_its_etag_does_not_name_is_requested_again_and_then_refused(
    hub, session, name
):
    hub.add("org/model", {name: b'{"layers": 12}'})
    model = describe("org/model", session=session)
    where = "hub" if name == "config.json" else "cdn"
    path = name if where == "hub" else "/store/"
    hub.faults.append(Fault(path=path, where=where, kind="mangle", body=b'{"layers": 13}'))
    assert read_small_file(model, name, session=session) == b'{"layers": 12}'

    hub.faults[0] = replace(hub.faults[0], nth=0)
    with pytest.raises(ModelError, match="another content than it should be"):
        read_small_file(model, name, session=session)


def test_a_mirror_may_name_contents_by_sha1_or_not_at_all(hub, session):
    repo = hub.add("org/model", {"config.json": b"{}"})
    model = describe("org/model", session=session)
    for etag in (hashlib.sha1(b"{}").hexdigest(), "33a64df5", hashlib.md5(b"{}").hexdigest()):
        headers = {"X-Repo-Commit": repo.sha, "ETag": f'"{etag}"'}
        hub.faults = [
            Fault(path="config.json", where="hub", kind="body", nth=0, headers=headers, body=b"{}")
        ]
        assert read_small_file(model, "config.json", session=session) == b"{}"


def test_a_bomb_is_unpacked_no_further_than_a_small_file_may_be(hub, session):
    hub.add("org/model", {"config.json": b"{}"})
    model = describe("org/model", session=session)
    body = gzip.compress(bytes(1 << 28), 1)
    hub.faults.append(Fault(path="config.json", where="hub", kind="bomb", nth=0, body=body))
    tracemalloc.start()

    with pytest.raises(ModelError, match="an answer of more than 16777216 bytes"):
        read_small_file(model, "config.json", session=session)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MAX_SMALL_FILE
