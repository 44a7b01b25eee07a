"""What is too long, too much, too slow or badly addressed is refused, as a problem document."""

import asyncio
import threading
import time

import httpx2
import pytest
from services import API, TOKEN, WRITER, adapter_files, files, finished, served

from deltadex.service.api.answers import PROBLEM, Problem
from deltadex.service.api.catalog import prepare_indexes
from deltadex.service.api.middleware import SECURITY_HEADERS
from deltadex.service.api.work import Work


@pytest.fixture(scope="module")
def client(shared_db):
    with served(shared_db, body_limit=2, token=TOKEN) as client:
        yield client


def assert_problem(answer, status, code):
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "code"}
    assert (document["status"], document["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("similar", {"params": {"model": "a-0", "k": 101}}),
        ("similar", {"params": {"model": "x" * 1001}}),
        ("similar", {"params": {"model": "a\x00"}}),
        ("models", {"params": {"sort": "key"}}),
        ("map", {"params": {"layout": "globe"}}),
        ("similar", {"json": {}}),
        ("similar", {"json": {"queries": [{"model": "a-0"}] * 33}}),
        ("similar", {"json": {"queries": [{"model": "a-0", "vector": [1.0]}]}}),
        ("similar", {"json": {"queries": [{"model": "a-0"}], "path": "/etc/passwd"}}),
        ("similar", {"json": "text"}),
    ],
)
def test_parameters_and_batches_have_limits(client, path, sent):
    method = "GET" if "params" in sent else "POST"

    assert_problem(client.request(method, f"{API}/{path}", **sent), 422, "invalid")


def test_unknown_places_and_methods_are_problems(client):
    assert_problem(client.get("/nothing"), 404, "not-found")
    assert_problem(client.get("/static/..%2f..%2fapp.py"), 404, "not-found")
    assert_problem(client.get("/docs"), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", f"{API}/models", "GET, HEAD, POST"),
        ("POST", f"{API}/models/a/b", "GET, HEAD, PATCH, DELETE"),
        ("HEAD", f"{API}/similar/adapter", "POST"),
        ("POST", "/", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_every_right_one(client, method, path, allowed):
    answer = client.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert method == "HEAD" or answer.json()["code"] == "method-not-allowed"


@pytest.mark.parametrize("path", ["/static/main.js", f"{API}/models/a-0", "/nothing"])
def test_head_is_the_head_of_get(client, path):
    asked, got = client.head(path), client.get(path)

    assert (asked.status_code, asked.headers) == (got.status_code, got.headers)
    assert (asked.content, bool(got.content)) == (b"", True)


@pytest.mark.parametrize(
    ("path", "sent", "detail"),
    [
        ("similar?model=a-0&datset=a", {}, "'datset' is unknown; near: dataset, base"),
        ("map?K=3&layout=pca", {}, "'K' is unknown; there are: axes, layout, recipe, base"),
        ("health?x=1", {}, "'x' is unknown; there are: none"),
        ("models?limit=2&limit=3", {}, "limit: given 2 times; give it once"),
        (
            "similar",
            {"json": {"queries": [{"modle": "a"}]}},
            "queries.0: 'modle' is unknown; near: model",
        ),
        ("similar", {"json": {"query": []}}, "body: 'query' is unknown; near: queries"),
        ("models", {"json": {"modles": []}}, "body: 'modles' is unknown; near: models"),
        ("models", {"data": {"modle": "m"}}, "'modle' is unknown; near: model"),
        ("similar/adapter", {"data": {"k": ["1", "2"]}}, "k: given 2 times; give it once"),
    ],
)
def test_no_parameter_and_no_key_of_a_body_is_ignored(client, path, sent, detail):
    if "data" in sent:
        sent = {**sent, "files": adapter_files()}

    answer = client.request("POST" if sent else "GET", f"{API}/{path}", headers=WRITER, **sent)

    assert_problem(answer, 422, "invalid")
    assert answer.json()["detail"] == detail


def test_a_long_body_is_refused_by_its_header_and_as_it_comes(client):
    small, large = b" " * ((1 << 20) + 1), b" " * ((2 << 20) + 1)
    headers = {"Content-Type": "application/json"}

    def pieces():
        yield small[: 1 << 19]
        yield small[1 << 19 :]

    for content in (small, pieces()):
        answer = client.post(f"{API}/similar", content=content, headers=headers)
        assert_problem(answer, 413, "body-too-long")
    sent = files(b"{}", large)
    assert_problem(client.post(f"{API}/similar/adapter", files=sent), 413, "body-too-long")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""])
def test_a_strange_host_header_is_refused(client, host):
    assert_problem(client.get(f"{API}/health", headers={"Host": host}), 400, "unknown-host")


def test_every_answer_tells_browsers_what_not_to_do(client):
    for path in ("/", "/health", f"{API}/families", "/nothing", f"{API}/models?limit=0"):
        headers = client.get(path).headers
        for name, value in SECURITY_HEADERS.items():
            assert headers[name] == value
        assert "access-control-allow-origin" not in headers


def test_metrics_count_requests_by_route(client):
    client.get(f"{API}/models/a-0")
    client.get(f"{API}/models/a-1")
    text = client.get("/metrics").text

    assert f'route="{API}/models/{{model:path}}",status="200"' in text
    assert 'deltadex_models{status="indexed"} 4.0' in text
    assert 'deltadex_models{status="failed"} 1.0' in text
    assert "a-0" not in text
    for name in ("request_seconds_bucket", "requests_in_flight", "index_vectors", "catalog_bytes"):
        assert f"deltadex_{name}" in text
    assert "process_resident_memory_bytes" in text


VALUES = {"model": "a-0", "other": "a-1", "first": "a-0", "second": "a-1", "data": "d", "text": "x"}


@pytest.mark.parametrize("base", ["nope", "/tmp/nope"])
def test_an_unknown_base_is_404_wherever_a_base_is_named(client, base):
    schema, asked = client.get(f"{API}/openapi.json").json(), 0
    for path, operations in schema["paths"].items():
        names = {one["name"] for one in operations.get("get", {}).get("parameters", ())}
        if "base" not in names:
            continue
        inside = {name: (VALUES | {"base": base.lstrip("/")}).get(name, "d") for name in names}
        address = path.format(**inside)
        params = {name: value for name, value in inside.items() if f"{{{name}}}" not in path}
        own = {key: params[key] for key in (*VALUES, "base") if key in params}
        answer = client.get(address, params=own | ({"base": base} if "base" in own else {}))

        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-base"), address
        asked += 1
    assert asked > 12


def test_until_indexes_are_open_readiness_has_percent_and_what_can_be_searched(shared_db):
    with served(shared_db) as client:
        freshness = client.service.freshness
        told, base = [], client.service.names().meant("base")
        client.service.readers.prepare(
            prepare_indexes, lambda *reached: told.append(reached) or True
        )
        freshness.ready.clear()
        freshness.reached = 0.437, [base]
        refused, families = client.get("/ready"), client.get(f"{API}/families").json()

    assert told[0] == (0.0, [])
    stands = {"percent": 43, "searchable": ["base"]}
    assert refused.status_code == 503
    assert refused.json() == {"ready": False, "detail": "opening indexes", **stands}
    assert families["opening"] == stands


def test_work_that_takes_too_long_is_a_problem_and_keeps_its_place():
    work = Work(at_once=1, waiting=1, seconds=0.1)
    release = threading.Event()

    async def ask():
        with pytest.raises(Problem) as slow:
            await work.run(release.wait)
        assert (slow.value.status, slow.value.code) == (503, "too-slow")
        assert slow.value.headers["Retry-After"]
        assert work.pending == 1
        waiting = asyncio.ensure_future(work.run(release.wait))
        await asyncio.sleep(0.01)
        with pytest.raises(Problem, match="busy"):
            await work.run(release.wait)
        release.set()
        assert await waiting

    finished(ask)
    work.close()
    time.sleep(0.05)
    assert work.pending == 0


class Raw:
    """A request to an app with the messages of its client one by one, as a server passes them."""

    def __init__(self, path, body, *, is_complete):
        self.answers = []
        self.hung_up = asyncio.Event()
        self._first = {"type": "http.request", "body": body, "more_body": not is_complete}
        headers = [("host", "localhost"), *WRITER.items()]
        headers.append(("content-type", "multipart/form-data; boundary=x"))
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": f"{API}/{path}",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }

    async def receive(self):
        if self._first is not None:
            message, self._first = self._first, None
            return message
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.answers.append(message)

    async def ask(self, client):
        await client.app(self.scope, self.receive, self.send)
        return self.answers[0]["status"]


def adapter_body():
    """The body of an upload as it is on the wire."""
    boundary = {"content-type": "multipart/form-data; boundary=x"}
    request = httpx2.Request("POST", "http://x", files=adapter_files(), headers=boundary)
    return request.read()


@pytest.mark.parametrize("path", ["models", "similar/adapter"])
def test_a_client_that_hangs_up_in_its_body_is_no_defect(client, path):
    async def ask():
        raw = Raw(path, adapter_body()[:500], is_complete=False)
        raw.hung_up.set()
        return await raw.ask(client)

    assert finished(ask) == 400


@pytest.mark.parametrize("how", ["hangs up", "is cut off by the end of the service"])
def test_an_upload_that_waits_when_its_client_goes_is_answered(client, how):
    line, release = client.service.uploads, threading.Event()
    while line.pending:  # of the test before
        time.sleep(0.01)
    line.submit(release.wait)

    async def ask():
        raw = Raw("similar/adapter", adapter_body(), is_complete=True)
        asking = asyncio.ensure_future(raw.ask(client))
        while line.pending < 2:
            await asyncio.sleep(0.01)
        raw.hung_up.set() if how == "hangs up" else asking.cancel()
        return await asking, line.pending

    try:
        assert finished(ask) == ((400, 1) if how == "hangs up" else (503, 2))
    finally:
        release.set()
