"""What is kept of a base so that its layers are recognised after the residual stream was changed.

Rows of the token embeddings, the *anchors*, lie in the residual stream, as do the rows of q, k, v
and of the feed-forward input. Their inner products, a row's *response* to the anchors, stay the
same under every orthogonal transform of the residual stream, and the order of heads and neurons
only permutes them. Gains of norms are multiplied in, so that folding them changes nothing.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ... import indexer
from ...arrays import Float16, Float32, Int64, Shaped
from ...errors import ModelError

Matrix = Float32[np.ndarray, "_rows _cols"]

HEAD_KINDS = ("q", "k", "v")
NEURON_KINDS, NEURONS = ("up", "gate"), "neurons"
"""Matrices with a row for each neuron, and the kind that the first of them which is there is."""

_ATTENTION_GAINS = ("input_layernorm", "ln_1", "attention_norm")
_FEED_FORWARD_GAINS = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "ffn_norm")
"""Norms before a block, by what transformers calls them: their gains can be folded into it."""

RESPONSE_BYTES = 300_000
"""Of heads, and of neurons, at most, as long as a row of each head has room."""

MOST_ANCHORS, LEAST_ANCHORS, ANCHOR_ENTRIES = 96, 32, 1 << 18
RUN = 8
"""Anchors that are adjacent rows, so that one read brings them."""

FIRST_TOKEN, LAST_TOKEN = 0.02, 0.9
"""Where in the vocabulary anchors are: neither special tokens nor what fills up the matrix."""

MOST_ROWS, MOST_NEURONS = 4, 512
"""Of a head, and of a layer."""


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
    def blocks(self) -> Mapping[str, Mapping[int, indexer.Placement]]:
        """By kind, then layer: the matrices whose stored rows are in the residual stream; of the
        feed-forward block one kind."""
        blocks: dict[str, dict[int, indexer.Placement]] = {}
        for placement in sorted(self._stack, key=lambda p: p.part):
            kind = placement.slot.role
            is_read = placement.shape[1] == self.width and not placement.transposed
            if is_read and kind in (*HEAD_KINDS, *NEURON_KINDS):
                blocks.setdefault(kind, {}).setdefault(placement.slot.layer, placement)
        neurons = [blocks.pop(kind) for kind in NEURON_KINDS if kind in blocks]
        return blocks | ({NEURONS: neurons[0]} if neurons else {})

    def n_parts(self, kind: str, layer: int) -> int:
        """How many heads or neurons a layer's matrix has; 0 where there is none."""
        block = self.blocks[kind].get(layer)
        if block is None or kind == NEURONS:
            return block.shape[0] if block else 0
        attention = indexer.read_attention_config(self.config)
        heads = attention.n_heads if kind == "q" else attention.n_kv_heads
        heads = heads or attention.n_heads or 1
        return heads if block.shape[0] % heads == 0 else 1

    @cached_property
    def embeddings(self) -> str | None:
        """The tensor of the tokens' embeddings, as wide as the stream; None where there is none."""
        ref = indexer.find_embedding(self.checkpoint.tensors, self.config)
        return ref.name if ref is not None and ref.shape[1] == self.width else None

    @property
    def tokens(self) -> int:
        return self.checkpoint.tensors[self.embeddings].shape[0] if self.embeddings else 0

    def anchors(self, rows: Int64[np.ndarray, " anchors"]) -> Matrix:
        return self._read([(str(self.embeddings), int(row)) for row in rows])

    def responses(
        self, kind: str, layer: int, parts: Sequence[int], n_rows: int, anchors: Matrix
    ) -> Float32[np.ndarray, "parts rows anchors"] | None:
        """Those of the first rows of some heads, or of neurons; None where there are no parts, or
        parts have fewer rows."""
        part_rows = self.blocks[kind][layer].shape[0] // self.n_parts(kind, layer) if parts else 0
        if not 0 < n_rows <= part_rows:
            return None
        block = self.blocks[kind][layer]
        start = (block.index or 0) * self.checkpoint.tensors[block.tensor].shape[-2]
        numbers = [part * part_rows + row for part in parts for row in range(n_rows)]
        rows = self._read([(block.tensor, start + block.row_numbers[n]) for n in numbers])
        found = np.asarray((rows * self._gain(kind, layer)) @ anchors.T, np.float32)
        return found.reshape(len(parts), n_rows, len(anchors))

    def _gain(self, kind: str, layer: int) -> Float32[np.ndarray, " width"] | float:
        """What the norm before a block multiplies its input by; 1 where there is none."""
        tensor, number = self.blocks[kind][layer].tensor, f".{layer}."
        start = tensor[: tensor.index(number) + len(number)]
        for norm in _ATTENTION_GAINS if kind in HEAD_KINDS else _FEED_FORWARD_GAINS:
            ref = self.checkpoint.tensors.get(f"{start}{norm}.weight")
            if ref is not None and ref.shape == (self.width,):
                gain: Float32[np.ndarray, " width"] = self._read([(ref.name, 0)])[0]
                model_type = str((self.config or {}).get("model_type", ""))
                return gain + 1 if model_type.startswith("gemma") else gain
        return 1.0

    def _read(self, wanted: Sequence[tuple[str, int]]) -> Matrix:
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


@dataclass(frozen=True, eq=False)
class BaseInvariants:
    """What is kept of one base: the `layers`' numbers, the `anchors` with their `rows`,
    and the `responses` by kind, as `quantise` leaves them, of all heads or the first neurons."""

    layers: tuple[int, ...]
    rows: Int64[np.ndarray, " anchors"]
    anchors: Float16[np.ndarray, "anchors width"]
    responses: Mapping[str, Shaped[np.ndarray, "layers parts rows anchors"]]

    def to_bytes(self) -> bytes:
        own: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        with io.BytesIO() as stream:
            np.savez(stream, **(own | dict(self.responses)))
            packed = stream.getvalue()
        return _digest(packed) + packed

    @classmethod
    def from_bytes(cls, content: bytes) -> BaseInvariants:
        """The same invariants; a `ValueError` where the bytes are not such."""
        if _digest(content[16:]) != content[:16]:
            raise ValueError("no invariants of a base, or of another version")
        with np.load(io.BytesIO(content[16:]), allow_pickle=False) as stored:
            arrays = dict(stored)
        layers, rows, anchors = (arrays.pop(name) for name in _ARRAYS)
        return cls(tuple(layers.tolist()), rows, anchors, arrays)


_ARRAYS = ("layers", "rows", "anchors")


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=16, person=b"invariants 2").digest()


def quantise(vectors: Float32[np.ndarray, "... n"]) -> Shaped[np.ndarray, "... n"]:
    """int8, each vector scaled by its largest entry."""
    largest = np.maximum(np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0), 1e-30)
    return np.asarray(np.round(127 * (vectors / largest)), np.int8)


def choose_anchors(vocabulary: int, width: int) -> Int64[np.ndarray, " anchors"]:
    """Rows in runs of adjacent ones, more of them among the first tokens, which vocabularies that
    are cut keep."""
    n = max(LEAST_ANCHORS, min(MOST_ANCHORS, ANCHOR_ENTRIES // max(width, 1)))
    if vocabulary <= 2 * n:
        return np.arange(min(n, vocabulary), dtype=np.int64)
    starts = np.geomspace(FIRST_TOKEN * vocabulary, LAST_TOKEN * vocabulary - RUN, n // RUN)
    return np.unique(starts.astype(np.int64)[:, None] + np.arange(RUN))


def unit(vectors: Float32[np.ndarray, "... n"]) -> Float32[np.ndarray, "... n"]:
    """Of length 1; a vector of zeros stays."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-30), np.float32)


def make_invariants(model: ModelRows) -> BaseInvariants:
    """What is kept of an opened base, of which some rows are read; a `ModelError` where it has no
    embeddings or no layer matrix to compare.

    Responses are centred; layers without the matrix, and heads that one lacks, are zeros.
    """
    if not model.blocks or model.embeddings is None:
        raise ModelError("no-attention", "no layer matrix reads or writes a residual stream")
    rows = choose_anchors(model.tokens, model.width)
    anchors = model.anchors(rows)
    most = {kind: max(model.n_parts(kind, n) for n in of) for kind, of in model.blocks.items()}
    n_rows, kept = affordable(len(model.layers), len(rows), most)
    responses = {}
    for kind, n_parts in most.items():
        sizes = (min(n_parts, kept), 1) if kind == NEURONS else (n_parts, n_rows)
        of_kind = np.zeros((len(model.layers), *sizes, len(anchors)), np.float32)
        for place, layer in enumerate(model.layers):
            parts = range(min(sizes[0], model.n_parts(kind, layer)))
            found = model.responses(kind, layer, parts, sizes[1], anchors)
            if found is not None:
                of_kind[place, : len(parts)] = found
        responses[kind] = quantise(of_kind - of_kind.mean(axis=-1, keepdims=True))
    return BaseInvariants(model.layers, rows, anchors.astype(np.float16), responses)


def affordable(n_layers: int, n_anchors: int, parts: Mapping[str, int]) -> tuple[int, int]:
    """Rows of a head and neurons of a layer that `RESPONSE_BYTES` each hold."""
    n_heads = sum(n for kind, n in parts.items() if kind != NEURONS)
    most = RESPONSE_BYTES // (n_layers * max(1, n_anchors))
    return max(1, min(MOST_ROWS, most // max(1, n_heads))), min(most, MOST_NEURONS)
