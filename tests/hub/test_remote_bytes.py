"""Ranges of one remote file: right bytes or a code of their own, whatever the storage does."""

import hashlib
import random
import time
from dataclasses import replace

import pytest
from hub_standin import Fault

from deltadex.errors import REASONS, ModelError
from deltadex.indexer.hub.files import SLACK, RemoteBytes, locate

ELSEWHERE = {"Location": "http://127.0.0.1:9/login"}
CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture
def source(hub, session):
    repo = hub.add("org/model", {"model.safetensors": CONTENT})
    return RemoteBytes(session, locate(session, "org/model", repo.sha, "model.safetensors"))


def test_the_head_tells_size_and_hash_before_any_byte(hub, session):
    repo = hub.add("org/model", {"model.safetensors": CONTENT})

    file = locate(session, "org/model", repo.sha, "model.safetensors")

    assert RemoteBytes(session, file).size == len(CONTENT)
    assert file.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert hub.wire_bytes() == 0


def test_any_range_is_the_files_own_bytes(hub, source):
    rng = random.Random(1)
    ranges = [(0, 0), (0, 1), (len(CONTENT) - 1, len(CONTENT)), (0, len(CONTENT))]
    ranges += [tuple(sorted(rng.choices(range(len(CONTENT)), k=2))) for _ in range(20)]

    assert all(source.read(a, b) == CONTENT[a:b] for a, b in ranges)
    assert source.bytes_fetched == sum(b - a for a, b in ranges) == hub.wire_bytes("cdn")


def test_one_head_serves_all_ranges_and_the_token_never_leaves_the_hub(hub, source):
    for start in range(0, 100_000, 10_000):
        source.read(start, start + 10)

    assert [r.method for r in hub.requests("hub")] == ["HEAD"]
    assert hub.requests("hub")[0].headers["authorization"] == "Bearer hf_TOPSECRET"
    assert len(hub.requests("cdn")) == 10
    assert not any("TOPSECRET" in str(r.headers) for r in hub.requests("cdn"))
    assert {r.headers["accept-encoding"] for r in hub.requests("cdn")} == {"identity"}


RECOVERED = [
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 502},
    {"kind": "status", "status": 408},
    {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}},
    {"kind": "status", "status": 503, "headers": {"Retry-After": "0"}},
    {"kind": "status", "status": 403},
    {"kind": "status", "status": 416},
    {"kind": "stall"},
    {"kind": "stall", "after": 70_000},
    {"kind": "reset", "after": 70_000},
    {"kind": "truncate", "after": 70_000},
    {"kind": "truncate", "after": 0},
    {"kind": "short"},
    {"kind": "shifted"},
]


@pytest.mark.parametrize("fault", RECOVERED, ids=str)
def test_a_passing_fault_ends_in_the_right_bytes(hub, source, fault):
    hub.faults.append(Fault(path="/store/", **fault))

    assert source.read(10_000, 250_000) == CONTENT[10_000:250_000]


LASTING = [
    ({"kind": "status", "status": 500}, "hub-unreachable"),
    ({"kind": "status", "status": 503, "headers": {"Retry-After": "0"}}, "hub-unreachable"),
    ({"kind": "status", "status": 429, "headers": {"Retry-After": "0"}}, "rate-limited"),
    ({"kind": "status", "status": 429, "headers": {"Retry-After": "900"}}, "rate-limited"),
    ({"kind": "status", "status": 403}, "hub-bad-answer"),
    ({"kind": "status", "status": 404}, "hub-bad-answer"),
    ({"kind": "status", "status": 416}, "hub-bad-answer"),
    ({"kind": "status", "status": 418}, "hub-bad-answer"),
    ({"kind": "status", "status": 204}, "hub-bad-answer"),
    ({"kind": "stall"}, "hub-unreachable"),
    ({"kind": "reset"}, "hub-unreachable"),
    ({"kind": "truncate"}, "hub-unreachable"),
    ({"kind": "short"}, "hub-bad-answer"),
    ({"kind": "shifted"}, "hub-bad-answer"),
    ({"kind": "whole"}, "hub-bad-answer"),
    ({"kind": "html"}, "hub-bad-answer"),
    ({"kind": "encoded"}, "hub-bad-answer"),
    ({"kind": "loop"}, "hub-bad-answer"),
    ({"kind": "drip"}, "hub-unreachable"),
    ({"kind": "size"}, "changed"),
]


@pytest.mark.parametrize(("fault", "code"), LASTING, ids=str)
def test_a_lasting_fault_ends_in_its_own_code_within_seconds(hub, source, fault, code):
    hub.faults.append(Fault(path="/store/", nth=0, **fault))
    start = time.monotonic()

    with pytest.raises(ModelError) as caught:
        source.read(10_000, 20_000)

    assert caught.value.code == code
    assert time.monotonic() - start < 5
    assert "\n" not in caught.value.reason
    assert "org/model: model.safetensors" in caught.value.reason
    assert not any(secret in caught.value.reason for secret in ("SECRET", "http://", "store/"))


def test_an_answer_that_ends_early_is_the_networks_fault_and_not_the_files(hub, session, source):
    session.patience = replace(session.patience, tries=1)
    hub.faults.append(Fault(path="/store/", kind="shorter", nth=0))

    with pytest.raises(ModelError, match=r"^hub-bad-answer: .*answers end at byte") as caught:
        source.read(10_000, 20_000)

    assert REASONS[caught.value.code].transient


def test_a_cut_body_goes_on_where_it_stopped(hub, source):
    hub.faults.append(Fault(path="/store/", kind="truncate", after=65_536))

    source.read(0, 200_000)

    requested = [r.headers["range"] for r in hub.requests("cdn")]
    assert requested == ["bytes=0-199999", "bytes=65536-199999"]
    assert source.bytes_fetched == 200_000


def test_a_body_cut_many_times_arrives_as_long_as_it_grows(hub, source):
    hub.faults.append(Fault(path="/store/", kind="truncate", nth=0, after=20_000))

    assert source.read(0, 300_000) == CONTENT
    assert len(hub.requests("cdn")) == 15


def test_a_changed_etag_of_the_storage_is_a_changed_file(hub, source):
    hub.faults.append(Fault(path="/store/", kind="etag", nth=2))
    source.read(0, 100)

    with pytest.raises(ModelError, match=r"^changed: "):
        source.read(100, 200)


def test_an_expired_address_is_requested_once_more(hub, source):
    hub.signature_uses = 2

    parts = [bytes(source.read(i, i + 50_000)) for i in range(0, 300_000, 50_000)]

    assert b"".join(parts) == CONTENT
    assert len(hub.requests("hub", "HEAD")) == 3


def test_another_content_behind_a_fresh_address_is_a_changed_file(hub, source):
    hub.signature_uses = 1
    hub.faults.append(Fault(path="resolve", kind="etag", where="hub", nth=0))
    source.read(0, 100)

    with pytest.raises(ModelError, match=r"^changed: "):
        source.read(100, 200)


def test_a_server_without_ranges_is_good_enough_for_a_small_file(hub, session):
    content = CONTENT[: SLACK + 1_000]
    repo = hub.add("org/small", {"a.bin": content})
    hub.faults.append(Fault(path="/store/", kind="whole", nth=0))
    source = RemoteBytes(session, locate(session, "org/small", repo.sha, "a.bin"))

    assert source.read(500, 1_500) == content[500:1_500]
    with pytest.raises(ModelError, match="the whole file of 66536 bytes instead of a range"):
        source.read(500, 1_499)


def test_a_refused_whole_file_is_not_downloaded(hub, source):
    hub.faults.append(Fault(path="/store/", kind="whole", nth=0))

    with pytest.raises(ModelError, match="instead of a range"):
        source.read(0, 10)
    assert source.bytes_fetched == 0


def test_a_range_beyond_the_end_is_not_requested(hub, source):
    with pytest.raises(ModelError, match=r"^truncated: "):
        source.read(0, len(CONTENT) + 1)
    assert hub.requests("cdn") == []


def test_a_file_that_the_hub_hands_out_itself_is_read_with_the_token(hub, session):
    repo = hub.add("org/plain", {"weights.txt": CONTENT})
    file = locate(session, "org/plain", repo.sha, "weights.txt")

    assert RemoteBytes(session, file).read(5, 50_000) == CONTENT[5:50_000]
    assert file.sha256 is None
    assert "authorization" in hub.requests("hub", "GET")[0].headers


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"kind": "status", "status": 404}, "private-or-missing"),
        ({"kind": "status", "status": 503}, "hub-unreachable"),
        ({"kind": "status", "status": 302, "headers": ELSEWHERE}, "hub-bad-answer"),
        ({"kind": "body", "headers": {"ETag": '"x"'}}, "hub-bad-answer"),
        ({"kind": "html"}, "hub-bad-answer"),
        ({"kind": "loop"}, "hub-bad-answer"),
        ({"kind": "stall"}, "hub-unreachable"),
    ],
    ids=str,
)
def test_a_head_without_the_hubs_answer_opens_nothing(hub, session, fault, code):
    repo = hub.add("org/model", {"model.safetensors": CONTENT})
    hub.faults.append(Fault(path="resolve", where="hub", nth=0, **fault))

    with pytest.raises(ModelError, match=f"^{code}: "):
        RemoteBytes(session, locate(session, "org/model", repo.sha, "model.safetensors"))


def test_an_answer_for_another_commit_is_a_changed_repository(hub, session):
    hub.add("org/model", {"model.safetensors": CONTENT})
    repo = hub.repos["org/model"]
    requested, repo.sha = repo.sha, "f" * 40
    headers = {"X-Repo-Commit": repo.sha, "ETag": '"x"'}
    hub.faults.append(Fault(path="resolve", kind="body", where="hub", headers=headers))

    with pytest.raises(ModelError, match=r"^changed: "):
        RemoteBytes(session, locate(session, "org/model", requested, "model.safetensors"))


def test_a_stopped_session_ends_its_waits_at_once(hub, source, session):
    hub.faults.append(
        Fault(path="/store/", kind="status", status=503, headers={"Retry-After": "1"}, nth=0)
    )
    session.cancelled.set()

    with pytest.raises(ModelError, match="stopped"):
        source.read(0, 10)
