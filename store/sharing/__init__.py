"""One catalog file, many processes: whoever holds the file lets the others in."""

from .access import Access as Access
from .commit_log import CommitLog as CommitLog
from .commit_log import Losses as Losses
from .local import UNSETTLED as UNSETTLED
from .local import Ledger as Ledger
from .local import LocalSession as LocalSession
from .local import RawSession as RawSession
from .local import Unwritten as Unwritten
from .note import Gone as Gone
from .note import HolderNote as HolderNote
from .note import note_path as note_path
from .note import read_note as read_note
