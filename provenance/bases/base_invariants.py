"""What is kept of a base so that its layers are recognised after the residual stream was changed.

Rows of the token embeddings, the *anchors*, lie in the residual stream, as do the rows of q, k, v
and of the feed-forward input. Their inner products, a row's *response* to the anchors, stay the
same under every orthogonal transform of the residual stream; so do the bilinear forms
E Wqᵀ Wk Eᵀ of heads, whatever invertible map is between q and k; and the order of heads and
neurons only permutes them. Gains of norms are multiplied in, so that folding them changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays import Float32, Int64, Shaped, UInt64
from ...errors import ModelError
from .model_rows import HEAD_KINDS, Matrix, ModelRows

VERSION = 1
MAX_BYTES = 1_150_000
"""Of the serialised form."""

MAX_CONTENT = 8 << 20
"""Bytes that a serialised form may unpack to."""

MOST_ANCHORS, LEAST_ANCHORS, ANCHOR_ENTRIES = 96, 32, 1 << 18
RUN = 8
"""Anchors that are adjacent rows, so that one read brings them."""

FIRST_TOKEN, LAST_TOKEN = 0.02, 0.9
"""Where in the vocabulary anchors are: neither special tokens nor what fills up the matrix."""

SCALES = ((4, 16), (3, 16), (2, 12), (2, 8), (1, 8), (1, 4))
"""Rows a head, and anchors of the bilinear forms, from the most to the least that is kept."""

MOST_NEURONS, FEWEST_NEURONS = 512, 128
GRAM_NEURONS, GRAM_ROWS = 24, 4
"""Rows of neurons, and of each of q, k, v (or o), whose cosines are kept."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseInvariants:
    """What is kept of one base.

    Attributes:
        layers: Their numbers.
        vocabulary: Rows of its embeddings.
        heads: By kind.
        neuron_kind: The kind whose rows are neurons, "" for none; `neurons`: how many a layer has.
        rows: Of the embeddings, by anchor.
        tokens: Hashes of the anchors' tokens, 0 where unknown.
        anchors: (anchors, width), as `quantise` leaves them, and `anchor_scales`.
        responses: By kind: (layers, heads, rows of a head, anchors), or (layers, neurons, anchors).
        forms: (layers, query heads, n, n), over the anchors of `form_anchors`.
        grams: Cosines of a layer's first neurons with the first rows of its heads: (layers, pairs).
    """

    layers: tuple[int, ...]
    vocabulary: int
    heads: Mapping[str, int]
    neuron_kind: str
    neurons: int
    rows: Int64[np.ndarray, " anchors"]
    tokens: UInt64[np.ndarray, " anchors"]
    anchors: Shaped[np.ndarray, "anchors width"]
    anchor_scales: Float32[np.ndarray, " anchors"]
    responses: Mapping[str, Shaped[np.ndarray, ...]]
    forms: Shaped[np.ndarray, "layers heads n n"]
    grams: Shaped[np.ndarray, "layers pairs"]

    @property
    def width(self) -> int:
        return int(self.anchors.shape[1])

    @cached_property
    def anchor_rows(self) -> Float32[np.ndarray, "anchors width"]:
        rows: Float32[np.ndarray, "anchors width"] = self.anchors * self.anchor_scales[:, None]
        return rows

    @property
    def form_anchors(self) -> Int64[np.ndarray, " n"]:
        return spread(len(self.rows), self.forms.shape[-1])

    def to_bytes(self) -> bytes:
        facts = {
            "version": VERSION,
            "layers": self.layers,
            "vocabulary": self.vocabulary,
            "heads": dict(self.heads),
            "neuron_kind": self.neuron_kind,
            "neurons": self.neurons,
        }
        arrays = {
            "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8),
            **{name: getattr(self, name) for name in _ARRAYS},
            **{f"responses.{kind}": array for kind, array in self.responses.items()},
        }
        with io.BytesIO() as stream:
            np.savez(stream, **arrays)
            packed = stream.getvalue()
        return _digest(packed) + packed

    @classmethod
    def from_bytes(cls, content: bytes) -> BaseInvariants:
        """The same invariants; a `ValueError` where the bytes are not such."""
        try:
            arrays = _unpack(content)
            facts: dict[str, Any] = json.loads(arrays.pop("facts").tobytes())
            if facts.pop("version") != VERSION:
                raise ValueError("another version")
            facts["layers"] = tuple(map(int, facts["layers"]))
            prefix = "responses."
            responses = {k.removeprefix(prefix): v for k, v in arrays.items() if k[:10] == prefix}
            own: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
            invariants = cls(responses=responses, **facts, **own)
            _check(invariants)
        except (KeyError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as err:
            raise ValueError(f"no invariants of a base: {err}") from err
        return invariants


_ARRAYS = {
    "rows": np.int64,
    "tokens": np.uint64,
    "anchors": np.int8,
    "anchor_scales": np.float32,
    "forms": np.int8,
    "grams": np.int8,
}


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=16).digest()


def _unpack(content: bytes) -> dict[str, np.ndarray]:
    digest, content = content[:16], content[16:]
    if _digest(content) != digest:
        raise ValueError("its checksum does not fit")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(info.file_size for info in archive.infolist()) > MAX_CONTENT:
            raise ValueError("too large")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _check(invariants: BaseInvariants) -> None:
    """A `ValueError` where arrays do not fit together."""
    n_anchors, n_layers = len(invariants.rows), len(invariants.layers)
    for name, dtype in _ARRAYS.items():
        if getattr(invariants, name).dtype != dtype:
            raise ValueError(f"type of {name}")
    kinds = {*invariants.heads, invariants.neuron_kind} - {""}
    arrays = invariants.responses
    shapes = [
        invariants.anchors.ndim == 2 and invariants.forms.ndim == 4 and invariants.grams.ndim == 2,
        {len(invariants.tokens), len(invariants.anchors), len(invariants.anchor_scales)}
        == {n_anchors},
        n_layers > 0 and set(arrays) == kinds,
        all(a.dtype == np.int8 and a.shape[-1] == n_anchors for a in arrays.values()),
        all(len(a) == n_layers for a in (*arrays.values(), invariants.forms, invariants.grams)),
        all(arrays[k].ndim == 4 and arrays[k].shape[1] == h for k, h in invariants.heads.items()),
        not invariants.neuron_kind or arrays[invariants.neuron_kind].ndim == 3,
        invariants.forms.shape[2] == invariants.forms.shape[3] <= max(n_anchors, 1),
        np.isfinite(invariants.anchor_scales).all(),
    ]
    if not all(shapes):
        raise ValueError(f"shapes that do not fit together ({shapes.index(False)})")


def spread(size: int, n: int) -> Int64[np.ndarray, " n"]:
    """`n` of `size` places, evenly spread."""
    return (np.arange(n) * size // max(n, 1)).astype(np.int64)


def hash_token(token: str) -> int:
    digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def quantise(vectors: Float32[np.ndarray, "... n"]) -> Shaped[np.ndarray, "... n"]:
    """int8, each vector scaled by its largest entry."""
    rounded: Shaped[np.ndarray, "... n"] = np.round(vectors / _scale(vectors)).astype(np.int8)
    return rounded


def _scale(vectors: Float32[np.ndarray, "... n"]) -> Float32[np.ndarray, "... one"]:
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0)
    scale: Float32[np.ndarray, "... one"] = (np.maximum(largest, 1e-30) / 127).astype(np.float32)
    return scale


def choose_anchors(vocabulary: int, width: int) -> Int64[np.ndarray, " anchors"]:
    """Rows in runs of adjacent ones, more of them among the first tokens, which vocabularies that
    are cut keep."""
    n = max(LEAST_ANCHORS, min(MOST_ANCHORS, ANCHOR_ENTRIES // max(width, 1)))
    if vocabulary <= 2 * n:
        return np.arange(min(n, vocabulary), dtype=np.int64)
    starts = np.geomspace(FIRST_TOKEN * vocabulary, LAST_TOKEN * vocabulary - RUN, n // RUN)
    rows = starts.astype(np.int64)[:, None] + np.arange(RUN)
    return np.unique(rows)


def unit(vectors: Float32[np.ndarray, "... n"]) -> Float32[np.ndarray, "... n"]:
    """Of length 1; a vector of zeros stays."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Float32[np.ndarray, "... n"] = (vectors / np.maximum(norms, 1e-30)).astype(np.float32)
    return scaled


def respond(
    model: ModelRows, kind: str, layer: int, rows: Matrix, anchors: Matrix
) -> Float32[np.ndarray, "rows anchors"]:
    """The responses of a matrix's rows to anchors, both (…, width)."""
    responses: Matrix = ((rows * model.gain(kind, layer)) @ anchors.T).astype(np.float32)
    return responses


def make_invariants(model: ModelRows) -> BaseInvariants:
    """What is kept of an opened base. Reads its anchors, some rows of every layer, and of a local
    base q and k whole; a `ModelError` where it has no layer matrix that can be used."""
    kinds = [kind for kind in HEAD_KINDS if kind in model.blocks]
    neurons = model.neurons
    if not kinds and neurons is None:
        raise ModelError("no-attention", "no layer matrix reads or writes a residual stream")
    ids = choose_anchors(model.tokens, model.width)
    anchors = read_anchors(model, ids)
    heads = {k: max(block.heads for block in model.blocks[k].values()) for k in kinds}
    n_neurons = min(b.rows for b in model.blocks[neurons].values()) if neurons else 0
    n_rows, n_form, kept = _affordable(len(model.layers), anchors.shape, heads, n_neurons)
    responses = {k: quantise(_of_heads(model, k, heads[k], n_rows, anchors)) for k in kinds}
    if neurons is not None:
        responses[neurons] = quantise(_of_neurons(model, neurons, kept, anchors))
    return BaseInvariants(
        layers=model.layers,
        vocabulary=model.tokens,
        heads=heads,
        neuron_kind=neurons or "",
        neurons=n_neurons,
        rows=ids,
        tokens=_hashes(model, ids),
        anchors=quantise(anchors),
        anchor_scales=_scale(anchors)[:, 0],
        responses=responses,
        forms=_forms(model, heads, anchors[spread(len(ids), n_form)]),
        grams=quantise(_grams(model)),
    )


def read_anchors(model: ModelRows, ids: Sequence[int] | Int64[np.ndarray, " n"]) -> Matrix:
    if model.embeddings is None or not len(ids):
        return np.zeros((0, model.width), np.float32)
    return model.read([(model.embeddings, int(row)) for row in ids])


def _affordable(
    n_layers: int, anchors: tuple[int, ...], heads: Mapping[str, int], neurons: int
) -> tuple[int, int, int]:
    """Rows a head, anchors of the forms, and neurons a layer that `MAX_BYTES` hold."""
    n_anchors, width = anchors
    left = (
        MAX_BYTES - n_anchors * (width + 64) - n_layers * 3 * GRAM_NEURONS * GRAM_ROWS - (16 << 10)
    )
    for n_rows, n_form in SCALES:
        of_heads = n_layers * (
            sum(heads.values()) * n_rows * n_anchors + heads.get("q", 0) * n_form**2
        )
        kept = (left - of_heads) // max(1, n_layers * n_anchors)
        if kept >= min(neurons, FEWEST_NEURONS):
            break
    return n_rows, min(n_form, n_anchors), int(max(0, min(kept, neurons, MOST_NEURONS)))


def _of_heads(
    model: ModelRows, kind: str, heads: int, n_rows: int, anchors: Matrix
) -> Float32[np.ndarray, "layers heads rows anchors"]:
    """Layers without the matrix are zeros."""
    result = np.zeros((len(model.layers), heads, n_rows, len(anchors)), np.float32)
    for place, layer in enumerate(model.layers):
        block = model.blocks[kind].get(layer)
        for head in range(block.heads if block else 0):
            rows = model.read(model.head_rows(kind, layer, head, n_rows))
            result[place, head, : len(rows)] = respond(model, kind, layer, rows, anchors)
    return result - result.mean(axis=-1, keepdims=True) if len(anchors) else result


def _of_neurons(
    model: ModelRows, kind: str, kept: int, anchors: Matrix
) -> Float32[np.ndarray, "layers neurons anchors"]:
    result = np.zeros((len(model.layers), kept, len(anchors)), np.float32)
    for place, layer in enumerate(model.layers):
        if layer in model.blocks[kind] and kept:
            rows = model.read(model.neuron_rows(layer, kept))
            result[place] = respond(model, kind, layer, rows, anchors)
    return result - result.mean(axis=-1, keepdims=True) if len(anchors) else result


def layer_forms(
    model: ModelRows, layer: int, heads: Sequence[int], anchors: Matrix
) -> Float32[np.ndarray, "heads n n"] | None:
    """The bilinear forms of some query heads; None where q or k is not there by rows."""
    q, k = (model.blocks.get(kind, {}).get(layer) for kind in ("q", "k"))
    if q is None or k is None or q.head_rows != k.head_rows or q.heads % k.heads:
        return None
    forms = []
    for head in heads:
        queries, keys = (
            respond(model, kind, layer, model.read(model.head_rows(kind, layer, at, size)), anchors)
            for kind, at, size in (
                ("q", head, q.head_rows),
                ("k", head * k.heads // q.heads, k.head_rows),
            )
        )
        forms.append(queries.T @ keys)
    return np.stack(forms)


def _forms(
    model: ModelRows, heads: Mapping[str, int], anchors: Matrix
) -> Shaped[np.ndarray, "layers heads n n"]:
    """Of every query head, centred on both sides; each form has a scale of its own."""
    n = len(anchors)
    result = np.zeros((len(model.layers), heads.get("q", 0), n, n), np.float32)
    for place, layer in enumerate(model.layers if model.weights.checkpoint.concurrent else ()):
        q = model.blocks.get("q", {}).get(layer)
        forms = layer_forms(model, layer, range(q.heads), anchors) if q and n else None
        if forms is not None:
            result[place, : len(forms)] = forms
            model.forget()
    if n:
        result -= result.mean(axis=-1, keepdims=True)
        result -= result.mean(axis=-2, keepdims=True)
    return quantise(result.reshape(*result.shape[:2], n * n)).reshape(result.shape)


def _grams(model: ModelRows) -> Float32[np.ndarray, "layers pairs"]:
    size = GRAM_NEURONS * GRAM_ROWS * sum(kind in model.blocks for kind in HEAD_KINDS)
    result = np.zeros((len(model.layers), size), np.float32)
    for place, layer in enumerate(model.layers):
        if gram_rows(model, layer) is not None:
            result[place] = layer_gram(model, layer)
    return result


def gram_rows(model: ModelRows, layer: int) -> Mapping[str, list[tuple[str, int]]] | None:
    """The (tensor, row) of a layer's Gram matrix by kind; None where there are too few."""
    kinds = [kind for kind in HEAD_KINDS if kind in model.blocks]
    if model.neurons is None or any(layer not in model.blocks[k] for k in (model.neurons, *kinds)):
        return None
    wanted = {kind: model.head_rows(kind, layer, 0, GRAM_ROWS) for kind in kinds}
    wanted[model.neurons] = model.neuron_rows(layer, GRAM_NEURONS)
    n_rows = GRAM_NEURONS + GRAM_ROWS * len(kinds)
    return wanted if kinds and sum(map(len, wanted.values())) == n_rows else None


def layer_gram(model: ModelRows, layer: int) -> Float32[np.ndarray, " pairs"]:
    """Cosines between neurons and rows of heads, of `gram_rows`: they stay the same as long as
    all matrices have one basis."""
    wanted = gram_rows(model, layer)
    assert wanted is not None
    rows = {kind: model.read(keys) * model.gain(kind, layer) for kind, keys in wanted.items()}
    mean = np.concatenate(list(rows.values())).mean(axis=0)
    neurons = unit((rows.pop(str(model.neurons)) - mean).astype(np.float32))
    heads = unit((np.concatenate(list(rows.values())) - mean).astype(np.float32))
    cosines: Float32[np.ndarray, " pairs"] = (neurons @ heads.T).ravel().astype(np.float32)
    return cosines


def _hashes(model: ModelRows, ids: Int64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    token_of = {row: token for token, row in model.vocabulary.items()}
    hashes = [hash_token(token_of[row]) if row in token_of else 0 for row in ids.tolist()]
    return np.array(hashes, np.uint64)
