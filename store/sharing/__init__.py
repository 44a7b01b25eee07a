"""One catalog file, many processes: the process that holds the file serves the others."""

from .access import Access
from .guest import Guest, join
from .host import Ledger, Own
from .note import note_path, read_note
from .wire import Gone

__all__ = ["Access", "Gone", "Guest", "Ledger", "Own", "join", "note_path", "read_note"]
