"""What is kept of a base so that its layers are recognised after the residual stream was changed.

Rows of the token embeddings, the *anchors*, lie in the residual stream, as do the rows of q, k, v
and of the feed-forward input. Their inner products, a row's *response* to the anchors, stay the
same under every orthogonal transform of the residual stream, and the order of heads and neurons
only permutes them. Gains of norms are multiplied in, so that folding them changes nothing.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import Float16, Float32, Int64, Shaped
from ...errors import ModelError
from .model_rows import NEURONS, Matrix, ModelRows

RESPONSE_BYTES = 300_000
"""Of heads, and of neurons, at most, as long as a row of each head has room."""

MOST_ANCHORS, LEAST_ANCHORS, ANCHOR_ENTRIES = 96, 32, 1 << 18
RUN = 8
"""Anchors that are adjacent rows, so that one read brings them."""

FIRST_TOKEN, LAST_TOKEN = 0.02, 0.9
"""Where in the vocabulary anchors are: neither special tokens nor what fills up the matrix."""

MOST_ROWS, MOST_NEURONS = 4, 512
"""Of a head, and of a layer."""


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
    embeddings or no layer matrix to compare."""
    if not model.blocks or model.embeddings is None:
        raise ModelError("no-attention", "no layer matrix reads or writes a residual stream")
    rows = choose_anchors(model.tokens, model.width)
    anchors = read_anchors(model, rows)
    parts = {kind: max(b.parts for b in of.values()) for kind, of in model.blocks.items()}
    n_rows, kept = affordable(len(model.layers), len(rows), parts)
    responses = {}
    for kind, n_parts in parts.items():
        sizes = (min(n_parts, kept), 1) if kind == NEURONS else (n_parts, n_rows)
        responses[kind] = _responses_of_kind(model, kind, *sizes, anchors)
    return BaseInvariants(model.layers, rows, anchors.astype(np.float16), responses)


def read_anchors(model: ModelRows, rows: Int64[np.ndarray, " n"]) -> Matrix:
    return model.read([(str(model.embeddings), int(row)) for row in rows])


def affordable(n_layers: int, n_anchors: int, parts: Mapping[str, int]) -> tuple[int, int]:
    """Rows of a head and neurons of a layer that `RESPONSE_BYTES` each hold."""
    n_heads = sum(n for kind, n in parts.items() if kind != NEURONS)
    most = RESPONSE_BYTES // (n_layers * max(1, n_anchors))
    return max(1, min(MOST_ROWS, most // max(1, n_heads))), min(most, MOST_NEURONS)


def respond(
    model: ModelRows, kind: str, layer: int, parts: Sequence[int], n_rows: int, anchors: Matrix
) -> Float32[np.ndarray, "parts rows anchors"] | None:
    """The responses of the first rows of some heads, or of neurons; None where a matrix has fewer
    rows."""
    wanted = [row for part in parts for row in model.part(kind, layer, part, n_rows)]
    if not wanted or len(wanted) < len(parts) * n_rows:
        return None
    responses = np.asarray((model.read(wanted) * model.gain(kind, layer)) @ anchors.T, np.float32)
    return responses.reshape(len(parts), n_rows, len(anchors))


def _responses_of_kind(
    model: ModelRows, kind: str, n_parts: int, n_rows: int, anchors: Matrix
) -> Shaped[np.ndarray, "layers parts rows anchors"]:
    """Centred; layers without the matrix, and heads that one lacks, are zeros."""
    result = np.zeros((len(model.layers), n_parts, n_rows, len(anchors)), np.float32)
    for place, layer in enumerate(model.layers):
        block = model.blocks[kind].get(layer)
        parts = range(min(n_parts, block.parts) if block else 0)
        responses = respond(model, kind, layer, parts, n_rows, anchors)
        if responses is not None:
            result[place, : len(parts)] = responses
    return quantise(result - result.mean(axis=-1, keepdims=True))
