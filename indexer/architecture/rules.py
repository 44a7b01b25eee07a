"""The table of `roles.json`: which layer paths there are, and what each suffix means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
"""A whole component of a name that is a number; written `N` in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the tensors with one suffix inside a numbered layer are.

    Attributes:
        suffix: Matches all that follows the layer number, numbers written `N`.
        within: The only layer path it holds for; "" = any.
        role: A role of `records.ROLES`; of a fused matrix, its role when left whole.
        part: "" or the piece of the slot; "expert" is completed by the expert's number.
        split: A layout of `layouts.py`, or one for each model type; "" = not fused.
        stack: The stack that this suffix alone gives away; "" = the path decides.
        conv1d: Stored in × out where the model uses GPT-2's Conv1D.
        stacked: All experts in one tensor, whose name has no `.weight`.
    """

    suffix: re.Pattern[str]
    within: str = ""
    role: str = ""
    part: str = ""
    split: str | Mapping[str, str] = ""
    stack: str = ""
    conv1d: bool = False
    stacked: bool = False

    def holds(self, path: str, suffix: str) -> bool:
        """Whether it speaks of this suffix below this layer path."""
        return self.within in ("", path) and self.suffix.fullmatch(suffix) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`roles.json` with its patterns compiled.

    Attributes:
        layers: Stack of each layer path, in the file's order.
        layer_pattern: Finds a layer path and its number.
        stack_of_owner: For paths that several architectures share, by the model type or by
            the word before the path.
        stack_of_embedding: The same, told by an embedding beside the layers.
        rules: First match wins.
        ignored: Suffixes that are no slot, such as routers.
        ignored_word: A component of a name that makes it no slot.
        attention_word: Found in the names of layers that attend, whatever their tradition.
    """

    layers: Mapping[str, str]
    layer_pattern: re.Pattern[str]
    stack_of_owner: Mapping[str, str]
    stack_of_embedding: Mapping[str, str]
    rules: tuple[Rule, ...]
    ignored: tuple[Rule, ...]
    ignored_word: re.Pattern[str]
    attention_word: re.Pattern[str]


@cache
def table() -> Table:
    """The one table, read on first use."""
    text = resources.files(__package__).joinpath("roles.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    layers = {entry["path"]: entry["stack"] for entry in raw["layers"]}
    paths = "|".join(re.escape(path).replace("N", "[0-9]{1,6}") for path in layers)
    return Table(
        layers=layers,
        layer_pattern=re.compile(rf"(?<![^.])(?P<path>{paths})\.(?P<layer>[0-9]{{1,6}})\."),
        stack_of_owner=raw["stack_of_owner"],
        stack_of_embedding=raw["stack_of_embedding"],
        rules=tuple(map(_rule, raw["rules"])),
        ignored=tuple(map(_rule, raw["ignored_suffixes"])),
        ignored_word=re.compile("|".join(raw["ignored_words"]), re.IGNORECASE),
        attention_word=re.compile(raw["attention_words"], re.IGNORECASE),
    )


@lru_cache(maxsize=4096)
def find_rule(path: str, suffix: str) -> Rule | None:
    """The first rule for a suffix below a layer path; numbers written `N` in both."""
    return next((rule for rule in table().rules if rule.holds(path, suffix)), None)


@lru_cache(maxsize=4096)
def is_ignored(path: str, suffix: str) -> bool:
    """Whether a suffix below a layer path is known to be no slot; numbers written `N`."""
    if any(rule.holds(path, suffix) for rule in table().ignored):
        return True
    return any(table().ignored_word.fullmatch(word) for word in suffix.split("."))


def without_numbers(name: str) -> str:
    """`experts.7.w1` → `experts.N.w1`."""
    return NUMBER.sub("N", name)


def _rule(entry: dict[str, Any]) -> Rule:
    fields = {key: value for key, value in entry.items() if key not in ("suffix", "in")}
    pattern = re.compile(entry["suffix"].replace(".", r"\."))
    return Rule(suffix=pattern, within=entry.get("in", ""), **fields)
