"""Who belongs to a base's family, and what is said of each: names, labels, small files.

Folders, lists and labels that cannot be read are a `SourceError`.
"""

from ..untrusted_text import base_key as base_key
from .labels import LabelMatches as LabelMatches
from .labels import Labels as Labels
from .labels import read_labels as read_labels
from .member import EVERY_MEMBER as EVERY_MEMBER
from .member import Format as Format
from .member import Kind as Kind
from .member import Member as Member
from .member import Selection as Selection
from .member import Wanted as Wanted
from .member import file_names as file_names
from .member import format_of as format_of
from .member import kind_of as kind_of
from .member import refuse_strangers as refuse_strangers
from .paths import folder_at as folder_at
from .sources import find_member as find_member
from .sources import folder_members as folder_members
from .sources import listed_members as listed_members
from .sources import member_of as member_of
from .sources import needs_card as needs_card
from .sources import with_card_label as with_card_label
