"""Which stack the tensors of one prefix and one layer path belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from ...errors import ModelError
from ..words import name_some
from .attention_config import AttentionConfig
from .located import Spot
from .rules import table

Stacks = Mapping[str, Sequence[Spot]]


def gather_stacks(spots: Iterable[Spot], names: Collection[str], config: AttentionConfig) -> Stacks:
    """The spots of each stack.

    Args:
        names: All tensor names of the model: an embedding may tell the stack.

    Raises:
        ModelError: `unknown-architecture` when two prefixes or layer paths claim one stack.
    """
    groups: dict[tuple[str, str], list[Spot]] = defaultdict(list)
    for spot in spots:
        groups[spot.group].append(spot)
    stacks: dict[str, list[Spot]] = {}
    for group in groups.values():
        stack = _stack(group, names, config)
        if stack in stacks:
            both = name_some([stacks[stack][0].tensor, group[0].tensor])
            raise ModelError(
                "unknown-architecture",
                f"{both} belong to two {stack} stacks: expected one model in the file",
            )
        stacks[stack] = group
    return stacks


def common_prefix(stacks: Stacks) -> str:
    """The leading words that the prefixes of all stacks share, each with its dot."""
    words = (group[0].prefix.split(".")[:-1] for group in stacks.values())
    shared = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    return "".join(f"{column[0]}." for column in shared)


def _stack(group: Sequence[Spot], names: Collection[str], config: AttentionConfig) -> str:
    """By a telling suffix, else a telling path, else embedding, prefix or model type."""
    first = group[0]
    told = next((spot.rule.stack for spot in group if spot.rule.stack), "")
    default = told or table().layers[first.path]
    if told or first.path not in ("layers", "encoder.layers"):
        return default
    for embedding, stack in table().stack_of_embedding.items():
        if first.path == "encoder.layers" and f"{first.prefix}{embedding}.weight" in names:
            return stack
    by_owner = table().stack_of_owner
    word = first.prefix.rstrip(".").rpartition(".")[2]
    return by_owner.get(word) or by_owner.get(config.model_type or "") or default
