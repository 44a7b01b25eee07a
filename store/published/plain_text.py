"""Texts of an index by an unknown publisher: which of them are kept, and which may be published."""

from __future__ import annotations

import re

LONGEST_TEXT = 512
"""Characters of an id, a label, a licence or a base's name."""

_OWN_PATH = re.compile(r"^(?:[/~\\]|\.\.(?:[/\\]|$)|[A-Za-z]:[/\\]|file:)")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}")


def is_plain(text: object) -> bool:
    """Whether a text has a length that is kept, and only characters that a terminal shows."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TEXT and text.isprintable()


def may_be_public(text: object) -> bool:
    """Whether a plain text names no place of a machine, and holds no token."""
    return is_plain(text) and not _OWN_PATH.match(str(text)) and not _TOKEN.search(str(text))
