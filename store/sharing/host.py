"""The process that holds the file: its own sessions, and those of its guests."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from ...errors import StoreFull
from .local import LocalSession
from .note import Gone, HolderNote, remove_note, write_note
from .wire import Link

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long an ending holder waits for the transactions of others."""

ANSWERED_WITHIN_S = 2.0
"""How long it waits for the answers in progress; readers then ask the next holder."""

_NOTHING = pa.table({})


class Host:
    """Serves other processes of this user, over loopback, for as long as the file is held."""

    def __init__(self, path: Path, own: LocalSession) -> None:
        """Listen, and write the note.

        Raises:
            StoreFull: the folder refuses the note; then there are no guests.
            OSError: the system gives no port; likewise.
        """
        self._path, self._own, self._ledger = path, own, own.ledger
        self._guests: dict[threading.Thread, tuple[Link, LocalSession]] = {}
        self._changing = threading.Lock()
        self._ending = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self._note = HolderNote(
            pid=os.getpid(),
            machine=socket.gethostname(),
            port=self._server.getsockname()[1],
            key=secrets.token_bytes(32),
        )
        try:
            write_note(path, self._note)
        except StoreFull:
            self._server.close()
            raise
        self._acceptor = threading.Thread(target=self._accept, name="catalog-host", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more guests, wait for their writing transactions, and disconnect them."""
        self._ending = True
        remove_note(self._path, self._note)
        with contextlib.suppress(OSError), socket.create_connection(self._server.getsockname(), 1):
            pass  # wakes the acceptor
        self._acceptor.join(PATIENCE_S)
        self._server.close()
        is_quiet = self._ledger.writing.acquire(timeout=PATIENCE_S)
        try:
            with self._changing:
                guests = dict(self._guests)
            for link, _ in guests.values():
                # requests in progress are still answered: a guest knows whether it committed
                with contextlib.suppress(OSError):
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
            with contextlib.closing(link):
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
            with contextlib.suppress(duckdb.Error):
                session.close()
            with self._changing:
                self._guests.pop(threading.current_thread(), None)


def _answered(
    session: LocalSession, fields: dict[str, str], table: pa.Table
) -> tuple[dict[str, str], pa.Table]:
    """The answer to one message; what DuckDB refuses goes back as its error."""
    try:
        return {"changes": session.changes()}, _done(session, fields, table)
    except duckdb.Error as err:
        return {"error": type(err).__name__, "message": str(err)}, _NOTHING


def _done(session: LocalSession, fields: dict[str, str], table: pa.Table) -> pa.Table:
    """Do what one message asks for; the rows, where it gives any."""
    match fields.get("do"):
        case "execute":
            values = [column[0].as_py() for column in table.columns]
            return session.arrow(fields["sql"], values or None)
        case "register":
            session.register(fields["name"], table)
        case "unregister":
            session.unregister(fields["name"])
        case "begin" | "look" | "commit" | "rollback" as action:
            getattr(session, action)()
    return _NOTHING
