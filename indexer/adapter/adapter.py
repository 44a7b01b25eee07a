"""An adapter's files to ΔW, module by module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ...errors import ModelError
from ..architecture import layer_modules, path_ends
from ..checkpoint import Checkpoint
from ..delta import Delta
from ..untrusted_text import name_some
from .config import (
    FAMILIES,
    FILE,
    MAX_PATTERN,
    REFUSED,
    AdapterConfig,
    matches,
    read_config,
    refused_by_names,
)
from .contents import Contents, name_parts, sort_tensors
from .formulas import (
    FLOATS,
    UNKNOWN,
    ModuleUpdate,
    Tensors,
    build_full_value,
    build_ia3,
    build_loha,
    build_lokr,
    build_lora,
    build_vera,
)

LORAS = ("lora", "rslora", "dora", "pissa", "olora")
"""Methods that adapter_config.json may call LoRA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an adapter changes. Only headers are read before `delta` is called.

    Attributes:
        method: `lora`, `rslora`, `dora`, `adalora`, `pissa`, `olora`, `loha`, `lokr`,
            `vera`, `ia3`.
        modules: (out, in) of ΔW by module path; 0 for a width that only the base has
            (VeRA's in, and either side for IA³): such modules are in `needs_base`.
        full_values: Modules of which a whole 2-D weight is stored, and that tensor's name.
        needs_base: Modules whose ΔW needs W, those of `full_values` among them.
        outside: Modules outside layers that were left out, as their tensors are not in order.
    """

    method: str
    base_name: str | None
    modules: Mapping[str, tuple[int, int]]
    full_values: Mapping[str, str]
    needs_base: frozenset[str]
    outside: tuple[str, ...]
    notes: tuple[str, ...]
    _updates: Mapping[str, ModuleUpdate] = field(repr=False)

    def tensors_of(self, module: str) -> tuple[str, ...]:
        """The tensors that `delta` reads for a module of `modules` or `full_values`."""
        return self._updates[module].names

    def delta(self, module: str, base_weight: torch.Tensor | None) -> Delta:
        """ΔW of a module of `modules` or `full_values`, in float32.

        Args:
            base_weight: W as (out, in), float32; only modules in `needs_base` look at it.
        """
        update = self._updates[module]
        if not update.needs_base:
            base_weight = None
        elif base_weight is None:
            line = f"module {module!r}: ΔW of {self.method} needs the base's weights"
            raise ModelError("needs-base", line)
        else:
            expected = tuple(base_weight.shape)
            known = self.modules.get(module, (UNKNOWN, UNKNOWN))
            if any(k not in (UNKNOWN, e) for k, e in zip(known, expected, strict=True)):
                line = f"module {module!r} has shape {known}, the base's matrix {expected}"
                raise ModelError("shape-mismatch", line)
        return update.delta(base_weight)


def read_adapter(checkpoint: Checkpoint, config: Mapping[str, object] | None) -> Adapter:
    """What the adapter changes, from its headers and its adapter_config.json.

    PiSSA and OLoRA begin at W less a part that follows from W; their ΔW here counts that
    part in, as PEFT does when it loads them, and so needs W. CorDA, LoftQ, LoRA-GA and
    PiSSA's randomised form take out a part that cannot be computed again: they are refused,
    as s·B·A alone would be another update than the one that was trained.

    Only the matrices of layers count. Others, as heads, are left out where their tensors have no
    certain meaning, and never refuse an adapter.
    """
    settings = read_config(config)
    contents = sort_tensors(checkpoint.tensors)
    tensors = Tensors(checkpoint)
    layers = layer_modules({*contents.factors, *contents.unclear})
    for module, problem in contents.unclear.items():
        if module in layers:
            raise problem
        contents.leave_out(module)
    settings.require_matchable(len(contents.factors))
    family = _family(contents, layers, checkpoint)
    if settings.init_rank is None:  # AdaLoRA's first rank is that of the largest A
        shapes = [tensors.shape(k["lora_A"]) for k in contents.factors.values() if "lora_A" in k]
        largest = max((shape[0] for shape in shapes if shape), default=0)
        settings = replace(settings, init_rank=float(largest) or None)
    updates, convolutions = _build(family, layers, contents, tensors, settings)
    unused = _unused_targets(updates, contents, settings)
    if updates and unused and len(unused) == len(set(settings.targets)):
        raise ModelError(
            "other-base",
            f"{FILE} and the tensors are of two models: target_modules {name_some(unused)} fit no "
            f"module, the tensors are of {name_some(list(updates))}",
        )
    values = {  # whole matrices; vectors and quantised leftovers are none
        module: build_full_value(name, (ref.shape[0], ref.shape[1]), tensors)
        for module, name in contents.values.items()
        if len((ref := checkpoint.tensors[name]).shape) == 2 and ref.dtype in FLOATS
    }
    method = _method(family, contents, settings)
    return Adapter(
        method=method,
        base_name=settings.base_name,
        modules={module: update.shape for module, update in updates.items()},
        full_values={module: value.names[0] for module, value in values.items()},
        needs_base=frozenset(m for m, u in {**updates, **values}.items() if u.needs_base),
        outside=tuple(contents.left_out),
        notes=_notes(method, updates, convolutions, contents, settings, unused),
        _updates={**values, **updates},
    )


def _family(contents: Contents, layers: frozenset[str], checkpoint: Checkpoint) -> str:
    """The formula that the layers' tensors belong to; "" if no module is left that has factors."""
    families = {
        module: {FAMILIES[kind.split("_")[0]] for kind in kinds if kind != "alpha"}
        for module, kinds in contents.factors.items()
    }
    of_layers = set().union(*(families[module] for module in families if module in layers))
    if len(of_layers) > 1:
        names = " and ".join(sorted(of_layers))
        raise ModelError("unsupported-adapter", f"holds tensors of {names}, expected one method")
    of_all = of_layers or set().union(*families.values())
    for module, own in families.items():
        if len(of_all) > 1 or own != of_all:
            contents.leave_out(module)
    if contents.factors:
        return of_all.pop()
    refused = refused_by_names(name_parts(checkpoint.tensors))
    if refused is not None:
        line = f"tensor names are those of {refused}: {REFUSED[refused]}"
        raise ModelError("unsupported-adapter", line)
    if not checkpoint.tensors:
        raise ModelError("no-weights", "the adapter's weight file holds no tensor")
    if not contents.values and not contents.left_out:
        example = next(iter(checkpoint.tensors))
        line = f"no tensor name is of a known adapter method; the first is {example!r}"
        raise ModelError("unsupported-adapter", line)
    return ""


def _build(
    family: str,
    layers: frozenset[str],
    contents: Contents,
    tensors: Tensors,
    settings: AdapterConfig,
) -> tuple[dict[str, ModuleUpdate], int]:
    scaled = {"lora": build_lora, "loha": build_loha, "lokr": build_lokr}.get(family)
    updates: dict[str, ModuleUpdate] = {}
    for module, kinds in list(contents.factors.items()):
        if any(len(tensors.shape(name)) > 2 for name in kinds.values()):
            continue
        try:
            if scaled is not None:
                updates[module] = scaled(module, kinds, tensors, settings)
            elif family == "vera":
                updates[module] = build_vera(module, kinds, contents.shared, tensors)
            else:
                updates[module] = build_ia3(kinds, tensors)
        except ModelError:
            if module in layers:
                raise
            contents.leave_out(module)
    return updates, len(contents.factors) - len(updates)


def _method(family: str, contents: Contents, settings: AdapterConfig) -> str:
    kinds = {kind for module in contents.factors.values() for kind in module}
    if family != "lora":
        return family or (settings.peft_type or "lora").lower()
    if "lora_E" in kinds:
        return "adalora"
    if "lora_magnitude_vector" in kinds:
        return "dora"
    return settings.start or ("rslora" if settings.rslora else "lora")


def _notes(
    method: str,
    updates: Mapping[str, ModuleUpdate],
    convolutions: int,
    contents: Contents,
    settings: AdapterConfig,
    unused: Sequence[str],
) -> tuple[str, ...]:
    notes = [*settings.notes, *contents.notes]
    stated = settings.peft_type or ""
    fitting = {method, "lora"} if method in LORAS else {method}
    if stated and stated.lower() not in fitting:
        notes.append(f"{FILE} says {name_some([stated])}, the tensors are {method}'s")
    if convolutions:
        notes.append(f"{convolutions} convolutions not read")
    if contents.left_out:
        notes.append(f"not read: {name_some(contents.left_out)}, outside the layers")
    notes.extend(_rank_notes(updates, settings))
    own = any("alpha" in kinds for kinds in contents.factors.values())
    if updates and settings.alpha is None and not own and method not in ("vera", "ia3"):
        notes.append("no alpha is stated: scale 1 was taken, so norms are not comparable")
    patterns = {pattern for pattern, _ in settings.alphas + settings.ranks}
    unmatched = {p for p in patterns if not any(matches(p, module) for module in updates)}
    for what, names in (("patterns", unmatched), ("target_modules", unused)):
        if names:
            notes.append(f"{what} that fit no module: {name_some(sorted(names))}")
    return tuple(notes)


def _unused_targets(
    updates: Mapping[str, ModuleUpdate], contents: Contents, settings: AdapterConfig
) -> list[str]:
    """The `target_modules` that none of the file's modules ends in."""
    unused = set(settings.targets)
    for module in (*updates, *contents.factors, *contents.values, *contents.left_out):
        unused.difference_update(path_ends(module, MAX_PATTERN))
    return sorted(unused)


def _rank_notes(updates: Mapping[str, ModuleUpdate], settings: AdapterConfig) -> Iterator[str]:
    """One sentence where modules have another rank than the config says; the tensors' counts."""
    pairs = [(settings.rank_of(module), update.rank) for module, update in updates.items()]
    known = [(stated, stored) for stated, stored in pairs if stated is not None and stored]
    unequal = sorted({pair for pair in known if pair[0] != pair[1]})
    if unequal:
        stated, stored = unequal[0]
        differing = sum(1 for pair in known if pair[0] != pair[1])
        of_all = f"{differing} of {len(known)} modules"
        yield f"{FILE} says r = {stated:.0f}, the tensors have {stored} ({of_all} differ)"
