"""An adapter's tensors sorted by module and factor, from their names alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import ModelError

WRAPPER_PREFIX = re.compile(
    r"^(?:(?:module\.|_orig_mod\.|_fsdp_wrapped_module\.)*base_model\.model\.)+"
)
WRAPPERS = ("base_layer", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
FACTOR = re.compile(
    r"lora_([ABE]|magnitude_vector)|alpha|hada_(w[12]_[ab]|t[12])|lokr_(w[12](_[ab])?|t2)|ia3_l"
    r"|vera_(lambda_[bd]|[AB])"
)
"""A part of a name that says which factor the tensor is."""

SPELLINGS = {"lora_down": "lora_A", "lora_up": "lora_B"}
"""The same factors as kohya's scripts call them."""

SHARED = ("vera_A", "vera_B")
"""Factors stored once for all modules."""

SET_ASIDE = {
    "lora_embedding_A": "embedding",
    "lora_embedding_B": "embedding",
    "trainable_tokens_delta": "embedding",
    "trainable_tokens_original": "embedding",
    "ranknum": "bookkeeping",
    "original_module": "copy",
}
"""A name's part, and why its tensor is no part of a layer matrix's update."""

KOHYA_PREFIXES = ("lora_", "lycoris_")

_ASIDE = {
    "bias": "full values of biases",
    "embedding": "updates of embeddings",
    "copy": "untouched copies of replaced modules",
    "frozen": "frozen base_layer weights, taken as the base's",
    "other": "tensors of unknown use",
}


@dataclass(frozen=True, slots=True)
class TensorName:
    """The parts of an adapter tensor's name.

    Attributes:
        module: Path in the model that the user wrapped, without any wrapper's parts.
        kind: A `FACTOR`, or a value of `SET_ASIDE`; else `value` (a full `.weight`),
            `bias`, `variant` (a LoRA tensor of unknown use) or `other`.
        adapter: The adapter's own name where it was left in, else "".
        wrapped: Whether it is inside `base_layer`, which PEFT freezes.
    """

    module: str
    kind: str
    adapter: str
    wrapped: bool


def parse_name(name: str) -> TensorName:
    """The parts of one tensor's name; never fails."""
    parts = WRAPPER_PREFIX.sub("", name).split(".")
    wrapped = "base_layer" in parts
    for index in reversed(range(len(parts))):
        part = parts[index]
        if part in SET_ASIDE:
            return TensorName(_module(parts[:index]), SET_ASIDE[part], "", wrapped)
        kind = SPELLINGS.get(part, part)
        if not FACTOR.fullmatch(kind) or (kind == "alpha" and index + 1 < len(parts)):
            continue
        if parts[-1] == "bias":
            kind = "bias"
        module = "" if kind in SHARED else _module(parts[:index])
        tail = [p for p in parts[index + 1 :] if p != "weight"]
        return TensorName(module, kind, ".".join(tail), wrapped)
    kind = {"weight": "value", "bias": "bias"}.get(parts[-1], "other")
    if any(part.startswith("lora_") for part in parts):
        kind = "variant"
    return TensorName(_module(parts[:-1]), kind, "", wrapped)


def _module(parts: list[str]) -> str:
    """The path without wrappers; after `modules_to_save` comes an adapter's name."""
    path, skip = [], False
    for part in parts:
        if not skip and part not in WRAPPERS and part != "modules_to_save":
            path.append(part)
        skip = part == "modules_to_save"
    return ".".join(path)


@dataclass(slots=True)
class Contents:
    """What an adapter's file holds.

    Attributes:
        factors: By module, tensor names by factor.
        shared: Factors common to all modules.
        values: By module, the name of a full weight.
        unclear: By module, why the names of its tensors have no certain meaning.
        left_out: Modules that were taken out of `factors`.
    """

    factors: dict[str, dict[str, str]] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, ModelError] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
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
        """Add a tensor; its module becomes unclear where its place is taken.

        Raises:
            ModelError: the name has lost the module's path.
        """
        parsed = parse_name(name)
        module, kind = parsed.module, parsed.kind
        if kind == "variant":
            self._make_unclear(module, f"tensor {name!r} is of a LoRA variant not known here")
        elif kind == "value":
            if parsed.wrapped and module in self.factors:
                self.set_aside["frozen"] += 1
            elif "modules_to_save" in name or module not in self.values:
                self.values[module] = name
        elif kind in _ASIDE or kind == "bookkeeping":
            self.set_aside[kind] += 1
        elif kind in SHARED:
            self.shared.setdefault(kind, name)
        else:
            self._add_factor(name, parsed)

    def leave_out(self, module: str) -> None:
        """Take a module's factors out."""
        self.factors.pop(module, None)
        self.left_out.append(module)

    def _add_factor(self, name: str, parsed: TensorName) -> None:
        module = parsed.module
        if "." not in module and module.startswith(KOHYA_PREFIXES):
            raise _unsupported(
                f"module name {module!r} has lost its dots, so its place in the model is "
                "not certain; convert it to PEFT's format"
            )
        taken = self.factors.setdefault(module, {}).setdefault(parsed.kind, name)
        owner = self._owners.setdefault(module, parsed.adapter)
        if owner != parsed.adapter:
            line = f"holds two adapters, {owner!r} and {parsed.adapter!r}; save each apart"
            self._make_unclear(module, line)
        elif module.split(".")[-1] == "experts":
            line = f"tensor {name!r}: LoRA on expert parameters has ambiguous names"
            self._make_unclear(module, line)
        elif taken != name:
            line = f"tensors {taken!r} and {name!r} are the same factor of one module"
            self._make_unclear(module, line)

    def _make_unclear(self, module: str, line: str) -> None:
        self.unclear.setdefault(module, _unsupported(line))


def _unsupported(line: str) -> ModelError:
    return ModelError("unsupported-adapter", line)


def sort_tensors(names: Iterable[str]) -> Contents:
    """The contents; factors first, so that leftovers beside them are known as such."""
    contents = Contents()
    for name in sorted(names, key=lambda name: (parse_name(name).kind == "value", name)):
        contents.add(name)
    for module in [m for m, kinds in contents.factors.items() if kinds.keys() == {"alpha"}]:
        del contents.factors[module]
        contents.set_aside["other"] += 1
    return contents


def name_parts(names: Iterable[str]) -> set[str]:
    """Every part of every name, to guess a method from."""
    return {part for name in names for part in WRAPPER_PREFIX.sub("", name).split(".")}
