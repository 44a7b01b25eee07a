"""One tensor name taken apart: prefix, layer path, layer number, and the rule it meets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .rules import NUMBER, Rule, find_rule, table, without_numbers

LONGEST = 1000
"""Characters in a name beyond which it is no layer's; searching longer ones would cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A tensor that a rule places, before its stack is known.

    Attributes:
        tensor: Full name, as it was given.
        shape: As it was given.
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

    @property
    def group(self) -> tuple[str, str]:
        """Tensors of one stack share it."""
        return self.prefix, self.path


def locate(tensor: str, module: str, shape: tuple[int, ...]) -> Spot | None:
    """Where a tensor stands, by its name without `.weight`; None if no rule knows it."""
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
    """Where a name's layer number stands, whether or not a rule knows the rest.

    Attributes:
        before: All before the number.
        path: The layer path, numbers written `N`; "" if it is not in the table.
        suffix: All after the number, numbers written `N`.
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
    words = module.split(".")
    for i in range(1, len(words) - 1):
        if words[i].isdecimal() and not words[i - 1].isdecimal():
            return Numbered(".".join(words[:i]), "", without_numbers(".".join(words[i + 1 :])))
    return None


def _layers(module: str) -> Iterator[re.Match[str]]:
    """Layer paths from the left, so that `encoder.layer` comes before its own `layer`."""
    pattern = table().layer_pattern
    match = pattern.search(module) if len(module) <= LONGEST else None
    while match is not None:
        yield match
        match = pattern.search(module, match.start() + 1)
