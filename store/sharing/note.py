"""The holder file beside a catalog: which process holds it, and how to reach that process."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..files import atomic_file, beside

_LONGEST = 4096
"""Bytes of a note; a longer file is not a note."""


class Gone(ConnectionError):
    """The other side has ended, or is not who it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderNote:
    """The process that holds a catalog.

    Attributes:
        machine: Its host name: a port of another machine's loopback is no use here.
        key: What both sides prove to know; the note is readable by its owner alone.
    """

    pid: int
    machine: str
    port: int
    key: bytes


def note_path(catalog: Path) -> Path:
    """Where the note of a catalog is."""
    return beside(catalog, ".holder")


def write_note(catalog: Path, note: HolderNote) -> None:
    """Write the note, readable by its owner only.

    Raises:
        StoreFull: the folder refuses writes.
    """
    body = {"pid": note.pid, "machine": note.machine, "port": note.port, "key": note.key.hex()}
    with atomic_file(note_path(catalog), lasts=False) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(body, file)


def read_note(catalog: Path) -> HolderNote | None:
    """The note; None where none can be read, or where it is of another machine."""
    try:
        # without waiting, where a pipe is in the note's place
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(note_path(catalog), "rb", opener=lambda p, f: os.open(p, f | flag)) as file:
            body = json.loads(file.read(_LONGEST))
        note = HolderNote(
            pid=int(body["pid"]),
            machine=str(body["machine"]),
            port=int(body["port"]),
            key=bytes.fromhex(body["key"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.machine == socket.gethostname() and 0 < note.port < 2**16 else None


def remove_note(catalog: Path, note: HolderNote) -> None:
    """Remove the note, unless another holder has written its own. A note that stays names a process
    that has ended, and hinders nobody."""
    if read_note(catalog) == note:
        with suppress(OSError):
            note_path(catalog).unlink(missing_ok=True)
