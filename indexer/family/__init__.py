"""Who belongs to a base's family, and what is said of each: names, labels, small files."""

from .labels import NO_LABELS, LabelMatches, Labels, read_labels
from .member import Member, Wanted, base_key, refuse_strangers, same_base
from .sources import find_member, folder_members, hub_members, listed_members

__all__ = [
    "NO_LABELS",
    "LabelMatches",
    "Labels",
    "Member",
    "Wanted",
    "base_key",
    "find_member",
    "folder_members",
    "hub_members",
    "listed_members",
    "read_labels",
    "refuse_strangers",
    "same_base",
]
