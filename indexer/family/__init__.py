"""Who belongs to a base's family, and what is said of each: names, labels, small files."""

from .labels import NO_LABELS, LabelMatches, Labels, read_labels
from .member import Member, Wanted, base_key, refuse_strangers, same_base
from .sources import folder_members, hub_members, listed_members, one_member

__all__ = [
    "NO_LABELS",
    "LabelMatches",
    "Labels",
    "Member",
    "Wanted",
    "base_key",
    "folder_members",
    "hub_members",
    "listed_members",
    "one_member",
    "read_labels",
    "refuse_strangers",
    "same_base",
]
