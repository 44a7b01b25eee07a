"""A guest of the process that holds the file: its sessions."""

from __future__ import annotations

import socket
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from .note import Gone, HolderNote, read_note
from .wire import LONGEST_PROOF_S, Link


def join(path: Path) -> RemoteSession | None:
    """A session at the process that holds the catalog; None if it accepts no guests."""
    note = read_note(path)
    if note is None:
        return None
    try:
        return RemoteSession(note)
    except OSError:
        return None


class RemoteSession:
    """A session on a file that another process holds. One thread at a time.

    Its methods are those of `LocalSession`; each raises `Gone` once that process has ended.
    """

    def __init__(self, note: HolderNote) -> None:
        """Connect to the holder.

        Raises:
            OSError: no process listens, or it is not the holder.
        """
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
        self, fields: dict[str, str], table: pa.Table | None = None
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
