"""Services that answer too much, too slowly or something else: one error, in bounded time."""

import asyncio
import json
import random
import resource
import socket
import threading
import time
import zlib
from contextlib import suppress

import pytest
from listening import TOKEN, listening

import deltadex as dx
from deltadex.errors import DeltadexError, ServiceError
from deltadex.service.assistant.tools import Tools

ASKED = (
    lambda db: db.models(limit=2),
    lambda db: db.show("imdb-0"),
    lambda db: db.find_similar("imdb-0", k=2, explain=True),
    lambda db: db.find_similar(["imdb-0", "nobody"], k=1),
    lambda db: db.find_similar("adapter", k=2),
    lambda db: db.explain("imdb-0", "imdb-1"),
    lambda db: db.evaluate(),
    lambda db: db.cluster(min_size=2),
    lambda db: db.diff("imdb-0", "sst2-0"),
    lambda db: db.trace("imdb-0"),
    lambda db: db.lineage(),
    lambda db: db.audit("imdb-0", read=0),
    lambda db: db.failures(),
    lambda db: db.facets(most=1),
    lambda db: db.stats(),
    lambda db: db.bases,
    lambda db: db.label("imdb-0", "imdb"),
    lambda db: db.data(),
    lambda db: db.map("map.html"),
    lambda db: db.sql("SELECT id FROM models"),
)
DEEP = '{"models": ' + "[" * 100_000 + "]" * 100_000 + "}"
OTHER = (None, True, -1, 10**400, 1e999, "", "\x1b[31m\ud800", [], {}, [[]], [None], {"": []})


class Changing:
    """Answers what the app answers, changed by `change`, if that is given."""

    def __init__(self, app):
        self.app, self.change = app, None

    async def __call__(self, scope, receive, send):
        start, body = {}, bytearray()

        async def keep(message):
            start.update(message) if "status" in message else body.extend(message["body"])

        headers = [(n, v) for n, v in scope["headers"] if n != b"accept-encoding"]
        await self.app({**scope, "headers": headers}, receive, keep)
        sent = bytes(body) if self.change is None else self.change(bytes(body))
        kept = [(n, v) for n, v in start["headers"] if n != b"content-length"]
        await send({**start, "headers": kept})
        await send({"type": "http.response.body", "body": sent})


def changed_somewhere(draw):
    """What changes one part of a document, or the whole body."""

    def change(body):
        document = json.loads(body)
        if draw.random() < 0.1:
            return draw.choice((b"", b"{}", b"[]", b"null", body[: len(body) // 2], DEEP.encode()))
        node = document
        while True:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = draw.choice(keys)
            inner = node[key]
            if not (isinstance(inner, dict | list) and inner) or draw.random() < 0.3:
                break
            node = inner
        if isinstance(node, dict) and draw.random() < 0.4:
            del node[key]
        else:
            node[key] = draw.choice(OTHER)
        return json.dumps(document).encode()

    return change


def used(table):
    """Reads a result as a user does."""
    if isinstance(table, list):
        return
    repr(table)
    table.to_json()
    for row in table:
        [row[name] for name in table.columns[:1]]
    getattr(table, "failed", None)


@pytest.mark.parametrize("times", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_a_changed_answer_is_a_service_error_and_nothing_else(family, times):
    draw, standing, refused = random.Random(times), [], 0

    def wrap(app):
        standing.append(Changing(app))
        return standing[0]

    with (
        listening(family / "family.duckdb", app=wrap, token=TOKEN) as url,
        dx.connect(url, token=TOKEN) as db,
    ):
        for ask in ASKED:
            standing[0].change = None
            used(ask(db))
            for _ in range(times):
                standing[0].change = changed_somewhere(draw)
                try:
                    used(ask(db))
                except DeltadexError:
                    refused += 1
        for _ in range(times):
            standing[0].change = changed_somewhere(draw)
            try:
                used(dx.connect(url, token=TOKEN).stats())
            except DeltadexError:
                refused += 1
        standing[0].change = lambda body: b"{}"
        for ask in ASKED:
            with pytest.raises(ServiceError):
                ask(db)
        with pytest.raises(ServiceError, match="not an answer of deltadex"):
            Tools(lambda: db.reader(), are_local=False).answer("show", {"model": "imdb-0"})

    assert refused > 5 * times


def endless(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b"[" * (1 << 16))


def packed(connection):
    """A gigabyte of spaces as a few megabytes."""
    packing = zlib.compressobj(1, wbits=31)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
    for _ in range(64):
        connection.sendall(packing.compress(b" " * (1 << 24)))


def dribbled(head):
    def dribble(connection):
        connection.sendall(head)
        while True:
            connection.sendall(b"x")
            time.sleep(0.5)

    return dribble


BY_BYTE_IN_A_HEADER = dribbled(b"HTTP/1.1 200 OK\r\nX: ")
BY_BYTE_IN_THE_BODY = dribbled(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (endless, "more than 64 MiB"),
        (packed, "more than 64 MiB"),
        (BY_BYTE_IN_A_HEADER, "in time"),
        (BY_BYTE_IN_THE_BODY, "in time"),
    ],
    ids=["endless", "packed", "header", "body"],
)
def test_size_and_total_time_of_an_answer_are_bounded(answer, says):
    def serve(listening_socket):
        with suppress(OSError):  # the test has ended
            while True:
                connection, _ = listening_socket.accept()
                with connection:
                    connection.recv(1 << 16)
                    with suppress(OSError):  # the client has left
                        answer(connection)

    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as standing:
        threading.Thread(target=serve, args=(standing,), daemon=True).start()
        with pytest.raises(ServiceError, match=says):
            dx.connect(f"http://127.0.0.1:{standing.getsockname()[1]}", timeout=4.0)

    assert time.monotonic() - started < 30.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_a_copy_of_another_length_than_its_manifest_says_is_not_written_on(family):
    async def longer(scope, receive, send):
        manifest = json.dumps({"bytes": 1000}).encode()
        headers = [(b"deltadex-manifest", manifest)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(1 << 12):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await asyncio.sleep(0)

    def wrap(app):
        async def stand(scope, receive, send):
            is_copy = scope["path"].endswith("snapshot")
            await (longer if is_copy else app)(scope, receive, send)

        return stand

    with (
        listening(family / "family.duckdb", app=wrap, token=TOKEN) as url,
        dx.connect(url, token=TOKEN) as db,
        pytest.raises(ServiceError, match="more came"),
    ):
        db.backup(family / "copy.duckdb")
    assert not list(family.glob("*copy*"))


def test_a_statement_is_sent_once_whatever_comes_back(family):
    seen = []

    def wrap(app):
        async def stand(scope, receive, send):
            if not scope["path"].endswith("/sql"):
                await app(scope, receive, send)
                return
            seen.append(scope["method"])
            problem = {"code": "too-slow", "detail": "not answered within 30 s", "status": 503}
            start = {"type": "http.response.start", "status": 503, "headers": []}
            if len(seen) % 2:
                await send(start)
                await send({"type": "http.response.body", "body": json.dumps(problem).encode()})
                return
            raise RuntimeError("killed")

        return stand

    with (
        listening(family / "family.duckdb", app=wrap, token=TOKEN) as url,
        dx.connect(url, token=TOKEN) as db,
    ):
        for n in (1, 2):
            with pytest.raises(ServiceError):
                db.sql("SELECT 1")
            assert len(seen) == n
