"""Messages between processes that share a catalog: text fields and an Arrow table.

`multiprocessing.connection` frames them, and both sides prove with it that they know the key of the
note beside the catalog before anything else is said: another user of the machine who finds the
port can neither ask nor answer. Each side proves itself by a key of its own, derived from the
note's: else a stranger could pass one guest's proof to another as the holder's. Nothing that
arrives is unpickled.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import pyarrow as pa

from .note import Gone

LONGEST_PROOF_S = 5
"""How long a side may take for each message of its proof."""

_NO_COLUMNS = pa.table({})
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

    def send(self, fields: Mapping[str, str], table: pa.Table | None = None) -> None:
        """One message."""
        rows = _NO_COLUMNS if table is None else table
        sink = pa.BufferOutputStream()
        message = rows.replace_schema_metadata(dict(fields))
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
        self._limit(LONGEST_PROOF_S)
        yield
        self._limit(0)

    def _limit(self, seconds: int) -> None:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


@contextmanager
def _errors_as_gone(errors: tuple[type[Exception], ...] = _PEER_ERRORS) -> Iterator[None]:
    try:
        yield
    except errors as err:
        raise Gone(str(err) or "the other side is not who it should be") from err


def _side(key: bytes, side: bytes) -> bytes:
    """The key by which one side proves itself."""
    return hmac.digest(key, side, "sha256")
