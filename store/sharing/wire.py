"""Messages between processes that share a catalog: a few words and an Arrow table, framed.

Both sides prove that they know the key of the note beside the catalog (challenge and response,
HMAC-SHA-256) before anything else is said: another user of the machine who finds the port can
neither ask nor answer. Nothing that arrives is ever unpickled.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from collections.abc import Mapping

import pyarrow as pa

PROOF_BYTES = 32
LONGEST_PROOF_S = 5.0
"""How long a side may take to prove itself."""

_AT_ONCE = 1 << 20
_LENGTH = struct.Struct("!Q")
_NO_COLUMNS = pa.table({})


class Gone(ConnectionError):
    """The other side has ended, or is not who it should be."""


def prove_as_guest(link: socket.socket, key: bytes) -> None:
    """Show the holder the key, and see that it has it.

    Raises:
        Gone: it has not.
    """
    own = secrets.token_bytes(PROOF_BYTES)
    link.sendall(own)
    theirs = _exactly(link, PROOF_BYTES)
    if not hmac.compare_digest(_exactly(link, PROOF_BYTES), _proof(key, b"host", own)):
        raise Gone("the process at this port is not the catalog's holder")
    link.sendall(_proof(key, b"guest", theirs))


def prove_as_host(link: socket.socket, key: bytes) -> None:
    """Show a guest the key, and see that it has it.

    Raises:
        Gone: it has not.
    """
    theirs = _exactly(link, PROOF_BYTES)
    own = secrets.token_bytes(PROOF_BYTES)
    link.sendall(own + _proof(key, b"host", theirs))
    if not hmac.compare_digest(_exactly(link, PROOF_BYTES), _proof(key, b"guest", own)):
        raise Gone("a process without the catalog's key")


def send(link: socket.socket, words: Mapping[str, str], table: pa.Table | None = None) -> None:
    """One message.

    Raises:
        Gone: the other side has ended.
    """
    told = (table if table is not None else _NO_COLUMNS).replace_schema_metadata(dict(words))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, told.schema) as writer:
        writer.write_table(told)
    body = sink.getvalue()
    try:
        link.sendall(_LENGTH.pack(body.size))
        link.sendall(memoryview(body))
    except OSError as err:
        raise Gone(str(err)) from err


def receive(link: socket.socket) -> tuple[dict[str, str], pa.Table]:
    """The next message.

    Raises:
        Gone: the other side has ended, or sent something that is no message.
    """
    (size,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    body = _exactly(link, size)
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        told = table.schema.metadata or {}
        return {key.decode(): value.decode() for key, value in told.items()}, table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as err:
        raise Gone("the other side sent something that is no message") from err


def _proof(key: bytes, side: bytes, challenge: bytes | bytearray) -> bytes:
    return hmac.digest(key, side + bytes(challenge), "sha256")


def _exactly(link: socket.socket, size: int) -> bytearray:
    """So many bytes; memory grows with what arrives, not with what is announced."""
    data = bytearray()
    try:
        while len(data) < size:
            part = link.recv(min(size - len(data), _AT_ONCE))
            if not part:
                raise Gone("the other side has ended")
            data += part
    except OSError as err:
        raise Gone(str(err)) from err
    return data
