"""One catalog file, many processes: whoever holds the file lets the others in."""

from .access import Access as Access
from .beside import CommitLog as CommitLog
from .beside import Gone as Gone
from .beside import HolderFile as HolderFile
from .beside import Losses as Losses
from .beside import holder_path as holder_path
from .beside import read_holder as read_holder
from .local import UNSETTLED as UNSETTLED
from .local import Ledger as Ledger
from .local import LocalSession as LocalSession
from .local import RawSession as RawSession
from .local import Unwritten as Unwritten
