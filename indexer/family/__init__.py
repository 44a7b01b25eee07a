"""Who belongs to a base's family, and what is said of each: names, labels, small files.

Folders, lists and labels that cannot be read are a `SourceError`.
"""

from ..base_names import base_key as base_key
from .hub_card import needs_card as needs_card
from .hub_card import with_card_label as with_card_label
from .labels import LabelMatches as LabelMatches
from .labels import Labels as Labels
from .labels import read_labels as read_labels
from .member import Member as Member
from .member import Wanted as Wanted
from .member import refuse_strangers as refuse_strangers
from .paths import folder_at as folder_at
from .selection import EVERY_MEMBER as EVERY_MEMBER
from .selection import Format as Format
from .selection import Kind as Kind
from .selection import Selection as Selection
from .selection import file_names as file_names
from .selection import format_of as format_of
from .selection import kind_of as kind_of
from .sources import find_member as find_member
from .sources import folder_members as folder_members
from .sources import hub_members as hub_members
from .sources import listed_members as listed_members
