"""LoRA on stacked experts (PEFT's `target_parameters`), under the names of the parameters.

PEFT wraps a module once for each parameter, in the order of the module's own: what is innermost,
`experts.base_layer.lora_A`, is of `gate_up_proj`, and `experts.lora_A` of `down_proj` then.
"""

from __future__ import annotations

import re

from ..errors import ModelError
from .checkpoint import Checkpoint, Config, DerivedCheckpoint

PARAMETERS = ("gate_up_proj", "down_proj")
_FACTOR = re.compile(r"(?P<experts>.*\bexperts)\.(?P<inner>base_layer\.)?(?P<factor>lora_[AB]\b.*)")


def name_experts(checkpoint: Checkpoint, config: Config | None) -> Checkpoint:
    """The checkpoint with each factor of stacked experts under its parameter's name."""
    targets = targeted_parameters(config or {})
    matches = {name: _FACTOR.fullmatch(name) for name in checkpoint.tensors}
    if not targets or not any(matches.values()):
        return checkpoint
    names = {}
    for name, match in matches.items():
        if match is None:
            names[name] = name
        else:
            target = targets[0] if match["inner"] or len(targets) == 1 else targets[1]
            names[f"{match['experts']}.{target}.{match['factor']}"] = name
    _require_order(checkpoint, names)
    return DerivedCheckpoint(checkpoint, names, {}, note="LoRA on stacked experts")


def targeted_parameters(config: Config) -> tuple[str, ...]:
    """Which parameters of experts are trained, in the order of the module; () for none."""
    stated = config.get("target_parameters")
    if not isinstance(stated, list):
        return ()
    last = {str(name).rpartition(".")[2] for name in stated}
    return tuple(name for name in PARAMETERS if name in last)


def _require_order(checkpoint: Checkpoint, names: dict[str, str]) -> None:
    """Pass if gate_up reads what down writes, and down reads half of what gate_up writes."""
    shapes = {name: checkpoint.tensors[old].shape for name, old in names.items()}
    for name, shape in shapes.items():
        stem, found, rest = name.rpartition(".gate_up_proj.lora_A")
        others = [f"{stem}.{end}{rest}" for end in (
            "gate_up_proj.lora_B", "down_proj.lora_A", "down_proj.lora_B"
        )]  # fmt: skip
        if not found or any(len(shapes.get(other, ())) != 2 for other in others):
            continue
        gate_b, down_a, down_b = (shapes[other] for other in others)
        if shape[1] != down_b[0] or gate_b[0] != 2 * down_a[1]:
            line = f"{names[name]!r} and its neighbours are not gate_up_proj's and down_proj's"
            raise ModelError("unsupported-adapter", f"LoRA on expert parameters: {line}")
