"""Adapters of mlx-lm, as PEFT would have saved them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch

from .checkpoint import Checkpoint, Config, Derived, DerivedCheckpoint

FACTOR = re.compile(r"\.(lora_[ab]|m)$")
_PEFT = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight", "m": "lora_magnitude_vector.weight"}


def is_mlx(config: Config) -> bool:
    """Whether an adapter_config.json is mlx-lm's."""
    stated = ("lora_parameters", "fine_tune_type", "lora_layers")
    return "peft_type" not in config and any(key in config for key in stated)


def peft_config(config: Config) -> Config:
    """mlx-lm's settings in PEFT's words. Its `scale` is what multiplies B·A; where there is an
    `alpha`, too, versions differ in whether that counts, and the later ones are followed."""
    if not is_mlx(config):
        return config
    given = config.get("lora_parameters")
    stated: Mapping[str, object] = given if isinstance(given, Mapping) else config
    rank, scale = stated.get("rank"), stated.get("scale")
    settings: dict[str, object] = {"peft_type": "LORA", "r": rank}
    if isinstance(rank, int) and isinstance(scale, int | float):
        settings["lora_alpha"] = scale * rank
    settings["use_dora"] = config.get("fine_tune_type") == "dora" or config.get("use_dora") is True
    settings["base_model_name_or_path"] = config.get("model")
    return settings


def with_peft_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with factors as PEFT has them: mlx-lm's are (in, r) and (r, out)."""
    matches = {name: FACTOR.search(name) for name in checkpoint.tensors}
    if not any(match is not None and match[1] != "m" for match in matches.values()):
        return checkpoint
    names: dict[str, str] = {}
    derived: dict[str, Derived] = {}
    for name, match in matches.items():
        ref = checkpoint.tensors[name]
        peft_name = name if match is None else f"{name[: match.start()]}.{_PEFT[match[1]]}"
        if match is None or match[1] == "m" or len(ref.shape) != 2:
            names[peft_name] = name
        else:
            derived[peft_name] = Derived(
                of=name, shape=ref.shape[::-1], compute=_turned(name), dtype=ref.dtype
            )
    return DerivedCheckpoint(checkpoint, names, derived, note="an adapter of mlx-lm")


def _turned(name: str) -> Callable[[Checkpoint], torch.Tensor]:
    return lambda stored: stored.read(name).T.contiguous()
