"""A LoRA adapter of a full fine-tune: base + adapter is the model, up to its layers' ranks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from ...errors import ModelError, RequestError
from ...indexer import Key, OpenUpdate, Placement, blocks_of
from .low_rank import FactorSpool, ModuleUpdate, deal_out
from .other_tensors import (
    OtherTensors,
    architecture,
    compare_others,
    finite,
    name_in_memory,
    saved_modules,
)
from .peft_folder import (
    CARD,
    CODES,
    DTYPES,
    PREFIX,
    SETTINGS,
    WEIGHTS,
    Entry,
    folder_bytes,
    header,
    new_folder,
    settings,
    write_weights,
)

Track = Callable[..., Iterator[object]]

MATRIX_BYTES = 1 << 30
"""Memory for the matrices that are compared at once; one that is larger is compared alone."""

DEFAULT_RANK = 16

PATTERN_BYTES = 64
"""What a module adds at most to the settings, beside its name twice, where its rank is its own."""

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
    spool: FactorSpool
    dtype: torch.dtype

    @cached_property
    def _task(self) -> tuple[str | None, tuple[str, ...]]:
        name = architecture(self.update.member.config)
        fitting = (rest for pattern, *rest in _TASKS if re.search(pattern, name))
        task, always = next(fitting, (None, ()))
        return task, always  # type: ignore[return-value]

    @cached_property
    def module_of(self) -> dict[Key, str]:
        """The path of every layer module that no saved module holds."""
        paths = {p.key: self._path(p) for p in self.update.placed.placements}
        inside = tuple(f"{module}." for module in self.saved)
        return {
            key: path
            for key, path in paths.items()
            if path not in self.saved and not path.startswith(inside)
        }

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
        placed = {p.key: p for p in self.update.placed.placements}
        base = self.update.weights
        chosen = settings(
            {self.module_of[key]: rank for key, rank in ranks.items()},
            base=base.name,
            revision=base.revision,
            task=self._task[0],
            saved=self.saved,
            is_conv1d=any(placed[key].transposed for key in ranks),
            bias=self.bias_of(ranks),
        )
        return (json.dumps(chosen, indent=2) + "\n").encode()

    def card(self, error: float) -> bytes:
        name = self.update.base.name
        front = "" if Path(name).is_absolute() else f"base_model: {json.dumps(name)}\n"
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return _CARD.format(front=front, error=error, notes=notes).encode()

    @property
    def notes(self) -> list[str]:
        shapes = self.update.checkpoint.tensors
        notes = []
        for name in sorted(self.others.reshaped):
            ours = shapes[self.others.stored[name]].shape
            theirs = self.update.weights.checkpoint.tensors[self.others.in_base[name]].shape
            line = f"{name} is {_sizes(ours)}, in the base {_sizes(theirs)}: bring the base to "
            resize = f"; model.resize_token_embeddings({ours[0]}) does it for embeddings"
            notes.append(f"{line}this shape before PEFT loads the adapter{resize}")
        return notes

    def entries(self, ranks: Mapping[Key, int]) -> Iterator[Entry]:
        """The tensors of the file, for modules of these ranks, each at least 1."""
        size, code = self.dtype.itemsize, CODES[self.dtype]
        known = self.spool.updates
        bias = self.bias_of(ranks)
        for key, rank in ranks.items():
            path = f"{PREFIX}{self.module_of[key]}"
            n_out, n_in = self.shapes[key]
            for name, shape, which in (("A", (rank, n_in), 0), ("B", (n_out, rank), 1)):
                blocks = partial(self._factor, known.get(key), rank, which)
                n_bytes = size * math.prod(shape)
                yield Entry(f"{path}.lora_{name}.weight", code, shape, n_bytes, blocks)
            if bias == "lora":
                blocks = partial(self._addend, f"{self.module_of[key]}.bias")
                yield Entry(f"{path}.lora_B.bias", "F32", (n_out,), 4 * n_out, blocks)
        targets = {self.module_of[key] for key in ranks}
        for name in sorted(self.biases) if bias == "all" else ():
            module = name.removesuffix(".bias")
            owner = f"{module}.base_layer" if module in targets else module
            yield self._stored(f"{PREFIX}{owner}.bias", name)
        inside = tuple(f"{module}." for module in self.saved)
        for name in sorted(self.others.stored):
            is_alone = "." not in name and name in self.others.changed
            if is_alone or (inside and name.startswith(inside)):
                yield self._stored(f"{PREFIX}{name}", name)

    @cached_property
    def shapes(self) -> dict[Key, tuple[int, int]]:
        return {p.key: p.shape for p in self.update.placed.placements}

    def size(self, ranks: Mapping[Key, int]) -> int:
        """Bytes of the folder."""
        entries = list(self.entries(ranks))
        small = len(header(entries)) + len(self.settings(ranks)) + len(self.card(0.0))
        return small + sum(entry.size for entry in entries)

    def _path(self, placement: Placement) -> str:
        name = name_in_memory(placement.tensor, self.update.member.config)
        return name.removesuffix(".weight")

    def _factor(self, update: ModuleUpdate | None, rank: int, which: int) -> Iterator[torch.Tensor]:
        assert update is not None
        a, b, _ = self.spool.factors(update, rank, self.dtype)
        yield (a, b)[which]

    def _addend(self, name: str) -> Iterator[torch.Tensor]:
        base = self.update.weights.checkpoint
        ours = self.update.checkpoint.read(self.others.stored[name])
        addend = ours.float() - base.read(self.others.in_base[name]).float()
        yield from finite(iter([addend]), name)

    def _stored(self, written: str, name: str) -> Entry:
        tensor = self.others.stored[name]
        ref = self.update.checkpoint.tensors[tensor]

        def blocks() -> Iterator[torch.Tensor]:
            stored = blocks_of(self.update.checkpoint, tensor)
            return finite(stored, name) if ref.dtype in CODES.values() else stored

        return Entry(written, ref.dtype, ref.shape, ref.stop - ref.start, blocks)


def extract_adapter(
    update: OpenUpdate,
    target: Path,
    *,
    rank: int | None = None,
    budget: int | None = None,
    dtype: str = "float32",
    replaces: bool = False,
    track: Track | None = None,
) -> dict[str, Any]:
    """Write the adapter of an open model into the folder `target`; returns what it consists of.

    Args:
        rank: Of every layer matrix that changed; none where `budget` is given.
        budget: Bytes that the folder may have; ranks are dealt out by energy.
        track: Shows the progress over layer matrices.

    Raises:
        RequestError: the budget does not hold what is saved whole, or the folder is taken.
        ModelError: what is wrong with the model.
        StoreFull: the system refuses to write.

    Peak: `MATRIX_BYTES` of matrices or the largest one, their factors, a block of any other tensor.
    """
    with new_folder(target, replaces=replaces) as partial_folder:
        others = compare_others(update)
        scratch = partial_folder / "factors"
        with scratch.open("w+b") as file:
            extraction = Extraction(update, others, FactorSpool(file), DTYPES[dtype])
            ranks = _measured(extraction, rank, budget, track)
            known = extraction.spool.updates.values()
            if not ranks:
                if not others.changed:
                    line = "every tensor equals the base's; there is nothing to extract"
                    raise ModelError("no-update", line)
                # PEFT wants a target: the smallest, with factors of zeros
                ranks = {min(known, key=lambda known: sum(known.shape)).key: 1}
            write_weights(partial_folder / WEIGHTS, extraction.entries(ranks))
            slots, error = _errors(extraction, ranks)
        scratch.unlink()
        (partial_folder / SETTINGS).write_bytes(extraction.settings(ranks))
        (partial_folder / CARD).write_bytes(extraction.card(error))
        n_bytes = folder_bytes(partial_folder)
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
    extraction: Extraction, rank: int | None, budget: int | None, track: Track | None
) -> dict[Key, int]:
    """Ranks of the modules that get some, in the model's order, with their factors in the spool."""
    spool, shapes = extraction.spool, extraction.shapes
    keys = list(extraction.module_of)
    if not keys:
        line = f"the module {extraction.saved[0]!r} changed, and holds every layer"
        raise ModelError("unknown-targets", f"{line}: there is nothing that LoRA could target")
    if budget is None:
        spool.ranks = dict.fromkeys(keys, rank or DEFAULT_RANK)
        _collect(extraction, set(keys), track)
        return {key: len(spool.updates[key].sigma) for key in keys if spool.updates[key].norm > 0}
    width = extraction.dtype.itemsize
    full = {key: min(shapes[key]) for key in keys}
    factor_bytes = sum(width * full[key] * sum(shapes[key]) for key in keys)
    patterns = sum(2 * len(path) + PATTERN_BYTES for path in extraction.module_of.values())
    fixed = extraction.size(full) - factor_bytes + patterns
    left = budget - fixed
    cheapest = min(width * sum(shapes[key]) for key in keys)
    if left < cheapest:
        raise RequestError(
            f"--bytes {budget}: {fixed + cheapest} are needed for one rank beside what is saved "
            f"whole, {len(extraction.saved)} modules such as embeddings, norms and heads"
        )
    limits = {key: min(full[key], left // (width * sum(shapes[key]))) for key in keys}
    even = left // sum(width * sum(shape) for shape in map(shapes.__getitem__, keys))
    # one also where it does not fit: the error of all counts what is left out
    spool.ranks = {key: max(1, min(limit, 2 * even + 8)) for key, limit in limits.items()}
    wanted = set(keys)
    while wanted:
        _collect(extraction, wanted, track)
        ranks = deal_out([spool.updates[key] for key in keys], left, width)
        wanted = {key for key in spool.saturated(ranks) if spool.ranks[key] < limits[key]}
        doubled = {key: min(limits[key], 2 * spool.ranks[key]) for key in wanted}
        spool.ranks = {**spool.ranks, **doubled}
    return {key: rank for key, rank in ranks.items() if rank}


def _collect(extraction: Extraction, keys: set[Key], track: Track | None) -> None:
    """Factors of these modules into the spool; a `ModelError` for experts that changed."""
    if track is not None:
        extraction.spool.ticks = iter(track(range(len(keys)), "layer matrices", total=len(keys)))
    extraction.update.collect(extraction.spool, keys)
    for _ in extraction.spool.ticks:
        pass
    tensors = {p.key: p.tensor for p in extraction.update.placed.placements}
    for known in extraction.spool.updates.values():
        if known.norm > 0 and "expert." in known.key[1]:
            line = f"{tensors[known.key]!r} changed: experts of a mixture are no modules that LoRA"
            raise ModelError("unknown-targets", f"{line} of PEFT can target in transformers 5")


def _errors(extraction: Extraction, ranks: Mapping[Key, int]) -> tuple[list[dict[str, Any]], float]:
    """Rank and relative error of every module that changed, and the error of all of them."""
    slots, left, whole = [], 0.0, 0.0
    for key in extraction.module_of:
        known = extraction.spool.updates.get(key)
        if known is None or known.norm == 0:
            continue
        rank = ranks.get(key, 0)
        rounding = extraction.spool.factors(known, rank, extraction.dtype)[2] if rank else 0.0
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
