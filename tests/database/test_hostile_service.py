"""Services that answer too much, too slowly or something else: one error, in bounded time."""

import json
import random
import resource
import socket
import threading
import time
import zlib
from contextlib import suppress

import pytest
from listening import TOKEN
from test_connect import ANSWERED
from test_connection import obstructed

import deltadex as dx
from deltadex.errors import DeltadexError, ServiceError
from deltadex.service.assistant import Tools

ASKED = (
    *ANSWERED,
    lambda db: db.stats(),
    lambda db: db.bases,
    lambda db: db.label("imdb-0", "imdb"),
    lambda db: db.data(),
    lambda db: db.map("map.html"),
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


@pytest.mark.parametrize("times", [1, pytest.param(15, marks=pytest.mark.slow)])
def test_a_changed_answer_is_a_service_error_and_nothing_else(family, times):
    draw, refused = random.Random(times), 0

    with obstructed(family / "family.duckdb", Changing) as (db, before):
        for ask in ASKED:
            before.change = None
            used(ask(db))
            for _ in range(times):
                before.change = changed_somewhere(draw)
                try:
                    used(ask(db))
                except DeltadexError:
                    refused += 1
        for _ in range(times):
            before.change = changed_somewhere(draw)
            try:
                used(dx.connect(db.url, token=TOKEN).stats())
            except DeltadexError:
                refused += 1
        before.change = lambda body: b"{}"
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


def silent(connection):
    while connection.recv(100):
        pass


BY_BYTE_IN_A_HEADER = dribbled(b"HTTP/1.1 200 OK\r\nX: ")
BY_BYTE_IN_THE_BODY = dribbled(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (endless, "more than 64 MiB"),
        (packed, "more than 64 MiB"),
        (silent, "in time"),
        (BY_BYTE_IN_A_HEADER, "in time"),
        (BY_BYTE_IN_THE_BODY, "in time"),
    ],
    ids=["endless", "packed", "silent", "header", "body"],
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

    timeout = 1.0 if says == "in time" else 10.0
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as standing:
        threading.Thread(target=serve, args=(standing,), daemon=True).start()
        with pytest.raises(ServiceError, match=says):
            dx.connect(f"http://127.0.0.1:{standing.getsockname()[1]}", timeout=timeout)

    assert time.monotonic() - started < 30.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
