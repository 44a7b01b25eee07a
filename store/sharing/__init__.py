"""One catalog file, many processes: whoever holds the file lets the others in."""

from .access import Access
from .guest import Guest, join
from .host import Ledger, Own
from .note import note_path, read_note
from .wire import Gone

__all__ = ["Access", "Gone", "Guest", "Ledger", "Own", "join", "note_path", "read_note"]
