"""What transformers calls a stored tensor once it is loaded. A LoRA has these names; a checkpoint
may have others, with several modules in one matrix, or rows in another order."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    loader = _loader(name, json.dumps(dict(config or {}), default=str))
    return getattr(loader and loader.model, "all_tied_weights_keys", None)


@lru_cache(maxsize=4)
def _stored_modules(
    heights: tuple[tuple[str, int], ...], names: tuple[str, ...], config: str
) -> dict[str, tuple[StoredRows, ...]]:
    found: dict[str, tuple[StoredRows, ...]] = {}
    for loader in filter(None, (_loader(name, config) for name in names)):
        found |= loader.modules_of(dict(heights))
    return found


@dataclass(frozen=True)
class _Loader:
    renamings: list[Any]
    converters: list[Any]
    model: Any
    names: dict[str, bool]

    def modules_of(self, heights: Mapping[str, int]) -> dict[str, tuple[StoredRows, ...]]:
        from transformers.core_model_loading import rename_source_key

        found: dict[str, tuple[StoredRows, ...]] = {}
        converted: dict[str, dict[str, str]] = defaultdict(dict)
        for tensor in heights:
            name, pattern = rename_source_key(
                tensor, self.renamings, self.converters, self.model.base_model_prefix, self.names
            )
            if pattern is not None:
                converted[name][pattern] = tensor
            elif name in self.names:
                found[name.removesuffix(WEIGHT)] = ((tensor, range(heights[tensor])),)
        for name, sources in converted.items():
            found |= self._converted(name, sources, heights)
        return found

    def _converted(
        self, name: str, sources: Mapping[str, str], heights: Mapping[str, int]
    ) -> dict[str, tuple[StoredRows, ...]]:
        """The modules that a conversion makes, by what it does to numbered rows; none where it does
        more than move rows of matrices."""
        converter = next(c for c in self.converters if next(iter(sources)) in c.source_patterns)
        patterns, first = converter.source_patterns, converter.target_patterns[0]
        if sources.keys() != set(patterns) or "*" in "".join(patterns) or first not in name:
            return {}
        sources = {pattern: sources[pattern] for pattern in patterns}
        tensors = {tensor: heights[tensor] for tensor in sources.values()}
        sizes = list(tensors.values())
        rows_of = torch.split(torch.arange(sum(sizes))[:, None], sizes)
        numbers: dict[str, Any] = {p: [rows] for p, rows in zip(sources, rows_of, strict=True)}
        try:
            for operation in converter.operations:
                numbers = operation.convert(
                    numbers,
                    source_patterns=patterns,
                    target_patterns=converter.target_patterns,
                    full_layer_name=name,
                    model=self.model,
                    config=self.model.config,
                    missing_keys=None,
                )
        except Exception:  # whatever an operation wants of a matrix
            return {}
        if numbers.keys() != set(converter.target_patterns) or not all(
            isinstance(rows, torch.Tensor) and rows.shape[1:] == (1,) for rows in numbers.values()
        ):
            return {}
        return {
            name.replace(first, target).removesuffix(WEIGHT): _pieces(rows, tensors)
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


def _loader(class_name: str, config: str) -> _Loader | None:
    try:
        import transformers
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming
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
            rules = get_model_conversion_mapping(model)
    except Exception:  # whatever a config makes of its class: then it has no other names
        return None
    return _Loader(
        [rule for rule in rules if isinstance(rule, WeightRenaming)],
        [rule for rule in rules if isinstance(rule, WeightConverter)],
        model,
        dict.fromkeys(model.state_dict(), True),
    )
