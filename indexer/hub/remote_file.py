"""Where one file of one commit is, as the Hub answers a HEAD."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_COUNT = re.compile(r"[0-9]{1,15}")


def is_count(text: str) -> bool:
    """Whether a header's text is a number of bytes or seconds that can be true."""
    return _COUNT.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of one commit.

    Attributes:
        etag: Identifies the content.
        url: Where its bytes are handed out; signed, so never shown.
        on_hub: Whether that is the Hub itself, which may see the token.
    """

    what: str
    size: int
    etag: str
    url: str = field(repr=False)
    on_hub: bool

    @property
    def sha256(self) -> str | None:
        """Of the content, where the Hub knows it (files in large-file storage)."""
        return self.etag if _SHA256.match(self.etag) else None
