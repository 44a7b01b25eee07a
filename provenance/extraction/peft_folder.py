"""An adapter's folder as PEFT loads it: settings, tensors, card; a folder that is written whole."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError

from ...errors import ModelError, RequestError, StoreFull
from ...indexer import Key, OpenUpdate, Placement, name_some
from ...store import abandoned
from .other_tensors import OtherTensors, architecture, name_in_memory, saved_modules

WEIGHTS, SETTINGS, CARD = "adapter_model.safetensors", "adapter_config.json", "README.md"

PREFIX = "base_model.model."
"""What PEFT puts before the names of the model that it wraps."""

SMALL_BYTES, NAMED_BYTES = 4096, 256
"""Of card and settings, and of what is said of one tensor beside its name four times, at most."""

_TASKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"(ForSequenceClassification)$", "SEQ_CLS", ("classifier", "score")),
    (r"(ForTokenClassification)$", "TOKEN_CLS", ("classifier", "score")),
    (r"(ForQuestionAnswering)$", "QUESTION_ANS", ("qa_outputs",)),
    (r"(ForCausalLM|LMHeadModel)$", "CAUSAL_LM", ()),
    (r"^(T5|MT5|UMT5|M?Bart|Pegasus|Marian|LED|LongT5).*Generation$", "SEQ_2_SEQ_LM", ()),
    (r"Model$", "FEATURE_EXTRACTION", ()),
)
"""By architecture: PEFT's task, and the modules that PEFT then saves by itself."""

_CARD = """---
{front}library_name: peft
tags: [lora, deltadex]
---

A LoRA adapter extracted by `deltadex extract-adapter` from a full fine-tune. It leaves out
{error:.4f} of the layers' update (relative Frobenius norm); all else is exact.
{notes}
"""


@dataclass(frozen=True)
class PeftAdapter:
    """What an adapter of an open model consists of, beside its factors."""

    update: OpenUpdate
    others: OtherTensors

    @cached_property
    def task(self) -> tuple[str | None, tuple[str, ...]]:
        name = architecture(self.update.member.config)
        fitting = ((task, own) for pattern, task, own in _TASKS if re.search(pattern, name))
        return next(fitting, (None, ()))

    @cached_property
    def module_of(self) -> dict[Key, str]:
        """The path of each layer module that no saved one holds; a `ModelError` if none is left."""
        paths = {p.key: self._path(p) for p in self.update.placed.placements}
        inside = tuple(f"{module}." for module in self.saved)
        left = {key: path for key, path in paths.items() if not f"{path}.".startswith(inside)}
        if not left:
            starts = [f"{path}." for path in self.layers]
            whole = [m for m in self.saved if any(path.startswith(f"{m}.") for path in starts)]
            line = "modules that are saved whole, as other parameters in them changed, hold every "
            line = f"{line}layer ({name_some(whole)}): there is nothing that LoRA could target"
            raise ModelError("unknown-targets", line)
        return left

    @cached_property
    def layers(self) -> frozenset[str]:
        return frozenset(map(self._path, self.update.placed.placements))

    @cached_property
    def biases(self) -> frozenset[str]:
        """Biases of layer modules that changed; a `ModelError` where the base has none."""
        names = {
            name
            for name in self.others.changed
            if name.endswith(".bias") and name.removesuffix(".bias") in self.layers
        }
        if new := sorted(names - self.others.in_base.keys()):
            line = f"the base's layers have no bias {new[0]!r}; LoRA cannot add one"
            raise ModelError("unknown-targets", line)
        return frozenset(names)

    @cached_property
    def saved(self) -> list[str]:
        """The modules that are saved whole."""
        changed = {name for name in self.others.changed - self.biases if "." in name}
        return saved_modules(changed, self.others.stored.keys(), self.task[1])

    def bias_of(self, targets: Collection[Key]) -> Literal["added", "replaced"] | None:
        """How biases are written: as addends where every layer module has one in the base, since
        PEFT merges no other, and all that changed are targets; else in the place of the base's."""
        if not self.biases:
            return None
        own = {f"{self.module_of[key]}.bias" for key in targets}
        every = {f"{module}.bias" for module in self.module_of.values()}
        is_added = self.biases <= own and every <= self.others.in_base.keys()
        return "added" if is_added else "replaced"

    def settings(self, ranks: Mapping[Key, int]) -> bytes:
        """`adapter_config.json`: B A is ΔW as it is, since every alpha is the module's rank."""
        placed, base, bias = self.update.placed.by_key, self.update.weights, self.bias_of(ranks)
        by_module = {self.module_of[key]: rank for key, rank in ranks.items()}
        usual, pattern = rank_pattern(by_module)
        chosen = {
            "alpha_pattern": pattern,
            "base_model_name_or_path": base.name,
            "bias": "all" if bias == "replaced" else "none",
            "fan_in_fan_out": any(placed[key].transposed for key in ranks),
            "inference_mode": True,
            "init_lora_weights": True,
            "lora_alpha": usual,
            "lora_dropout": 0.0,
            "modules_to_save": sorted(self.saved) or None,
            "peft_type": "LORA",
            "r": usual,
            "rank_pattern": pattern,
            "revision": base.revision,
            "target_modules": sorted(by_module),
            "task_type": self.task[0],
            "use_dora": False,
            "use_rslora": False,
            **({"lora_bias": True} if bias == "added" else {}),
        }
        return (json.dumps(chosen, indent=2) + "\n").encode()

    def card(self, error: float) -> bytes:
        name = self.update.base.name
        front = "" if Path(name).is_absolute() else f"base_model: {json.dumps(name)}\n"
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return _CARD.format(front=front, error=error, notes=notes).encode()

    @property
    def notes(self) -> list[str]:
        refs, of_base = self.update.checkpoint.tensors, self.update.weights.checkpoint.tensors
        notes = []
        for name, tensor in sorted(self.others.in_base.items()):
            ours, theirs = refs[self.others.stored[name]].shape, of_base[tensor].shape
            if ours != theirs:
                line = f"{name} is {_sizes(ours)}, in the base {_sizes(theirs)}: bring the base to "
                resize = f"; model.resize_token_embeddings({ours[0]}) does it for embeddings"
                notes.append(f"{line}this shape before PEFT loads the adapter{resize}")
        return notes

    def tensors(
        self, factors: Mapping[Key, tuple[torch.Tensor, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """The tensors of the file, by A (rank, in) and B (out, rank) of its targets."""
        tensors: dict[str, torch.Tensor] = {}
        bias, targets = self.bias_of(factors), {self.module_of[key] for key in factors}
        for key, (a, b) in factors.items():
            path = f"{PREFIX}{self.module_of[key]}"
            tensors |= {f"{path}.lora_A.weight": a, f"{path}.lora_B.weight": b}
            if bias == "added":
                name = f"{self.module_of[key]}.bias"
                of_base = self.update.weights.checkpoint.read(self.others.in_base[name])
                tensors[f"{path}.lora_B.bias"] = self._stored(name).float() - of_base.float()
        for name in sorted(self.biases) if bias == "replaced" else ():
            module = name.removesuffix(".bias")
            owner = f"{module}.base_layer" if module in targets else module
            tensors[f"{PREFIX}{owner}.bias"] = self._stored(name)
        return tensors | {f"{PREFIX}{name}": self._stored(name) for name in self._whole()}

    def _whole(self) -> Iterable[str]:
        """The parameters that are saved whole, but biases of layer modules."""
        inside = tuple(f"{module}." for module in self.saved)
        for name in sorted(self.others.stored):
            if name.startswith(inside) or ("." not in name and name in self.others.changed):
                yield name

    def fixed_bytes(self) -> int:
        """Of the folder without factors, at most."""
        refs = self.update.checkpoint.tensors
        whole = [*self._whole(), *self.biases]
        stored = [refs[self.others.stored[name]] for name in whole]
        values = sum(ref.stop - ref.start for ref in stored)
        # biases are float32 where they are addends, one for each module
        values += 4 * sum(p.shape[0] for p in self.update.placed.placements) if self.biases else 0
        names = [*whole, *self.module_of.values()]
        small = SMALL_BYTES + sum(len(note) for note in self.notes)
        return values + small + sum(NAMED_BYTES + 4 * len(name) for name in names)

    def _path(self, placement: Placement) -> str:
        name = name_in_memory(placement.tensor, self.update.member.config)
        return name.removesuffix(".weight")

    def _stored(self, name: str) -> torch.Tensor:
        """A parameter; a `ModelError` for one with NaN or infinity."""
        stored = self.update.checkpoint.read(self.others.stored[name])
        if not bool(stored.isfinite().all()):
            raise ModelError("non-finite", f"tensor {name!r} holds NaN or infinity")
        return stored.clone()


def _sizes(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def rank_pattern(ranks: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """The usual rank of some modules, and as `rank_pattern` those of the others."""
    usual = max(sorted(set(ranks.values())), key=list(ranks.values()).count)
    # the pattern that fits first counts, and fits every path that ends so
    longest = sorted(ranks, key=lambda module: (-len(module), module))
    others = tuple(module for module in longest if ranks[module] != usual)
    ends = tuple(f".{module}" for module in others)
    return usual, {m: ranks[m] for m in longest if m in others or m.endswith(ends)}


@contextmanager
def new_folder(target: Path, *, replaces: bool) -> Iterator[Path]:
    """A folder to write, which is `target` once the block ended well, and gone if not. `replaces`:
    the adapter that is there; its other files stay.

    Raises:
        RequestError: something is there already, or the folder above is not.
        StoreFull: the system refuses.
    """
    place = Path(os.path.abspath(target.expanduser()))
    with _refused(target):
        _require_room(place, target, replaces=replaces)
        name = f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.partial"
        partial = place.with_name(name)
        for left in abandoned(place.parent, place.name):
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            for file in partial.iterdir():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            if place.is_dir() and any(place.iterdir()):
                for file in sorted(partial.iterdir(), key=lambda file: file.name == SETTINGS):
                    os.replace(file, place / file.name)
            else:
                os.replace(partial, place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _refused(target: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as err:
        raise StoreFull(f"{target}: {err}; nothing was written") from err
    except OSError as err:
        reason = os.strerror(err.errno) if err.errno else str(err)
        more = "; nothing was written" if err.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StoreFull(f"{target}: {reason}{more}") from err


def _require_room(place: Path, target: Path, *, replaces: bool) -> None:
    if not place.parent.is_dir():
        raise RequestError(f"{target.parent}: no such folder; make it first")
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise RequestError(f"{target}: a file is there already; name a folder")
    files = os.listdir(place)
    if files and not (replaces and SETTINGS in files):
        way = "--force replaces no folder without an adapter_config.json" if replaces else ""
        raise RequestError(f"{target}: not empty; {way or '--force replaces the adapter in it'}")
