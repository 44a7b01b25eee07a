"""Some rows of an opened model, by the part of a layer that they belong to; a budget of bytes.

Rows are vectors of the residual stream: of q, k, v and of the feed-forward input as stored, or, in
models that store matrices in × out, of what o and the feed-forward output write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...arrays import Float32
from ...errors import ModelError
from ...indexer import Checkpoint, Config, PlacedModel, Placement, RowBlock, read_attention_config
from .vocabulary import Vocabulary

Matrix = Float32[np.ndarray, "_rows _cols"]

HEAD_KINDS = ("q", "k", "v", "o")
NEURON_KINDS = ("up", "gate", "down")

READ_SHARE = 0.01
LEAST_BUDGET = 256 << 10
"""Bytes that may be read of a model: this share of its own, and of a small one so many."""

_ATTENTION_GAINS = ("input_layernorm", "ln_1", "attention_norm")
_FEED_FORWARD_GAINS = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "ffn_norm")
"""Norms before a block, by what transformers calls them: their gains can be folded into it."""

_TOKENS = re.compile(r"embed|wte|tok", re.IGNORECASE)
_POSITIONS = re.compile(r"pos|wpe", re.IGNORECASE)
_NO_TOKENS = re.compile(r"type|lm_head", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer's matrix of a kind. `heads`: runs of rows of equal length; 1 for neurons."""

    placement: Placement
    heads: int
    rows: int

    @property
    def head_rows(self) -> int:
        return self.rows // self.heads


@dataclass(frozen=True, eq=False)
class OpenedWeights:
    """A checkpoint, what is placed of it, and its vocabulary, which is read when rows by number do
    not agree; None where no tokenizer is there."""

    checkpoint: Checkpoint
    placed: PlacedModel
    config: Config | None = None
    read_vocabulary: Callable[[], Vocabulary | None] = lambda: None


@dataclass(eq=False)
class ModelRows:
    """Rows of a model, each read once; `budget`: bytes that may be read, None for any number."""

    weights: OpenedWeights
    budget: int | None = None
    bytes_read: int = 0
    _rows: dict[tuple[str, int], Float32[np.ndarray, " cols"]] = field(default_factory=dict)

    @cached_property
    def stack(self) -> str:
        """The stack with most matrices; a model's layers are numbered within it."""
        counts = Counter(p.slot.stack for p in self.weights.placed.placements)
        return max(sorted(counts), key=counts.__getitem__)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        slots = (p.slot for p in self.weights.placed.placements)
        return tuple(sorted({slot.layer for slot in slots if slot.stack == self.stack}))

    @cached_property
    def width(self) -> int:
        """Of the residual stream: the side that most matrices of the stack share."""
        sides: Counter[int] = Counter()
        for placement in self.weights.placed.placements:
            if placement.slot.stack == self.stack:
                side = 0 if placement.slot.role in ("o", "down") else 1
                sides[placement.shape[side]] += 1
        return max(sorted(sides), key=sides.__getitem__)

    @cached_property
    def blocks(self) -> Mapping[str, Mapping[int, Block]]:
        """By kind, then layer: the matrices whose stored rows are in the residual stream."""
        blocks: dict[str, dict[int, Block]] = {}
        attention = read_attention_config(self.weights.config)
        for placement in sorted(self.weights.placed.placements, key=lambda p: p.part):
            kind, layer = placement.slot.role, placement.slot.layer
            writes = kind in ("o", "down")
            rows, width = placement.shape[::-1] if writes else placement.shape
            usable = kind in (*HEAD_KINDS, *NEURON_KINDS) and width == self.width
            if placement.slot.stack != self.stack or not usable or writes != placement.transposed:
                continue
            if placement.transposed and placement.rows is not None:
                continue
            heads = attention.n_heads if kind in ("q", "o") else attention.n_kv_heads
            heads = (heads or attention.n_heads or 1) if kind in HEAD_KINDS else 1
            block = Block(placement, heads if rows % heads == 0 else 1, rows)
            blocks.setdefault(kind, {}).setdefault(layer, block)
        if "up" in blocks:
            blocks.pop("gate", None)
        return blocks

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """The row of each token; empty where no tokenizer is there."""
        vocabulary = self.weights.read_vocabulary()
        if vocabulary is None:
            return {}
        self.bytes_read += vocabulary.n_bytes
        return vocabulary.rows

    @property
    def neurons(self) -> str | None:
        """The kind whose rows are one for each neuron."""
        return next((kind for kind in NEURON_KINDS if kind in self.blocks), None)

    @cached_property
    def embeddings(self) -> str | None:
        """The tensor of the tokens' embeddings, else of positions; None where neither is there."""
        inside = {p.tensor for p in self.weights.placed.placements}
        outside = {
            name: ref.shape[0]
            for name, ref in self.weights.checkpoint.tensors.items()
            if len(ref.shape) == 2 and ref.shape[1] == self.width and name not in inside
        }
        names = [name for name in outside if _TOKENS.search(name) and not _NO_TOKENS.search(name)]
        tokens = [name for name in names if not _POSITIONS.search(name)]
        choice = tokens or [name for name in outside if _POSITIONS.search(name)]
        return max(sorted(choice), key=outside.__getitem__, default=None)

    @property
    def tokens(self) -> int:
        name = self.embeddings
        return 0 if name is None else self.weights.checkpoint.tensors[name].shape[0]

    def gain(self, kind: str, layer: int) -> Float32[np.ndarray, " width"] | float:
        """What the norm before a block multiplies its input by; 1 where there is none."""
        tensor = self.blocks[kind][layer].placement.tensor
        number = f".{layer}."
        start = tensor[: tensor.index(number) + len(number)]
        norms = _ATTENTION_GAINS if kind in ("q", "k", "v") else _FEED_FORWARD_GAINS
        for norm in norms if kind not in ("o", "down") else ():
            ref = self.weights.checkpoint.tensors.get(f"{start}{norm}.weight")
            if ref is not None and ref.shape == (self.width,):
                gain: Float32[np.ndarray, " width"] = self.read([(ref.name, 0)])[0]
                model_type = str((self.weights.config or {}).get("model_type", ""))
                return gain + 1 if model_type.startswith("gemma") else gain
        return 1.0

    def forget(self) -> None:
        """Drop the rows that are held; they are read again where they are wanted."""
        self._rows.clear()

    def cost(self, wanted: Iterable[tuple[str, int]]) -> int:
        """Bytes of the (tensor, row) that are still to be read."""
        tensors = self.weights.checkpoint.tensors
        total = 0.0
        for name, row in wanted:
            if (name, row) not in self._rows:
                ref = tensors[name]
                rows = int(np.prod(ref.shape[:-1], dtype=np.int64))
                total += (ref.stop - ref.start) / max(1, rows)
        return int(total)

    def fits(self, wanted: Iterable[tuple[str, int]]) -> bool:
        return self.budget is None or self.bytes_read + self.cost(wanted) <= self.budget

    def stored(self, block: Block, rows: Iterable[int]) -> list[tuple[str, int]]:
        """The (tensor, stored row) of some rows of a block."""
        placement = block.placement
        n_rows = self.weights.checkpoint.tensors[placement.tensor].shape[-2]
        first = (placement.index or 0) * n_rows
        if placement.rows is None or placement.transposed:
            return [(placement.tensor, first + row) for row in rows]
        own = range(n_rows)[placement.rows] if isinstance(placement.rows, slice) else placement.rows
        return [(placement.tensor, first + own[row]) for row in rows]

    def read(self, wanted: Sequence[tuple[str, int]]) -> Matrix:
        """The rows in this order, float32; adjacent ones are read together."""
        missing = sorted({key for key in wanted if key not in self._rows})
        self.bytes_read += self.cost(missing)
        runs: list[RowBlock] = []
        for name, row in missing:
            if runs and runs[-1].tensor == name and runs[-1].stop == row:
                runs[-1] = RowBlock(name, runs[-1].start, row + 1)
            else:
                runs.append(RowBlock(name, row, row + 1))
        for run, rows in self.weights.checkpoint.stream_rows(runs):
            values = rows.float().numpy()
            if not np.isfinite(values).all():
                line = f"tensor {run.tensor!r} has entries that are no numbers"
                raise ModelError("non-finite", line)
            for row, vector in zip(range(run.start, run.stop), values, strict=True):
                self._rows[run.tensor, row] = vector
        return np.stack([self._rows[key] for key in wanted])

    def head_rows(self, kind: str, layer: int, head: int, n_rows: int) -> list[tuple[str, int]]:
        """The first rows of a head."""
        block = self.blocks[kind][layer]
        first = head * block.head_rows
        return self.stored(block, range(first, first + min(n_rows, block.head_rows)))

    def neuron_rows(self, layer: int, n_rows: int) -> list[tuple[str, int]]:
        """The first neurons of a layer."""
        assert self.neurons is not None
        block = self.blocks[self.neurons][layer]
        return self.stored(block, range(min(n_rows, block.rows)))
