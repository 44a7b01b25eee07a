"""The process that holds the file and its guests: messages of text fields and an Arrow table.

`multiprocessing.connection` frames them, and both sides prove with it that they know the key of
the holder file before anything else is said: another user of the machine who finds the port can
neither ask nor answer. Each side proves itself by a key of its own, derived from that key: else a
stranger could pass one guest's proof to another as the holder's. Nothing that arrives is
unpickled.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..errors import StoreFull
from .sharing import Gone, HolderFile, LocalSession, read_holder, remove_holder, write_holder

LONGEST_PROOF_S = 5
"""How long a side may take for each message of its proof."""

NOTHING = pa.table({})
_PEER_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    AssertionError,
    MemoryError,
    AuthenticationError,
)
"""What the standard library raises on a stranger's messages, or on silence."""


class Link:
    """One side of a connection. Every method raises `Gone`."""

    def __init__(self, link: socket.socket) -> None:
        self._socket = link
        self._connection = Connection(link.dup().detach())

    def prove_as_guest(self, key: bytes) -> None:
        """Prove the key to the holder, and check that the holder has it."""
        with self._in_time(), _errors_as_gone():
            answer_challenge(self._connection, _side(key, b"guest"))
            deliver_challenge(self._connection, _side(key, b"host"))

    def prove_as_host(self, key: bytes) -> None:
        """Prove the key to a guest, and check that the guest has it."""
        with self._in_time(), _errors_as_gone():
            deliver_challenge(self._connection, _side(key, b"guest"))
            answer_challenge(self._connection, _side(key, b"host"))

    def send(self, fields: Mapping[str, str], table: pa.Table = NOTHING) -> None:
        """One message."""
        sink, message = pa.BufferOutputStream(), table.replace_schema_metadata(dict(fields))
        with pa.ipc.new_stream(sink, message.schema) as writer:
            writer.write_table(message)
        with _errors_as_gone():
            self._connection.send_bytes(memoryview(sink.getvalue()))

    def receive(self) -> tuple[dict[str, str], pa.Table]:
        """The next message."""
        with _errors_as_gone():
            body = self._connection.recv_bytes()
        with (
            _errors_as_gone((*_PEER_ERRORS, pa.ArrowException)),
            pa.ipc.open_stream(pa.py_buffer(body)) as reader,
        ):
            table = reader.read_all()
            fields = table.schema.metadata or {}
            return {key.decode(): value.decode() for key, value in fields.items()}, table

    def end_reading(self) -> None:
        """Receive no more messages; those received are still answered."""
        self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._connection.close()
        self._socket.close()

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Let no read or write of the block take longer than `LONGEST_PROOF_S`."""

        def limit(seconds: int) -> None:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))

        limit(LONGEST_PROOF_S)
        yield
        limit(0)


@contextmanager
def _errors_as_gone(errors: tuple[type[Exception], ...] = _PEER_ERRORS) -> Iterator[None]:
    try:
        yield
    except errors as err:
        raise Gone(str(err) or "the other side is not who it should be") from err


def _side(key: bytes, side: bytes) -> bytes:
    return hmac.digest(key, side, "sha256")


def join(path: Path) -> RemoteSession | None:
    """A session at the process that holds the catalog; None if it accepts no guests."""
    with suppress(OSError):
        if note := read_holder(path):
            return RemoteSession(note)
    return None


class RemoteSession:
    """A session on a file that another process holds. One thread at a time.

    Its methods are those of `LocalSession`; each raises `Gone` once that process has ended.
    """

    def __init__(self, note: HolderFile) -> None:
        """Connect to the holder; `OSError` where no process listens, or it is not the holder."""
        self.note = note
        link = socket.create_connection(("127.0.0.1", note.port), LONGEST_PROOF_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(None)
        self._link = Link(link)
        try:
            self._link.prove_as_guest(note.key)
        except BaseException:
            self._link.close()
            raise

    def session(self) -> RemoteSession:
        """Another session, for another thread."""
        try:
            return RemoteSession(self.note)
        except OSError as err:
            raise Gone(str(err)) from err

    def execute(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        columns = [_plain(column) for column in self.arrow(sql, values).columns]
        return list(zip(*columns, strict=True))

    def arrow(self, sql: str, values: list[Any] | None = None) -> pa.Table:
        row = pa.table({str(i): pa.array([value]) for i, value in enumerate(values or ())})
        return self._request({"do": "execute", "sql": sql}, row)[1]

    def register(self, name: str, table: pa.Table) -> None:
        self._request({"do": "register", "name": name}, table)

    def unregister(self, name: str) -> None:
        self._request({"do": "unregister", "name": name})

    def begin(self) -> None:
        self._request({"do": "begin"})

    def look(self) -> None:
        self._request({"do": "look"})

    def commit(self) -> None:
        self._request({"do": "commit"})

    def rollback(self) -> None:
        self._request({"do": "rollback"})

    def changes(self) -> str:
        return self._request({"do": "nothing"})[0]["changes"]

    def close(self) -> None:
        self._link.close()

    def _request(
        self, fields: dict[str, str], table: pa.Table = NOTHING
    ) -> tuple[dict[str, str], pa.Table]:
        self._link.send(fields, table)
        answer, rows = self._link.receive()
        if "error" in answer:
            kind = getattr(duckdb, answer["error"], duckdb.Error)
            raise kind(answer["message"])
        return answer, rows


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values as DuckDB itself gives them: whole numbers beyond 64 bits are numbers too."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type):
        return [int(v) if isinstance(v, Decimal) else v for v in values]
    return values


log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long an ending holder waits for the transactions of others."""

ANSWERED_WITHIN_S = 2.0
"""How long it waits for the answers in progress; readers then ask the next holder."""


class Host:
    """Serves other processes of this user, over loopback, for as long as the file is held."""

    def __init__(self, path: Path, own: LocalSession) -> None:
        """Listen, and write the note. There are no guests where the folder refuses the note
        (`StoreFull`), or the system gives no port (`OSError`)."""
        self._path, self._own, self._ledger = path, own, own.ledger
        self._guests: dict[threading.Thread, tuple[Link, LocalSession]] = {}
        self._changing = threading.Lock()
        self._ending = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self._note = HolderFile(
            pid=os.getpid(),
            machine=socket.gethostname(),
            port=self._server.getsockname()[1],
            key=secrets.token_bytes(32),
        )
        try:
            write_holder(path, self._note)
        except StoreFull:
            self._server.close()
            raise
        self._acceptor = threading.Thread(target=self._accept, name="catalog-host", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more guests, wait for their writing transactions, and disconnect them."""
        self._ending = True
        remove_holder(self._path, self._note)
        with suppress(OSError), socket.create_connection(self._server.getsockname(), 1):
            pass  # wakes the acceptor
        self._acceptor.join(PATIENCE_S)
        self._server.close()
        is_quiet = self._ledger.writing.acquire(timeout=PATIENCE_S)
        try:
            with self._changing:
                guests = dict(self._guests)
            for link, _ in guests.values():
                # requests in progress are still answered: a guest knows whether it committed
                with suppress(OSError):
                    link.end_reading()
        finally:
            if is_quiet:
                self._ledger.writing.release()
        for thread, (_, session) in guests.items():
            thread.join(ANSWERED_WITHIN_S)
            session.interrupt()
            thread.join(PATIENCE_S)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no guest is here; none comes in before the block ends."""
        with self._changing:
            yield not self._guests

    def _accept(self) -> None:
        while not self._ending:
            try:
                accepted, _ = self._server.accept()
            except OSError:
                return
            if self._ending:
                accepted.close()
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(accepted)
            session = self._own.session()
            thread = threading.Thread(
                target=self._serve, args=(link, session), name="catalog-guest", daemon=True
            )
            with self._changing:
                self._guests[thread] = (link, session)
            thread.start()

    def _serve(self, link: Link, session: LocalSession) -> None:
        """Answer one guest until it leaves; what it had not committed is undone."""
        try:
            with closing(link):
                link.prove_as_host(self._note.key)
                while True:
                    fields, table = link.receive()
                    answer = _answered(session, fields, table)
                    if self._ending and answer[0].get("error") == "InterruptException":
                        return
                    link.send(*answer)
        except (Gone, OSError, pa.ArrowException) as err:
            log.debug("a guest left: %s", err)
        finally:
            with suppress(duckdb.Error):
                session.close()
            with self._changing:
                self._guests.pop(threading.current_thread(), None)


def _answered(
    session: LocalSession, fields: dict[str, str], table: pa.Table
) -> tuple[dict[str, str], pa.Table]:
    """Do what one message asks for; the rows, where it gives any. What DuckDB refuses goes back as
    its error."""
    answer, rows = {"changes": session.changes()}, NOTHING
    try:
        match fields.get("do"):
            case "execute":
                values = [column[0].as_py() for column in table.columns]
                rows = session.arrow(fields["sql"], values or None)
            case "register":
                session.register(fields["name"], table)
            case "unregister":
                session.unregister(fields["name"])
            case "begin" | "look" | "commit" | "rollback" as action:
                getattr(session, action)()
    except duckdb.Error as err:
        answer = {"error": type(err).__name__, "message": str(err)}
    return answer, rows
