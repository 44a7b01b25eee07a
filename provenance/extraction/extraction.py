"""A LoRA adapter of a full fine-tune: base + adapter is the model, up to its layers' ranks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ...errors import ModelError, RequestError
from ...indexer import Key, OpenUpdate, Placement, name_some
from ...results import count
from ...store import Track
from .low_rank import FactorCollector, deal_out
from .other_tensors import OtherTensors, architecture, compare_others, name_in_memory, saved_modules
from .peft_folder import CARD, DTYPES, PREFIX, SETTINGS, WEIGHTS, new_folder, rank_pattern

MATRIX_BYTES = 1 << 30
"""Memory for the matrices that are compared at once; one that is larger is compared alone."""

DEFAULT_RANK = 16

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
class Extraction:
    """What an adapter of an open model consists of.

    Attributes:
        dtype: Type of the factors; what is saved whole keeps its own.
    """

    update: OpenUpdate
    others: OtherTensors
    factors: FactorCollector
    dtype: torch.dtype

    @cached_property
    def _task(self) -> tuple[str | None, tuple[str, ...]]:
        name = architecture(self.update.member.config)
        fitting = ((task, own) for pattern, task, own in _TASKS if re.search(pattern, name))
        return next(fitting, (None, ()))

    @cached_property
    def module_of(self) -> dict[Key, str]:
        """The path of every layer module that no saved module holds."""
        paths = {p.key: self._path(p) for p in self.update.placed.placements}
        inside = tuple(f"{module}." for module in self.saved)
        return {key: path for key, path in paths.items() if not f"{path}.".startswith(inside)}

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
        return saved_modules(changed, self.others.stored.keys(), self._task[1])

    def bias_of(self, ranks: Mapping[Key, int]) -> str:
        """How biases are written: as addends (`lora`) where every layer module has one in the base,
        since PEFT merges no other, and all that changed are targets; else in the place of the
        base's (`all`)."""
        if not self.biases:
            return "none"
        targets = {f"{self.module_of[key]}.bias" for key in ranks}
        every = {f"{module}.bias" for module in self.module_of.values()}
        is_added = self.biases <= targets and every <= self.others.in_base.keys()
        return "lora" if is_added else "all"

    def settings(self, ranks: Mapping[Key, int]) -> bytes:
        """`adapter_config.json`: B A is ΔW as it is, since every alpha is the module's rank."""
        placed, base, bias = self.update.placed.by_key, self.update.weights, self.bias_of(ranks)
        by_module = {self.module_of[key]: rank for key, rank in ranks.items()}
        usual, pattern = rank_pattern(by_module)
        chosen = {
            "alpha_pattern": pattern,
            "base_model_name_or_path": base.name,
            "bias": "all" if bias == "all" else "none",
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
            "task_type": self._task[0],
            "use_dora": False,
            "use_rslora": False,
            **({"lora_bias": True} if bias == "lora" else {}),
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

    def tensors(self, ranks: Mapping[Key, int]) -> dict[str, torch.Tensor]:
        """The tensors of the file, for modules of these ranks, each at least 1."""
        tensors: dict[str, torch.Tensor] = {}
        bias = self.bias_of(ranks)
        for key, rank in ranks.items():
            path = f"{PREFIX}{self.module_of[key]}"
            a, b, _ = self.factors.updates[key].factors(rank, self.dtype)
            tensors |= {f"{path}.lora_A.weight": a, f"{path}.lora_B.weight": b}
            if bias == "lora":
                tensors[f"{path}.lora_B.bias"] = self._addend(f"{self.module_of[key]}.bias")
        targets = {self.module_of[key] for key in ranks}
        for name in sorted(self.biases) if bias == "all" else ():
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

    def _addend(self, name: str) -> torch.Tensor:
        base = self.update.weights.checkpoint
        return self._stored(name).float() - base.read(self.others.in_base[name]).float()

    def _stored(self, name: str) -> torch.Tensor:
        """A parameter; a `ModelError` for one with NaN or infinity."""
        stored = self.update.checkpoint.read(self.others.stored[name])
        if not bool(stored.isfinite().all()):
            raise ModelError("non-finite", f"tensor {name!r} holds NaN or infinity")
        return stored.clone()


def extract_adapter(
    update: OpenUpdate,
    target: Path,
    *,
    rank: int | None = None,
    budget: int | None = None,
    dtype: str = "float32",
    replaces: bool = False,
    track: Track,
) -> dict[str, Any]:
    """Write the adapter of an open model into the folder `target`; returns what it consists of.

    Args:
        rank: Of every layer matrix that changed; none where `budget` is given.
        budget: Bytes that the folder may have; ranks are dealt out by energy.

    Raises:
        RequestError: the budget does not hold what is saved whole, or the folder is taken.
        ModelError: what is wrong with the model.
        StoreFull: the system refuses to write.

    Peak: the adapter, and `MATRIX_BYTES` of matrices or the largest one.
    """
    with new_folder(target, replaces=replaces) as partial_folder:
        others = compare_others(update)
        extraction = Extraction(update, others, FactorCollector(), DTYPES[dtype])
        ranks = _measured(extraction, rank, budget, track)
        if not ranks:
            if not others.changed:
                line = "every tensor equals the base's; there is nothing to extract"
                raise ModelError("no-update", line)
            # PEFT wants a target: the smallest, with factors of zeros
            known = extraction.factors.updates.values()
            ranks = {min(known, key=lambda known: sum(known.shape)).key: 1}
        tensors = extraction.tensors(ranks)
        save_file(tensors, partial_folder / WEIGHTS, metadata={"format": "pt"})
        slots, error = _errors(extraction, ranks)
        (partial_folder / SETTINGS).write_bytes(extraction.settings(ranks))
        (partial_folder / CARD).write_bytes(extraction.card(error))
        n_bytes = sum(path.stat().st_size for path in partial_folder.iterdir())
    return {
        "model": update.member.record.id,
        "base": update.base.name,
        "path": str(target),
        "bytes": n_bytes,
        "error": error,
        "dtype": dtype,
        "task": extraction._task[0],
        "saved": extraction.saved,
        "biases": {"none": None, "lora": "added", "all": "replaced"}[extraction.bias_of(ranks)],
        "notes": extraction.notes,
        "slots": slots,
    }


def _measured(
    extraction: Extraction, rank: int | None, budget: int | None, track: Track
) -> dict[Key, int]:
    """Ranks of the modules that get some, in the model's order, once their factors are known."""
    factors, keys = extraction.factors, list(extraction.module_of)
    shapes = {p.key: p.shape for p in extraction.update.placed.placements}
    if not keys:
        paths = [f"{path}." for path in extraction.layers]
        whole = [m for m in extraction.saved if any(path.startswith(f"{m}.") for path in paths)]
        line = "modules that are saved whole, as other parameters in them changed, hold every layer"
        line = f"{line} ({name_some(whole)}): there is nothing that LoRA could target"
        raise ModelError("unknown-targets", line)
    if budget is None:
        factors.ranks = dict.fromkeys(keys, rank or DEFAULT_RANK)
        _collect(extraction, set(keys), track)
        return {
            key: len(factors.updates[key].sigma) for key in keys if factors.updates[key].norm > 0
        }
    width = extraction.dtype.itemsize
    full = {key: min(shapes[key]) for key in keys}
    fixed = extraction.fixed_bytes()
    left = budget - fixed
    cheapest = min(width * sum(shapes[key]) for key in keys)
    if left < cheapest:
        raise RequestError(
            f"--bytes {budget}: {fixed + cheapest} are needed for one rank beside what is saved "
            f"whole, {count(len(extraction.saved), 'module')} such as embeddings, norms and heads"
        )
    limits = {key: min(full[key], left // (width * sum(shapes[key]))) for key in keys}
    even = left // sum(width * sum(shape) for shape in map(shapes.__getitem__, keys))
    # one also where it does not fit: the error of all counts what is left out
    factors.ranks = {key: max(1, min(limit, 2 * even + 8)) for key, limit in limits.items()}
    wanted = set(keys)
    while wanted:
        _collect(extraction, wanted, track)
        ranks = deal_out([factors.updates[key] for key in keys], left, width)
        # the modules that were given every rank that was computed of them
        wanted = {k for k, rank in ranks.items() if rank == factors.ranks[k] < limits[k]}
        doubled = {key: min(limits[key], 2 * factors.ranks[key]) for key in wanted}
        factors.ranks = {**factors.ranks, **doubled}
    return {key: rank for key, rank in ranks.items() if rank}


def _collect(extraction: Extraction, keys: set[Key], track: Track) -> None:
    """Collect the factors of these modules; a `ModelError` for experts that changed."""
    extraction.factors.ticks = iter(track(range(len(keys)), "layer matrices", total=len(keys)))
    extraction.update.collect(extraction.factors, keys)
    for _ in extraction.factors.ticks:
        pass
    placed = extraction.update.placed.by_key
    for known in extraction.factors.updates.values():
        if known.norm > 0 and "expert." in known.key[1]:
            line = f"{placed[known.key].tensor!r} changed: experts of a mixture are no modules that"
            line = f"{line} LoRA of PEFT can target in transformers 5"
            raise ModelError("unknown-targets", line)


def _errors(extraction: Extraction, ranks: Mapping[Key, int]) -> tuple[list[dict[str, Any]], float]:
    """Rank and relative error of every module that changed, and the error of all of them."""
    slots, left, whole = [], 0.0, 0.0
    for key in extraction.module_of:
        known = extraction.factors.updates.get(key)
        if known is None or known.norm == 0:
            continue
        rank = ranks.get(key, 0)
        rounding = known.factors(rank, extraction.dtype)[2] if rank else 0.0
        energy = known.energy_left(rank) + rounding
        left, whole = left + energy, whole + known.norm**2
        slots.append(
            {
                "slot": _label(key),
                "module": extraction.module_of[key],
                "rank": rank,
                "error": math.sqrt(energy) / known.norm,
            }
        )
    return slots, math.sqrt(left / whole) if whole else 0.0


def _label(key: Key) -> str:
    slot, part = key
    if "+" in part:
        return f"{slot.stack}.{slot.layer}.{part}"
    return f"{slot}.{part}" if part else str(slot)


def _sizes(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?b?|b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_bytes(text: str | int) -> int:
    """The bytes that `500000`, `20MB` or `1.5GiB` says, or a `RequestError`."""
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise RequestError(f"bytes {text!r}: expected a size such as 20MB")
    unit = (match[2] or "").lower()
    return int(float(match[1]) * _UNITS[unit.removesuffix("b") if len(unit) > 1 else unit])
