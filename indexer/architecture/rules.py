"""Tensor names against `roles.json`: layer path, layer number, and the rule that fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
"""A whole component of a name that is a number; written `N` in the table."""

LONGEST = 1000
"""Characters in a name beyond which it is no layer's; searching longer ones would cost."""

MAX_PATHS = 8
"""Layer paths that are looked for in one name; those of real models have at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the tensors with one suffix inside a numbered layer are.

    Attributes:
        suffix: Matches all that follows the layer number, numbers written `N`.
        within: The only layer path it holds for; "" = any.
        role: A role of `records.ROLES`; of a fused matrix, its role when left whole.
        part: "" or the piece of the slot; "expert" is completed by the expert's number.
        split: A layout of `layouts.py`, or one for each model type; "" = not fused.
        stack: The stack that this suffix alone identifies; "" = the path decides.
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


class Rules(tuple[Rule, ...]):
    """Rules of which the first that holds for a suffix wins."""

    def below(self, path: str) -> Callable[[str], Rule | None]:
        """The search among the rules that hold below a layer path: one expression of all their
        suffixes, as most suffixes of an unknown model fit none of a hundred."""
        holding = [rule for rule in self if rule.within in ("", path)]
        any_of_them = re.compile(
            "|".join(f"(?P<r{n}>{rule.suffix.pattern})" for n, rule in enumerate(holding)) or "(?!)"
        )

        def first(suffix: str) -> Rule | None:
            match = any_of_them.fullmatch(suffix)
            # the group of the rule closes last
            return holding[int((match.lastgroup or "r0")[1:])] if match else None

        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`roles.json` with its patterns compiled.

    Attributes:
        layers: Stack of each layer path, in the file's order.
        beside_others: Those of them whose models have further stacks.
        layer_pattern: Finds a layer path and its number.
        stack_of_owner: For paths that several architectures share, by the model type or by
            the word before the path.
        stack_of_embedding: The same, by an embedding beside the layers.
        rules: First match wins.
        ignored: Suffixes that are no slot, such as routers.
        ignored_word: A component of a name that makes it no slot.
        attention_word: Found in the names of layers that attend, whatever their tradition.
    """

    layers: Mapping[str, str]
    beside_others: frozenset[str]
    layer_pattern: re.Pattern[str]
    stack_of_owner: Mapping[str, str]
    stack_of_embedding: Mapping[str, str]
    rules: Rules
    ignored: Rules
    ignored_word: re.Pattern[str]
    attention_word: re.Pattern[str]


@cache
def table() -> Table:
    text = resources.files(__package__).joinpath("roles.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    layers = {entry["path"]: entry["stack"] for entry in raw["layers"]}
    paths = "|".join(re.escape(path).replace("N", "[0-9]{1,6}") for path in layers)
    return Table(
        layers=layers,
        beside_others=frozenset(e["path"] for e in raw["layers"] if e.get("beside_others")),
        layer_pattern=re.compile(rf"(?<![^.])(?P<path>{paths})\.(?P<layer>[0-9]{{1,6}})\."),
        stack_of_owner=raw["stack_of_owner"],
        stack_of_embedding=raw["stack_of_embedding"],
        rules=Rules(map(_rule, raw["rules"])),
        ignored=Rules(map(_rule, raw["ignored_suffixes"])),
        ignored_word=re.compile("|".join(raw["ignored_words"]), re.IGNORECASE),
        attention_word=re.compile(raw["attention_words"], re.IGNORECASE),
    )


@lru_cache(maxsize=4096)
def find_rule(path: str, suffix: str) -> Rule | None:
    """The first rule for a suffix below a layer path; numbers written `N` in both."""
    return _first_rule(path)(suffix)


@cache
def _first_rule(path: str) -> Callable[[str], Rule | None]:
    return table().rules.below(path)


@cache
def _first_ignored(path: str) -> Callable[[str], Rule | None]:
    return table().ignored.below(path)


@lru_cache(maxsize=4096)
def is_ignored(path: str, suffix: str) -> bool:
    """Whether a suffix below a layer path is known to be no slot; numbers written `N`."""
    if _first_ignored(path)(suffix) is not None:
        return True
    return any(table().ignored_word.fullmatch(word) for word in suffix.split("."))


def without_numbers(name: str) -> str:
    """`experts.7.w1` → `experts.N.w1`."""
    return NUMBER.sub("N", name)


def _rule(entry: dict[str, Any]) -> Rule:
    fields = {key: value for key, value in entry.items() if key not in ("suffix", "in")}
    pattern = re.compile(entry["suffix"].replace(".", r"\."))
    return Rule(suffix=pattern, within=entry.get("in", ""), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A tensor that a rule places, before its stack is known.

    Attributes:
        prefix: All before the layer path, with its last dot.
        path: Layer path, numbers written `N`.
        groups: Numbers inside the layer path: ALBERT's shared group.
        layer: The number after the layer path.
        suffix: All after the layer number, numbers written `N`.
        module: The name without prefix and `.weight`.
        expert: The last number in the suffix, or -1.
    """

    tensor: str
    shape: tuple[int, ...]
    prefix: str
    path: str
    groups: tuple[int, ...]
    layer: int
    suffix: str
    module: str
    expert: int
    rule: Rule


def locate(tensor: str, module: str, shape: tuple[int, ...]) -> Spot | None:
    """A tensor's place, by its name without `.weight`; None if no rule matches."""
    for match in _layers(module):
        path, rest = without_numbers(match["path"]), module[match.end() :]
        suffix = without_numbers(rest)
        rule = find_rule(path, suffix)
        if rule is None:
            continue
        numbers = NUMBER.findall(rest)
        return Spot(
            tensor=tensor,
            shape=shape,
            prefix=module[: match.start()],
            path=path,
            groups=tuple(map(int, NUMBER.findall(match["path"]))),
            layer=int(match["layer"]),
            suffix=suffix,
            module=module[match.start() :],
            expert=int(numbers[-1]) if numbers else -1,
            rule=rule,
        )
    return None


@dataclass(frozen=True, slots=True)
class Numbered:
    """Where a name's layer number is, whether or not a rule matches the rest.

    Numbers in path and suffix are written `N`; the path is "" if it is not in the table.
    """

    before: str
    path: str
    suffix: str


def find_number(module: str) -> Numbered | None:
    """The layer number behind a known path, else the first behind any word, else None."""
    match = next(_layers(module), None)
    if match is not None:
        suffix = without_numbers(module[match.end() :])
        return Numbered(module[: match.end("path")], without_numbers(match["path"]), suffix)
    parts = module.split(".")
    for i in range(1, len(parts) - 1):
        if parts[i].isdecimal() and not parts[i - 1].isdecimal():
            return Numbered(".".join(parts[:i]), "", without_numbers(".".join(parts[i + 1 :])))
    return None


def path_ends(module: str, longest: int) -> Iterator[str]:
    """Every end of a module's path that begins with a whole component, the longest first.

    Args:
        longest: Characters of an end; longer ones are left out.
    """
    if len(module) <= longest:
        start = 0
    elif not (start := module.find(".", len(module) - longest - 1) + 1):
        return
    yield module[start:]
    while start := module.find(".", start) + 1:
        yield module[start:]


def _layers(module: str) -> Iterator[re.Match[str]]:
    """Layer paths from the left, so that `encoder.layer` comes before its own `layer`."""
    pattern = table().layer_pattern
    match = pattern.search(module) if len(module) <= LONGEST else None
    for _ in range(MAX_PATHS):
        if match is None:
            return
        yield match
        match = pattern.search(module, match.start() + 1)
