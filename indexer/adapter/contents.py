"""An adapter's tensors sorted by module, from their names alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import ModelError
from .names import SHARED, WRAPPER_PREFIX, parse_name

KOHYA_PREFIXES = ("lora_", "lycoris_")
_ASIDE = {
    "bias": "full values of biases",
    "embedding": "updates of embeddings",
    "copy": "untouched copies of replaced modules",
    "frozen": "frozen base_layer weights, taken as the base's",
    "other": "tensors of unknown use",
}


@dataclass(slots=True)
class Contents:
    """What an adapter's file holds.

    Attributes:
        factors: By module, tensor names by factor.
        shared: Factors common to all modules.
        values: By module, the name of a full weight.
    """

    factors: dict[str, dict[str, str]] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    set_aside: Counter[str] = field(default_factory=Counter)
    _owners: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of tensor that is not read."""
        return tuple(
            f"not read: {_ASIDE[kind]} ({count})"
            for kind, count in sorted(self.set_aside.items())
            if kind in _ASIDE
        )

    def add(self, name: str) -> None:
        """Sort in one tensor.

        Raises:
            ModelError: `unsupported-adapter` if its place is taken, its module's name has
                lost its dots, or it belongs to an unknown variant.
        """
        found = parse_name(name)
        if found.kind == "variant":
            raise ModelError(
                "unsupported-adapter",
                f"tensor {name!r} is of a LoRA variant not known here",
            )
        if found.kind == "value":
            if found.wrapped and found.module in self.factors:
                self.set_aside["frozen"] += 1
            elif "modules_to_save" in name or found.module not in self.values:
                self.values[found.module] = name
        elif found.kind in _ASIDE or found.kind == "bookkeeping":
            self.set_aside[found.kind] += 1
        elif found.kind in SHARED:
            self.shared.setdefault(found.kind, name)
        else:
            self._add_factor(name, found.module, found.kind, found.adapter)

    def _add_factor(self, name: str, module: str, kind: str, adapter: str) -> None:
        if "." not in module and module.startswith(KOHYA_PREFIXES):
            raise ModelError(
                "unsupported-adapter",
                f"module name {module!r} has lost its dots, so its place in the model is "
                "not certain; convert it to PEFT's format",
            )
        taken = self.factors.setdefault(module, {}).setdefault(kind, name)
        owner = self._owners.setdefault(module, adapter)
        if owner != adapter:
            raise ModelError(
                "unsupported-adapter",
                f"holds two adapters, {owner!r} and {adapter!r}; save each apart",
            )
        if taken != name or module.split(".")[-1] == "experts":
            raise ModelError(
                "unsupported-adapter",
                f"tensor {name!r}: LoRA on expert parameters has ambiguous names",
            )


def sort_tensors(names: Iterable[str]) -> Contents:
    """The contents; factors first, so that leftovers beside them are known as such.

    Raises:
        ModelError: `unsupported-adapter`.
    """
    contents = Contents()
    ordered = sorted(names, key=lambda name: (parse_name(name).kind == "value", name))
    for name in ordered:
        contents.add(name)
    for module in [m for m, kinds in contents.factors.items() if kinds.keys() == {"alpha"}]:
        del contents.factors[module]
        contents.set_aside["other"] += 1
    return contents


def name_parts(names: Iterable[str]) -> set[str]:
    """Every part of every name, to guess a method from."""
    return {part for name in names for part in WRAPPER_PREFIX.sub("", name).split(".")}
