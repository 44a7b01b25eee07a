"""Ranges of one remote file: right bytes or a code of their own, whatever the storage does."""

import gzip
import hashlib
import random
import tracemalloc

import pytest
from hub_standin import Fault

from deltadex.errors import ModelError
from deltadex.indexer.hub import describe, read_small_file
from deltadex.indexer.hub.files import MAX_SMALL_FILE, SLACK, RemoteBytes, locate

CONTENT = random.Random(0).randbytes(300_000)


FILE = "model.safetensors"


@pytest.fixture
def repo(hub):
    return hub.add("org/model", {FILE: CONTENT})


@pytest.fixture
def source(repo, session):
    return RemoteBytes(session, locate(session, "org/model", repo.sha, FILE))


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


def test_a_body_cut_many_times_goes_on_where_it_stopped_as_long_as_it_grows(hub, source):
    hub.faults.append(Fault(path="/store/", kind="truncate", nth=0, after=20_000))

    assert source.read(0, 300_000) == CONTENT
    requested = [r.headers["range"] for r in hub.requests("cdn")]
    assert requested == [f"bytes={n}-299999" for n in range(0, 300_000, 20_000)]
    assert source.bytes_fetched == 300_000


@pytest.mark.parametrize(
    ("uses", "fault"),
    [
        (None, Fault(path="/store/", kind="etag", nth=2)),
        (1, Fault(path="resolve", kind="etag", where="hub", nth=0)),
    ],
    ids=["in the storage", "behind a fresh address"],
)
def test_another_etag_is_a_changed_file(hub, source, uses, fault):
    hub.signature_uses = uses
    hub.faults.append(fault)
    source.read(0, 100)

    with pytest.raises(ModelError, match=r"^changed: "):
        source.read(100, 200)


def test_a_server_without_ranges_is_good_enough_for_a_small_file_and_no_larger_one_is_downloaded(
    hub, session
):
    content = CONTENT[: SLACK + 1_000]
    repo = hub.add("org/small", {"a.bin": content})
    hub.faults.append(Fault(path="/store/", kind="whole", nth=0))
    source = RemoteBytes(session, locate(session, "org/small", repo.sha, "a.bin"))

    with pytest.raises(ModelError, match="the whole file of 66536 bytes instead of a range"):
        source.read(500, 1_499)
    assert source.bytes_fetched == 0
    assert source.read(500, 1_500) == content[500:1_500]


def test_a_range_of_a_file_that_the_hub_hands_out_itself_is_read_with_the_token(hub, session):
    repo = hub.add("org/plain", {"weights.txt": CONTENT})
    file = locate(session, "org/plain", repo.sha, "weights.txt")

    assert RemoteBytes(session, file).read(5, 50_000) == CONTENT[5:50_000]
    assert file.sha256 is None
    assert "authorization" in hub.requests("hub", "GET")[0].headers


def test_a_stopped_session_ends_its_waits_at_once(hub, source, session):
    fault = Fault(path="/store/", kind="status", status=503, headers={"Retry-After": "1"}, nth=0)
    hub.faults.append(fault)
    session.cancelled.set()

    with pytest.raises(ModelError, match="stopped"):
        source.read(0, 10)


def test_a_small_file_comes_at_the_pinned_commit(hub, session):
    repo = hub.add("org/model", {"config.json": b'{"a": 1}', "extra.bin": b"stored elsewhere"})
    model = describe("org/model", session=session)

    assert read_small_file(model, "config.json", session=session) == b'{"a": 1}'
    assert f"/resolve/{repo.sha}/config.json" in hub.log[-1].path
    assert read_small_file(model, "extra.bin", session=session) == b"stored elsewhere"
    assert "authorization" not in hub.requests("cdn")[-1].headers
    with pytest.raises(ModelError, match=r"^not-found: org/model: README.md"):
        read_small_file(model, "README.md", session=session)


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
