"""The whole state dict of a PEFT model: the weights and, beside them, an adapter, as one."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import ModelError
from .adapter import FLOATS, Adapter, TensorName, parse_name, read_adapter
from .architecture import has_factor
from .checkpoint import Checkpoint, Derived, DerivedCheckpoint
from .delta import DenseDelta


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
        _plain_name(name, parts): name
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


def _plain_name(name: str, parts: TensorName) -> str:
    return ".".join(filter(None, (parts.module, name.rpartition(".")[2])))


def _merged(
    adapter: Adapter, module: str, stored: str, checkpoint: Checkpoint, config: Mapping[str, object]
) -> Derived:
    ref = checkpoint.tensors.get(stored)
    if ref is None:
        raise ModelError("not-read", f"no weight beside the adapter's factors of {module!r}")
    if ref.dtype not in FLOATS:
        raise ModelError("quantized", f"{stored!r} is stored as {ref.dtype}")
    flat = config.get("fan_in_fan_out") is True

    def compute(stored_checkpoint: Checkpoint) -> torch.Tensor:
        weight = stored_checkpoint.read(stored).float()
        oriented = weight.T.contiguous() if flat else weight
        delta = adapter.delta(module, oriented)
        change = delta.matrix if isinstance(delta, DenseDelta) else delta.left @ delta.right
        return weight + (change.T if flat else change)

    return Derived(of=stored, shape=ref.shape, compute=compute)
