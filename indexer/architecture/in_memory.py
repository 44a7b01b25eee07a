"""What transformers calls a stored tensor once it is loaded. A LoRA has these names; a checkpoint
may have others, with several modules in one matrix."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from .names import WEIGHT

AUTO = "AutoModel"


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a loaded module's matrix is: piece `index` of `n` equal ones of a tensor's rows."""

    tensor: str
    index: int = 0
    n: int = 1


def stored_modules(tensors: Iterable[str], config: Mapping[str, Any] | None) -> dict[str, Stored]:
    """By the path of each module that transformers loads under another name or from a piece; empty
    where transformers, from 5 on, is not there or does not build the type. Its own classes alone
    are used, without memory for weights."""
    if config is None:
        return {}
    names = AUTO, *map(str, (config.get("architectures") or ())[:1])
    text = json.dumps(dict(config), sort_keys=True, default=str)
    return _stored_modules(tuple(tensors), names, text)


@lru_cache(maxsize=4)
def _stored_modules(
    tensors: tuple[str, ...], names: tuple[str, ...], config: str
) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for loader in filter(None, (_loader(name, config) for name in names)):
        for tensor in tensors:
            found |= loader.modules_of(tensor)
    return found


@dataclass(frozen=True)
class _Loader:
    renamings: list[Any]
    converters: list[Any]
    prefix: str
    names: dict[str, bool]

    def modules_of(self, tensor: str) -> dict[str, Stored]:
        from transformers.core_model_loading import rename_source_key

        name, pattern = rename_source_key(
            tensor, self.renamings, self.converters, self.prefix, self.names
        )
        if pattern is None:
            return {name.removesuffix(WEIGHT): Stored(tensor)} if name in self.names else {}
        converter = next(c for c in self.converters if pattern in c.source_patterns)
        first, *others = converter.target_patterns
        is_cut = [type(step).__name__ for step in converter.operations] == ["Chunk"]
        if not is_cut or not others or converter.operations[0].dim != 0 or first not in name:
            return {}
        targets = (first, *others)
        loaded = [name.replace(first, target).removesuffix(WEIGHT) for target in targets]
        return {path: Stored(tensor, i, len(targets)) for i, path in enumerate(loaded)}


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
        model.base_model_prefix,
        dict.fromkeys(model.state_dict(), True),
    )
