"""Names of tensors: the layer that they are in, and what `roles.json` knows of the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal

WEIGHT = ".weight"

OPEN_PATH = "layers"
"""A layer path of encoders, decoders and towers alike."""

NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
"""A whole component of a name that is a number; written `N` in the table."""

LONGEST = 1000
"""Characters in a name beyond which it is no layer's; searching longer ones would cost."""

MAX_PATHS = 8
"""Layer paths that are looked for in one name; those of real models have at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the tensors with one suffix inside a numbered layer are. `part`: "expert" is completed
    by its number; `split`: a fused matrix's layout, or one for each model type; `stack`: that this
    suffix alone identifies; `conv1d`: stored in × out where the model uses GPT-2's Conv1D."""

    suffix: re.Pattern[str]
    within: str = ""
    role: str = ""
    part: str = ""
    split: str | Mapping[str, str] = ""
    stack: str = ""
    conv1d: bool = False
    stacked: bool = False


class RoleNames:
    """`roles.json` with its patterns compiled. `stack_of_owner`: for paths that several
    architectures share, by the model type or by a word before the path; `wrappers`: words there
    that tell no stack."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.layers: dict[str, str] = {entry["path"]: entry["stack"] for entry in raw["layers"]}
        paths = "|".join(re.escape(path).replace("N", "[0-9]{1,6}") for path in self.layers)
        self.layer_pattern = re.compile(rf"(?<![^.])(?P<path>{paths})\.(?P<layer>[0-9]{{1,6}})\.")
        self.beside_others = {e["path"] for e in raw["layers"] if e.get("beside_others")}
        self.wrappers = frozenset(raw["wrappers"])
        self.stack_of_owner: dict[str, str] = raw["stack_of_owner"]
        self.stack_of_embedding: dict[str, str] = raw["stack_of_embedding"]
        self.rules = tuple(map(_rule, raw["rules"]))
        self.ignored = tuple(map(_rule, raw["ignored_suffixes"]))
        self.ignored_word = re.compile("|".join(raw["ignored_words"]), re.IGNORECASE)
        self.attention_word = re.compile(raw["attention_words"], re.IGNORECASE)
        self.outside_word = re.compile("|".join(raw["outside_words"]), re.IGNORECASE)
        self.factor_word = re.compile("|".join(raw["factor_words"]))


@cache
def table() -> RoleNames:
    text = resources.files(__package__).joinpath("roles.json").read_text(encoding="utf-8")
    return RoleNames(json.loads(text))


@cache
def _search(kind: Literal["rules", "ignored"], path: str) -> Callable[[str], Rule | None]:
    """What finds the first rule for a suffix below a layer path, numbers written `N` in both: one
    expression of all suffixes, as most suffixes of an unknown model fit none of a hundred."""
    rules: tuple[Rule, ...] = getattr(table(), kind)
    holding = [rule for rule in rules if rule.within in ("", path)]
    any_of_them = re.compile(
        "|".join(f"(?P<r{n}>{rule.suffix.pattern})" for n, rule in enumerate(holding)) or "(?!)"
    )

    @lru_cache(maxsize=4096)
    def first(suffix: str) -> Rule | None:
        match = any_of_them.fullmatch(suffix)
        # the group of the rule closes last
        return holding[int((match.lastgroup or "r0")[1:])] if match else None

    return first


@lru_cache(maxsize=4096)
def is_ignored(path: str, suffix: str) -> bool:
    """Whether a suffix below a layer path is known to be no slot; numbers written `N`."""
    if _search("ignored", path)(suffix) is not None:
        return True
    return any(table().ignored_word.fullmatch(word) for word in suffix.split("."))


def without_numbers(name: str) -> str:
    return NUMBER.sub("N", name)


def _rule(entry: dict[str, Any]) -> Rule:
    fields = {key: value for key, value in entry.items() if key not in ("suffix", "in")}
    pattern = re.compile(entry["suffix"].replace(".", r"\."))
    return Rule(suffix=pattern, within=entry.get("in", ""), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A tensor whose place in a layer is known, and not yet its stack. `groups`: numbers
    inside the layer path (ALBERT's shared group); `expert`: the last number in the suffix, or
    -1."""

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
    for match in layer_paths(module):
        path, rest = without_numbers(match["path"]), module[match.end() :]
        suffix = without_numbers(rest)
        rule = _search("rules", path)(suffix)
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
    """Where a name's layer number is; numbers elsewhere are written `N`, and a path that is not in
    the table ""."""

    before: str
    path: str
    suffix: str

    def __str__(self) -> str:
        return f"{self.before.rpartition('.')[2]}.{self.suffix}"


def find_number(module: str) -> Numbered | None:
    """The layer number behind a known path, else the first behind any word, else None."""
    match = next(layer_paths(module), None)
    if match is not None:
        suffix = without_numbers(module[match.end() :])
        return Numbered(module[: match.end("path")], without_numbers(match["path"]), suffix)
    before = numbered_word(module)
    if before is None:
        return None
    suffix = module[len(before) + 1 :].partition(".")[2]
    return Numbered(before, "", without_numbers(suffix))


def numbered_word(module: str) -> str | None:
    """A name up to the first word that a number stands behind, where more follows."""
    parts = module.split(".")
    for i in range(1, len(parts) - 1):
        if parts[i].isdecimal() and not parts[i - 1].isdecimal():
            return ".".join(parts[:i])
    return None


def path_ends(module: str, longest: int) -> Iterator[str]:
    """Every end of a module's path that begins with a whole component and has at most `longest`
    characters, the longest first."""
    if len(module) <= longest:
        start = 0
    elif not (start := module.find(".", len(module) - longest - 1) + 1):
        return
    yield module[start:]
    while start := module.find(".", start) + 1:
        yield module[start:]


def layer_paths(module: str) -> Iterator[re.Match[str]]:
    pattern = table().layer_pattern
    match = pattern.search(module) if len(module) <= LONGEST else None
    for _ in range(MAX_PATHS):
        if match is None:
            return
        yield match
        match = pattern.search(module, match.start() + 1)


def has_factor(name: str) -> bool:
    """Whether a part of a tensor's name is that of an adapter's factor."""
    return any(map(table().factor_word.fullmatch, name.split(".")))
