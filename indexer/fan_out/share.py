"""The share of a family that one of several machines reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import RequestError
from ..family import Member

_SPELLING = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Share:
    """One of `of` disjoint shares, numbered from 1. A model's share depends on its id alone."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """The share that `3/16` means.

        Raises:
            RequestError: it means none.
        """
        match = _SPELLING.fullmatch(text.strip())
        share = cls(int(match[1]), int(match[2])) if match else None
        if share is None or not 1 <= share.number <= share.of:
            raise RequestError(f"share {text!r}: expected N/OF with N from 1 to OF, such as 3/16")
        return share

    def has(self, id: str) -> bool:
        """Whether the model of that id is in this share."""
        digest = hashlib.sha256(id.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


def share_of(members: Sequence[Member], text: str | None) -> list[Member]:
    """The members of the share that `text` means; all without.

    Raises:
        RequestError: as `Share.parse`.
    """
    if text is None:
        return list(members)
    share = Share.parse(text)
    return [member for member in members if share.has(member.record.id)]
