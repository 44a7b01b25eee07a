"""Which stack the tensors of one prefix and one layer path belong to."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...errors import ModelError
from .attention_config import AttentionConfig
from .located import Spot
from .rules import table

Stacks = Mapping[str, Sequence[Spot]]


def gather_stacks(
    spots: Iterable[Spot], names: Collection[str], config: AttentionConfig
) -> Stacks:
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
            one, other = stacks[stack][0].tensor, group[0].tensor
            raise ModelError(
                "unknown-architecture",
                f"{one!r} and {other!r} belong to two {stack} stacks: expected one model",
            )
        stacks[stack] = group
    return stacks


def common_prefix(stacks: Stacks) -> str:
    """What the prefixes of all stacks share, up to a dot."""
    shared = os.path.commonprefix([group[0].prefix for group in stacks.values()])
    return shared[: shared.rfind(".") + 1]


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
    by_type = table().stack_of_model_type
    word = first.prefix.rstrip(".").rpartition(".")[2]
    return by_type.get(word) or by_type.get(config.model_type or "") or default
