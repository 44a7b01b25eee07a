"""Texts with the words of each in random order: the same words, no grammar."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..texts import Text
from .fertility import is_spaced

SCRAMBLED = ", scrambled"
"""What the name of a group of scrambled texts ends in."""

FIRST_TRIES = 10
"""Permutations that are tried for one that changes the text."""


def scrambled(texts: Sequence[Text], seed: int) -> list[Text]:
    """Each text with its words permuted, in a group of its own with the same ids.

    Scripts without spaces between words have their characters permuted. A text of one word, or of
    equal words, stays as it is.
    """
    return [
        replace(text, text=_permuted(text.text, seed, text.id), group=scrambled_group(text.group))
        for text in texts
    ]


def scrambled_group(group: str) -> str:
    """The group's name; of texts without groups, `scrambled`."""
    return f"{group}{SCRAMBLED}" if group else SCRAMBLED.removeprefix(", ")


def _permuted(text: str, seed: int, name: str) -> str:
    """The seed of a text depends on its id, not on its place among the texts."""
    spaced = is_spaced(text)
    parts = text.split() if spaced else [char for char in text if not char.isspace()]
    digest = hashlib.sha256(f"{seed}:{name}".encode("utf-8", "replace")).digest()
    rng = np.random.default_rng(list(digest))
    for _ in range(FIRST_TRIES):
        order = [parts[place] for place in rng.permutation(len(parts))]
        if order != parts:
            break
    return (" " if spaced else "").join(order) if parts else text
