"""Who belongs to a base's family, and what is said of each: names, labels, small files.

Folders, lists and labels that cannot be read are a `SourceError`.
"""

from ..base_names import base_key as base_key
from .labels import LabelMatches as LabelMatches
from .labels import Labels as Labels
from .labels import read_labels as read_labels
from .member import Member as Member
from .member import Wanted as Wanted
from .member import refuse_strangers as refuse_strangers
from .sources import find_member as find_member
from .sources import folder_members as folder_members
from .sources import hub_members as hub_members
from .sources import listed_members as listed_members
