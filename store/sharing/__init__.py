"""One catalog file, many processes: the process that holds the file serves the others."""

from .access import Access
from .guest import RemoteSession, join
from .host import Ledger, LocalSession
from .note import note_path, read_note
from .wire import Gone

__all__ = [
    "Access",
    "Gone",
    "Ledger",
    "LocalSession",
    "RemoteSession",
    "join",
    "note_path",
    "read_note",
]
