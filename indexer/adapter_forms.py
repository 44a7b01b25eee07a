"""Adapters in other forms than PEFT's files, as PEFT would have saved them, or merged.

mlx-lm has names and settings of its own. LoRA on stacked experts (PEFT's `target_parameters`) is
stored under ambiguous names: PEFT wraps a module once for each parameter, in the order of the
module's own: what is innermost, `experts.base_layer.lora_A`, is of `gate_up_proj`, and
`experts.lora_A` of `down_proj` then. A whole state dict of PEFT has the weights beside the adapter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from ..errors import ModelError
from .adapter import FLOATS, Adapter, parse_name, read_adapter
from .adapter_config import PARAMETERS
from .architecture import has_factor
from .checkpoint import Checkpoint, Config, Derived, DerivedCheckpoint, turned
from .delta import dense

_MLX_FACTOR = re.compile(r"\.(lora_[ab]|m)$")
_PEFT = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight", "m": "lora_magnitude_vector.weight"}


def peft_config(config: Config) -> Config:
    """mlx-lm's settings in PEFT's words. Its `scale` is what multiplies B·A; where there is an
    `alpha`, too, versions differ in whether that counts, and the later ones are followed."""
    own = ("lora_parameters", "fine_tune_type", "lora_layers")
    if "peft_type" in config or not any(key in config for key in own):
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
    matches = {name: _MLX_FACTOR.search(name) for name in checkpoint.tensors}
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
            derived[peft_name] = turned(ref)
    return DerivedCheckpoint(checkpoint, names, derived, note="an adapter of mlx-lm")


_OF_EXPERTS = re.compile(
    r"(?P<experts>.*\bexperts)\.(?P<inner>base_layer\.)?(?P<factor>lora_[AB]\b.*)"
)


def name_experts(checkpoint: Checkpoint, config: Config | None) -> Checkpoint:
    """The checkpoint with each factor of stacked experts under its parameter's name."""
    stated = (config or {}).get("target_parameters")
    last = {str(n).rpartition(".")[2] for n in stated} if isinstance(stated, list) else set()
    targets = [name for name in PARAMETERS if name in last]  # in the order of the module
    matches = {name: _OF_EXPERTS.fullmatch(name) for name in checkpoint.tensors}
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


def holds_adapter(checkpoint: Checkpoint) -> bool:
    return any(map(has_factor, checkpoint.tensors))


def merge_adapter(checkpoint: Checkpoint, config: Mapping[str, object]) -> DerivedCheckpoint:
    """The checkpoint that `merge_and_unload` would give, under the names of the base; `config`: the
    adapter_config.json beside it. A `ModelError` where some ΔW is not computed. Embeddings that an
    adapter changes are left out, so that nothing takes them as the base's."""
    adapter = read_adapter(checkpoint, config)
    parsed = {name: parse_name(name) for name in checkpoint.tensors}
    replaced = {p.module for n, p in parsed.items() if "modules_to_save" in n}
    lost = {p.module for p in parsed.values() if p.kind == "embedding"}
    kept = {
        ".".join(filter(None, (parts.module, name.rpartition(".")[2]))): name
        for name, parts in parsed.items()
        if parts.kind in ("value", "bias", "other")
        and parts.module not in lost
        and ("modules_to_save" in name or parts.module not in replaced)
    }
    derived = {}
    for module in adapter.modules:
        name = f"{module}.weight"
        derived[name] = _merged(adapter, module, kept.pop(name, name), checkpoint, config)
    note = f"an adapter ({adapter.method}) beside the weights, merged into them"
    return DerivedCheckpoint(checkpoint, kept, derived, note=note)


def _merged(
    adapter: Adapter, module: str, stored: str, checkpoint: Checkpoint, config: Mapping[str, object]
) -> Derived:
    ref = checkpoint.tensors.get(stored)
    if ref is None:
        raise ModelError("not-read", f"no weight beside the adapter's factors of {module!r}")
    if ref.dtype not in FLOATS:
        raise ModelError("quantized", f"{stored!r} is stored as {ref.dtype}")
    flat = config.get("fan_in_fan_out") is True

    def compute(weight: torch.Tensor, _: int) -> torch.Tensor:
        weight = weight.float()
        oriented = weight.T.contiguous() if flat else weight
        change = dense(adapter.delta(module, oriented))
        return weight + (change.T if flat else change)

    return Derived(of=stored, shape=ref.shape, compute=compute)
