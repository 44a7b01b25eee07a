"""One catalog file, many processes: whoever holds the file lets the others in."""

from .connection import Access, Connection
from .guest import Guest, join
from .host import Ledger, Own
from .note import note_path, read_note

__all__ = ["Access", "Connection", "Guest", "Ledger", "Own", "join", "note_path", "read_note"]
