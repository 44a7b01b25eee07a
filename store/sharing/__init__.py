"""One catalog file, many processes: whoever holds the file lets the others in."""

from .connection import Access, Connection
from .guest import Guest
from .host import Ledger, Own
from .note import note_path

__all__ = ["Access", "Connection", "Guest", "Ledger", "Own", "note_path"]
