"""What transformers calls a stored tensor once it is loaded. A LoRA has these names; a checkpoint
may have others, with several modules in one matrix, or rows in another order."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from .names import WEIGHT

AUTO = "AutoModel"


StoredRows = tuple[str, Sequence[int]]
"""Where a loaded module's matrix is: a tensor, and for each of the module's rows that of the
tensor, -1 for one that is not there; a range where it is the tensor as it is."""


def stored_modules(
    heights: Mapping[str, int], config: Mapping[str, Any] | None
) -> dict[str, tuple[StoredRows, ...]]:
    """By the path of each module that transformers loads under another name, or from rows of one
    tensor or several; empty where transformers, from 5 on, is not there or does not build the type.
    Its own classes alone are used, without memory for weights. `heights`: rows by tensor."""
    if config is None:
        return {}
    names = AUTO, *map(str, (config.get("architectures") or ())[:1])
    text = json.dumps(dict(config), sort_keys=True, default=str)
    return _stored_modules(tuple(heights.items()), names, text)


def tied_parameters(config: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    """By each parameter that the model's class ties to another that one; None where transformers
    does not say."""
    names = (config or {}).get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    model, _ = _built(name, json.dumps(dict(config or {}), default=str)) or (None, [])
    return getattr(model, "all_tied_weights_keys", None)


@lru_cache(maxsize=4)
def _stored_modules(
    heights: tuple[tuple[str, int], ...], names: tuple[str, ...], config: str
) -> dict[str, tuple[StoredRows, ...]]:
    found: dict[str, tuple[StoredRows, ...]] = {}
    for model, rules in filter(None, (_built(name, config) for name in names)):
        found |= _modules_of(model, rules, dict(heights))
    return found


def _modules_of(
    model: Any, rules: Sequence[Any], heights: Mapping[str, int]
) -> dict[str, tuple[StoredRows, ...]]:
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    names = dict.fromkeys(model.state_dict(), True)
    found: dict[str, tuple[StoredRows, ...]] = {}
    converted: dict[str, dict[str, str]] = defaultdict(dict)
    for tensor in heights:
        name, pattern = rename_source_key(
            tensor, renamings, converters, model.base_model_prefix, names
        )
        if pattern is not None:
            converted[name][pattern] = tensor
        elif name in names:
            found[name.removesuffix(WEIGHT)] = ((tensor, range(heights[tensor])),)
    for name, sources in converted.items():
        converter = next(c for c in converters if next(iter(sources)) in c.source_patterns)
        found |= _converted(name, sources, heights, converter, model)
    return found


def _converted(
    name: str, sources: Mapping[str, str], heights: Mapping[str, int], converter: Any, model: Any
) -> dict[str, tuple[StoredRows, ...]]:
    """The modules that a conversion makes, by what it does to numbered rows; none where it does
    more than move rows of matrices."""
    patterns, targets = converter.source_patterns, converter.target_patterns
    if sources.keys() != set(patterns) or "*" in "".join(patterns) or targets[0] not in name:
        return {}
    tensors = {sources[pattern]: heights[sources[pattern]] for pattern in patterns}
    sizes = list(tensors.values())
    rows_of = torch.split(torch.arange(sum(sizes))[:, None], sizes)
    numbers: dict[str, Any] = {p: [rows] for p, rows in zip(patterns, rows_of, strict=True)}
    try:
        for operation in converter.operations:
            numbers = operation.convert(
                numbers,
                source_patterns=patterns,
                target_patterns=targets,
                full_layer_name=name,
                model=model,
                config=model.config,
                missing_keys=None,
            )
    except Exception:  # whatever an operation wants of a matrix
        return {}
    if numbers.keys() != set(targets) or not all(
        isinstance(rows, torch.Tensor) and rows.shape[1:] == (1,) for rows in numbers.values()
    ):
        return {}
    return {
        name.replace(targets[0], target).removesuffix(WEIGHT): _pieces(rows, tensors)
        for target, rows in numbers.items()
    }


def _pieces(numbers: torch.Tensor, heights: Mapping[str, int]) -> tuple[StoredRows, ...]:
    """The rows of each tensor, of numbers that go on from one tensor to the next."""
    pieces: list[StoredRows] = []
    own = numbers.flatten()
    for tensor, height in heights.items():
        inside = (own >= 0) & (own < height)
        if bool(inside.any()):
            pieces.append((tensor, tuple(own.where(inside, -1).tolist())))
        own = own - height
    return tuple(pieces)


def _built(class_name: str, config: str) -> tuple[Any, Sequence[Any]] | None:
    """A model of transformers by its class and config, and how it renames what is stored."""
    try:
        import transformers
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:
        return None
    settings = json.loads(config)
    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            read = transformers.CONFIG_MAPPING[settings.get("model_type")].from_dict(settings)
            builder = getattr(transformers, class_name)
            if class_name == AUTO:
                model = builder.from_config(read, trust_remote_code=False)
            else:
                model = builder(read)
            return model, get_model_conversion_mapping(model)
    except Exception:  # whatever a config makes of its class: then it has no other names
        return None
