"""What a service, the network, or something that is no service does to `deltadex.connect`."""

import asyncio
import hashlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from listening import TOKEN, listening, running
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

import deltadex as dx
from deltadex import errors


class Obstructed:
    """Answers in the app's place while there are answers left for a path."""

    def __init__(self, app):
        self.app, self.answers, self.seen = app, {}, []

    async def __call__(self, scope, receive, send):
        path = scope["path"].removeprefix("/api/v1/")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.seen.append((scope["method"], path, headers))
        waiting = self.answers.get(path)
        answer = waiting.pop(0) if waiting else self.app
        await answer(scope, receive, send)


@contextmanager
def obstructed(db, by=Obstructed, **settings):
    """A database over a service, and what stands before it."""
    standing = []

    def wrap(app):
        standing.append(by(app))
        return standing[0]

    with (
        listening(db, app=wrap, token=TOKEN, **settings) as url,
        dx.connect(url, token=TOKEN) as remote,
    ):
        yield remote, standing[0]


def problem(status, code, detail="later", **headers):
    document = {"status": status, "code": code, "detail": detail}
    return JSONResponse(
        document, status, {name.replace("_", "-"): v for name, v in headers.items()}
    )


async def cut(scope, receive, send):
    """A service that is killed in the middle of its answer."""
    headers = [(b"content-length", b"1000"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"models', "more_body": True})
    raise RuntimeError("killed")


async def longer(scope, receive, send):
    """A copy of another length than its manifest says."""
    headers = [(b"deltadex-manifest", b'{"bytes": 1000}')]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(1 << 12):
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        await asyncio.sleep(0)


def test_what_passes_is_waited_out(family):
    with obstructed(family / "family.duckdb") as (remote, before):
        before.answers["stats"] = [
            problem(503, "busy", Retry_After="0"),
            problem(429, "rate", Retry_After="0"),
            cut,
        ]
        assert remote.stats()[0]["labelled"] == 4
        assert [path for _, path, _ in before.seen].count("stats") == 4

        # a change is not sent twice where it may have been made
        before.answers["models/imdb-0"] = [cut]
        with pytest.raises(errors.ServiceError, match="ended the connection"):
            remote.label("imdb-0", "imdb")
        assert [m for m, path, _ in before.seen if path == "models/imdb-0"] == ["PATCH"]
        assert remote.label("imdb-0", "other")[0]["before"]["dataset"] == "imdb"

        # nor is a statement, whatever comes back
        for answer in (problem(503, "too-slow"), cut):
            before.answers["sql"], before.seen = [answer], []
            with pytest.raises(errors.ServiceError):
                remote.sql("SELECT 1")
            assert [path for _, path, _ in before.seen] == ["sql"]

        # the token goes along with what needs it, and with nothing else
        before.seen = []
        remote.stats(), remote.label("imdb-0", "imdb")
        sent = {(m, "authorization" in headers) for m, _, headers in before.seen}
        assert sent == {("GET", False), ("PATCH", True)}

        # a job that is forgotten is asked for anew
        computing = {"status": "computing", "retry_after_s": 0, "job": "x"}
        before.answers["clusters"] = [JSONResponse(computing, 202, {"Retry-After": "0"})]
        assert len(remote.cluster(min_size=2)) == 2


def test_what_does_not_pass_is_one_error(family):
    with obstructed(family / "family.duckdb", quick_seconds=0.05) as (remote, before):
        for answer, kind, says in (
            (problem(500, "internal", "a defect"), errors.ServiceError, "a defect"),
            (problem(404, "empty-catalog", "nothing"), errors.EmptyCatalog, "nothing"),
            (problem(422, "bad-filter", "nope"), errors.BadFilter, "nope"),
            (problem(404, "not-found"), errors.ServiceError, "later"),
            (HTMLResponse("<p>Bad gateway", 502), errors.ServiceError, "502"),
            (HTMLResponse("<p>Hello"), errors.ServiceError, "no service of deltadex"),
            (JSONResponse([1]), errors.ServiceError, "no service of deltadex"),
            (
                RedirectResponse("https://example.org/"),
                errors.ServiceError,
                "moved to https://example",
            ),
        ):
            before.answers["stats"] = [answer]
            with pytest.raises(kind, match=says):
                remote.stats()
        before.answers["stats"] = [problem(503, "store", "damaged", Retry_After="0")] * 9
        with pytest.raises(dx.errors.StoreError, match="damaged"):
            remote.stats()
        with dx.connect(remote.url, timeout=0.3) as hasty:
            before.answers["stats"] = [problem(503, "busy", Retry_After="60")]
            started = time.monotonic()
            with pytest.raises(errors.ServiceError, match="later"):
                hasty.stats()
            with pytest.raises(errors.ServiceError, match="goes on with it as job"):
                hasty.lineage()
            assert time.monotonic() - started < 20
        with (
            dx.connect(remote.url, token="wrong-wrong-wrong-wrong") as wrong,
            pytest.raises(errors.ServiceError, match="token is missing or wrong"),
        ):
            wrong.backup(family / "stolen.duckdb")
        assert not (family / "stolen.duckdb").exists()
        # a copy that is cut, or changed on the way, leaves no file
        before.answers["snapshot"] = [JSONResponse({}), cut, cut, cut, cut, cut]
        for _ in range(2):
            with pytest.raises(dx.errors.DeltadexError):
                remote.backup(family / "copy.duckdb")
        before.answers["snapshot"] = [longer]
        with pytest.raises(errors.ServiceError, match="more came"):
            remote.backup(family / "copy.duckdb")
        assert not list(family.glob("*copy*"))


def test_names_are_sent_as_they_are(family):
    with listening(family / "family.duckdb") as url, dx.connect(f"{url}#/map?k=1") as remote:
        for name in ("a b", "a/../b", "..", ".", "a?b#c%2F", "ü/–", "a//b", "x" * 900, "'; DROP"):
            with pytest.raises(errors.UnknownModel) as unknown:
                remote.show(name)
            assert name[:40] in str(unknown.value)
        for wrong in ("x" * 2000, "", "\x00"):
            with pytest.raises(errors.RequestError):
                remote.show(wrong)
        with pytest.raises(errors.RequestError, match="100"):
            remote.find_similar("imdb-0", k=10**9)
        with pytest.raises(errors.RequestError, match="vector"):
            remote.find_similar([float("nan")] * 2048)
        with pytest.raises(errors.NotServed, match="takes no across"):  # before its files are read
            remote.find_similar(family, across=True)
        with pytest.raises(errors.NotServed, match="read-only"):
            remote.remove("imdb-0")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: remote.find_similar("imdb-0", k=1), range(40)))
        assert {table[0]["model"] for table in found} == {"imdb-1"}


def test_what_is_no_service_of_this_kind_is_said(family):
    async def other(scope, receive, send):
        document = {"info": {"title": "Petstore", "version": "1"}, "paths": {}}
        await JSONResponse(document)(scope, receive, send)

    async def later(scope, receive, send):
        """A service of a version that answers less, and other options."""
        similar = {
            "get": {"x-question": "FindSimilar", "parameters": [{"name": "model", "in": "query"}]}
        }
        document = {
            "info": {"title": "deltadex", "version": "9.9"},
            "paths": {"/api/v1/similar": similar, "/api/v1/new": {"get": {"x-question": "New"}}},
        }
        await JSONResponse(document)(scope, receive, send)

    for address in ("localhost:8321", "ftp://localhost", "", "http://"):
        with pytest.raises(errors.RequestError, match="begins with http"):
            dx.connect(address)
    with socket.create_server(("127.0.0.1", 0)) as listening_socket:
        port = listening_socket.getsockname()[1]
        with running(other, listening_socket), pytest.raises(errors.ServiceError, match="Petstore"):
            dx.connect(f"http://127.0.0.1:{port}")
    with pytest.raises(errors.ServiceError, match="can be reached"):
        dx.connect(f"http://user:secret@127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as listening_socket:
        url = f"http://127.0.0.1:{listening_socket.getsockname()[1]}"
        with running(later, listening_socket), dx.connect(url) as remote:
            assert remote.version == "9.9"
            with pytest.raises(errors.NotServed, match=r"db\.find_similar: .* takes no k"):
                remote.find_similar("imdb-0", k=3)
            with pytest.raises(errors.NotServed, match=r"db\.facets"):
                remote.facets()


def test_a_copy_says_what_it_is(family):
    with listening(family / "family.duckdb", share_catalog=True) as url, dx.connect(url) as remote:
        written = remote.backup("copy.duckdb")[0]
    sha256 = hashlib.sha256((family / "copy.duckdb").read_bytes()).hexdigest()

    assert (written["models"], written["sha256"]) == (4, sha256)
    assert dx.doctor("copy.duckdb", check=True).problems == 0
