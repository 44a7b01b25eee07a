"""Some rows of an opened model, by the part of a layer that they belong to.

Rows of q, k, v and of the feed-forward input, as stored, are vectors of the residual stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ... import indexer
from ...arrays import Float32

Matrix = Float32[np.ndarray, "_rows _cols"]

HEAD_KINDS = ("q", "k", "v")
NEURON_KINDS, NEURONS = ("up", "gate"), "neurons"
"""Matrices with a row for each neuron, and the kind that the first of them which is there is."""

_ATTENTION_GAINS = ("input_layernorm", "ln_1", "attention_norm")
_FEED_FORWARD_GAINS = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "ffn_norm")
"""Norms before a block, by what transformers calls them: their gains can be folded into it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One layer's matrix of a kind: `parts`, heads or neurons, of `part_rows` rows each."""

    placement: indexer.Placement
    parts: int
    part_rows: int


@dataclass(eq=False)
class ModelRows:
    """Rows of a checkpoint, each read once."""

    checkpoint: indexer.Checkpoint
    placed: indexer.PlacedModel
    config: indexer.Config | None = None
    _rows: dict[tuple[str, int], Float32[np.ndarray, " cols"]] = field(default_factory=dict)

    @cached_property
    def _stack(self) -> Sequence[indexer.Placement]:
        """The matrices of the stack that has most; a model's layers are numbered within it."""
        counts = Counter(p.slot.stack for p in self.placed.placements)
        largest = max(sorted(counts), key=counts.__getitem__)
        return [p for p in self.placed.placements if p.slot.stack == largest]

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return tuple(sorted({p.slot.layer for p in self._stack}))

    @cached_property
    def width(self) -> int:
        """Of the residual stream: the side that most matrices of the stack share."""
        sides = Counter(p.shape[0 if p.slot.role in ("o", "down") else 1] for p in self._stack)
        return max(sorted(sides), key=sides.__getitem__)

    @cached_property
    def blocks(self) -> Mapping[str, Mapping[int, Block]]:
        """By kind, then layer: the matrices whose stored rows are in the residual stream; of the
        feed-forward block one kind."""
        blocks: dict[str, dict[int, Block]] = {}
        for placement in sorted(self._stack, key=lambda p: p.part):
            kind = placement.slot.role
            if placement.shape[1] != self.width or placement.transposed:
                continue
            if kind in (*HEAD_KINDS, *NEURON_KINDS):
                parts = self._parts(kind, placement.shape[0])
                block = Block(placement, parts, placement.shape[0] // parts)
                blocks.setdefault(kind, {}).setdefault(placement.slot.layer, block)
        neurons = [blocks.pop(kind) for kind in NEURON_KINDS if kind in blocks]
        return blocks | ({NEURONS: neurons[0]} if neurons else {})

    def _parts(self, kind: str, rows: int) -> int:
        if kind in NEURON_KINDS:
            return rows
        attention = indexer.read_attention_config(self.config)
        heads = attention.n_heads if kind == "q" else attention.n_kv_heads
        heads = heads or attention.n_heads or 1
        return heads if rows % heads == 0 else 1

    @cached_property
    def embeddings(self) -> str | None:
        """The tensor of the tokens' embeddings, as wide as the stream; None where there is none."""
        ref = indexer.find_embedding(self.checkpoint.tensors, self.config)
        return ref.name if ref is not None and ref.shape[1] == self.width else None

    @property
    def tokens(self) -> int:
        return self.checkpoint.tensors[self.embeddings].shape[0] if self.embeddings else 0

    def gain(self, kind: str, layer: int) -> Float32[np.ndarray, " width"] | float:
        """What the norm before a block multiplies its input by; 1 where there is none."""
        tensor, number = self.blocks[kind][layer].placement.tensor, f".{layer}."
        start = tensor[: tensor.index(number) + len(number)]
        for norm in _ATTENTION_GAINS if kind in HEAD_KINDS else _FEED_FORWARD_GAINS:
            ref = self.checkpoint.tensors.get(f"{start}{norm}.weight")
            if ref is not None and ref.shape == (self.width,):
                gain: Float32[np.ndarray, " width"] = self.read([(ref.name, 0)])[0]
                model_type = str((self.config or {}).get("model_type", ""))
                return gain + 1 if model_type.startswith("gemma") else gain
        return 1.0

    def part(self, kind: str, layer: int, part: int, n_rows: int) -> list[tuple[str, int]]:
        """The (tensor, stored row) of the first rows of a head, or a neuron's."""
        block = self.blocks[kind][layer]
        placement, first = block.placement, part * block.part_rows
        rows = range(first, first + min(n_rows, block.part_rows))
        start = (placement.index or 0) * self.checkpoint.tensors[placement.tensor].shape[-2]
        return [(placement.tensor, start + placement.row_numbers[row]) for row in rows]

    def read(self, wanted: Sequence[tuple[str, int]]) -> Matrix:
        """The rows in this order, float32, zeros for what is no number; adjacent ones are read
        together."""
        missing = sorted({key for key in wanted if key not in self._rows})
        runs: list[indexer.RowBlock] = []
        for name, row in missing:
            start = row
            if runs and runs[-1].tensor == name and runs[-1].stop == row:
                start = runs.pop().start
            runs.append(indexer.RowBlock(name, start, row + 1))
        for run, rows in self.checkpoint.stream_rows(runs):
            values = np.nan_to_num(rows.float().numpy(), posinf=0.0, neginf=0.0)
            for row, vector in zip(range(run.start, run.stop), values, strict=True):
                self._rows[run.tensor, row] = vector
        return np.stack([self._rows[key] for key in wanted])
