"""A PEFT adapter: which modules it changes, and each one's ΔW on demand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ModelError
from ..checkpoint import Checkpoint
from ..delta import Delta
from . import formulas
from .modules import NamedTensors, group_names
from .settings import Settings, read_settings

_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter whose headers were read; a ΔW is computed when it is asked for.

    Attributes:
        method: `lora`, `rslora`, `dora`, `adalora`, `loha`, `lokr`.
        modules: Module path in the wrapped model → (out, in) of its ΔW.
        full_values: Module path → name of a whole weight saved beside the adapter.
        needs_base: Modules whose ΔW is a function of W.
        notes: What was odd, as plain sentences.
    """

    method: str
    modules: Mapping[str, tuple[int, int]]
    full_values: Mapping[str, str]
    needs_base: frozenset[str]
    notes: tuple[str, ...]
    checkpoint: Checkpoint
    settings: Settings
    leaves: Mapping[str, Mapping[str, str]]

    def tensors_of(self, module: str) -> tuple[str, ...]:
        """Names of the tensors that a module's ΔW is made of."""
        return tuple(self.leaves[module].values())

    def delta(self, module: str, base_weight: torch.Tensor | None) -> Delta:
        """ΔW of one module, (out, in), float32.

        Args:
            base_weight: W (out, in), float32, for modules in `needs_base`.

        Raises:
            ModelError: `non-finite`, `needs-base`, or whatever reading runs into.
        """
        t = {leaf: self._read(name) for leaf, name in self.leaves[module].items()}
        scale = self._scale(module)
        if "hada_w1_a" in t:
            return formulas.loha(t["hada_w1_a"], t["hada_w1_b"], t["hada_w2_a"], t["hada_w2_b"], scale)
        if any(leaf.startswith("lokr") for leaf in t):
            return formulas.lokr(_factor(t, "lokr_w1"), _factor(t, "lokr_w2"), scale)
        if "lora_E" in t:
            return formulas.adalora(t["lora_A"], t["lora_B"], t["lora_E"], scale)
        if "lora_magnitude_vector" not in t:
            return formulas.lora(t["lora_A"], t["lora_B"], scale)
        if base_weight is None:
            raise ModelError("needs-base", f"{module}: DoRA's update needs the base's weights")
        magnitude = t["lora_magnitude_vector"]
        return formulas.dora(t["lora_A"], t["lora_B"], magnitude, base_weight, scale)

    def _read(self, name: str) -> torch.Tensor:
        tensor = self.checkpoint.read(name).float()
        if not torch.isfinite(tensor).all():
            raise ModelError("non-finite", f"tensor {name!r} holds NaN or infinity")
        return tensor

    def _scale(self, module: str) -> float:
        """What B A is multiplied by, as PEFT computes it."""
        rank = self._rank(module)
        alpha = self.settings.alpha_for(module)
        if alpha is None:
            return 1.0
        if self.method == "adalora":
            return alpha / ((self.settings.init_rank or rank) + 1e-5)
        return alpha / (math.sqrt(rank) if self.settings.rank_stabilised else rank)

    def _rank(self, module: str) -> int:
        """r of one module: from its tensors, since configs go stale."""
        leaves, tensors = self.leaves[module], self.checkpoint.tensors
        for leaf, axis in (("lora_A", 0), ("hada_w1_b", 0), ("lokr_w1_b", 0), ("lokr_w2_b", 0)):
            if leaf in leaves:
                return max(1, tensors[leaves[leaf]].shape[axis])
        return self.settings.rank_for(module) or 1


def read_adapter(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Adapter:
    """The adapter in a checkpoint; headers are enough, no tensor is read.

    Raises:
        ModelError: `bad-config`, `unsupported-adapter`, `missing-tensor`, `shape-mismatch`,
            `unsupported-dtype`, `no-weights`.
    """
    settings = read_settings(config)
    named = group_names(checkpoint.tensors)
    if not named.leaves and not named.full:
        raise ModelError("no-weights", "no tensor of a PEFT method in the weight file")
    shapes = {
        module: _module_shape(module, leaves, checkpoint) for module, leaves in named.leaves.items()
    }
    return Adapter(
        method=_method(named, settings),
        modules=shapes,
        full_values=named.full,
        needs_base=frozenset(
            m for m, leaves in named.leaves.items() if "lora_magnitude_vector" in leaves
        ),
        notes=_notes(named, settings, config),
        checkpoint=checkpoint,
        settings=settings,
        leaves=named.leaves,
    )


def _module_shape(
    module: str, leaves: Mapping[str, str], checkpoint: Checkpoint
) -> tuple[int, int]:
    """(out, in) of a module's ΔW, after its tensors have been held against each other."""
    shape = {leaf: checkpoint.tensors[name].shape for leaf, name in leaves.items()}
    for name in leaves.values():
        if checkpoint.tensors[name].dtype not in _FLOATS:
            dtype = checkpoint.tensors[name].dtype
            raise ModelError("unsupported-dtype", f"tensor {name!r} is {dtype}")
    if any(len(s) != 2 for leaf, s in shape.items() if leaf[-2:] in ("_A", "_B", "_a", "_b")):
        raise ModelError("unsupported-adapter", f"{module}: the update of a convolution")
    if "lora_A" in leaves or "lora_B" in leaves:
        return _product(module, shape, "lora_B", "lora_A")
    if any(leaf.startswith("hada") for leaf in leaves):
        first = _product(module, shape, "hada_w1_a", "hada_w1_b")
        if first != _product(module, shape, "hada_w2_a", "hada_w2_b"):
            raise ModelError("shape-mismatch", f"{module}: the two halves of a LoHa differ in shape")
        return first
    if any(leaf.startswith("lokr") for leaf in leaves):
        one, two = (_kron_factor(module, shape, f"lokr_w{i}") for i in (1, 2))
        return one[0] * two[0], one[1] * two[1]
    raise ModelError("missing-tensor", f"{module}: only {', '.join(leaves)} of its tensors")


def _product(
    module: str, shape: Mapping[str, tuple[int, ...]], left: str, right: str
) -> tuple[int, int]:
    for leaf in (left, right):
        if leaf not in shape:
            raise ModelError("missing-tensor", f"{module}: has no {leaf}")
    if shape[left][1] != shape[right][0]:
        raise ModelError(
            "shape-mismatch",
            f"{module}: {left} is {list(shape[left])} and {right} is {list(shape[right])}",
        )
    return shape[left][0], shape[right][1]


def _kron_factor(
    module: str, shape: Mapping[str, tuple[int, ...]], leaf: str
) -> tuple[int, int]:
    whole = shape.get(leaf)
    if whole is None:
        return _product(module, shape, f"{leaf}_a", f"{leaf}_b")
    if len(whole) != 2:
        raise ModelError("unsupported-adapter", f"{module}: the update of a convolution")
    return whole[0], whole[1]


def _factor(tensors: Mapping[str, torch.Tensor], leaf: str) -> torch.Tensor:
    whole = tensors.get(leaf)
    return whole if whole is not None else tensors[f"{leaf}_a"] @ tensors[f"{leaf}_b"]


def _method(named: NamedTensors, settings: Settings) -> str:
    """By the tensors, since a config may be missing."""
    leaves = {leaf for module in named.leaves.values() for leaf in module}
    for leaf, method in (
        ("lora_E", "adalora"),
        ("lora_magnitude_vector", "dora"),
        ("hada_w1_a", "loha"),
    ):
        if leaf in leaves:
            return method
    if any(leaf.startswith("lokr") for leaf in leaves):
        return "lokr"
    return "rslora" if settings.rank_stabilised else "lora"


def _notes(
    named: NamedTensors, settings: Settings, config: Mapping[str, Any] | None
) -> tuple[str, ...]:
    notes = []
    if config is None:
        notes.append("no adapter_config.json: the scale is unknown and taken as 1")
    elif settings.alpha is None:
        notes.append("the config has no alpha: the scale is unknown and taken as 1")
    if config is not None and config.get("bias") not in (None, "none"):
        notes.append(f"bias={config['bias']!r}: biases are saved whole and not part of ΔW")
    return tuple(notes)
