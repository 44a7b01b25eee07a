"""A run of entries of every layer matrix of a model, at places that its shape alone decides.

Runs of two matrices of equal shape are at the same places, whatever the tensors are called and
whichever layer they are in, so that a fine-tune's runs lie along its base's.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from ..arrays import Float32
from ..errors import ModelError
from ..records import STACKS
from .architecture import Placement, place
from .checkpoint import DTYPES, Checkpoint, Config, RowBlock, TensorRef

RUN = 1024
"""Entries of a run; chance correlates two runs by ±1/√1024 = .031."""

LEAST_RUN = 128

LEAST_BYTES, MOST_BYTES, MOST_SHARE = 40_000, 600_000, 0.006
"""Of all runs of a model: with headers, a fine-tune of 8 B parameters stays below 1 MB, and any of
more than 8 MB below 1 %."""

MOST_MATRICES = 4096

SEED = "deltadex-run-1"

AT_ONCE = 8
"""Requests to a remote file at once."""

_EMBEDDINGS = re.compile(
    r"(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared|token_embedding)\.weight$"
)
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_NUMBER = re.compile(r"(?<![^.])[0-9]{1,6}(?![^.])")
_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMatrix:
    """One stored tensor of a numbered layer. `group`: what its layers have in common, "encoder.q"
    where its role is known, else its name without the number; `shape`: as stored, leading
    dimensions flattened."""

    tensor: str
    group: str
    layer: int
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixSample(LayerMatrix):
    """A layer matrix and its run; `dtype`: as safetensors spells the stored type."""

    values: Float32[np.ndarray, " entries"]
    dtype: str


def layer_matrices(
    tensors: Mapping[str, TensorRef], config: Config | None
) -> tuple[LayerMatrix, ...]:
    """The matrices in numbered layers, by group and layer: those of known roles, of experts the
    first of each layer; where none is, all under a numbered name, else all there are."""
    shapes = {name: ref.shape for name, ref in tensors.items() if _is_matrix(ref)}
    try:
        placed: dict[str, list[Placement]] = place(shapes, config).by_tensor()
    except ModelError:
        placed = {}
    chosen: dict[tuple[str, int], tuple[tuple[int, str], str]] = {}
    for name in sorted(shapes, key=natural_key):
        if name in placed:
            first = placed[name][0]
            roles = "+".join(dict.fromkeys(p.slot.role for p in placed[name]))
            part, _, number = first.part.partition(".")
            group = f"{first.slot.stack}.{roles}" + (f".{part}" if part else "")
            key, order = (group, first.slot.layer), (int(number or 0), name)
        elif not placed and (match := _NUMBER.search(name)) is not None:
            key = name[: match.start()] + "N" + name[match.end() :], int(match[0])
            order = 0, name
        else:
            continue
        if key not in chosen or order < chosen[key][0]:
            chosen[key] = order, name
    if not chosen:
        chosen = {("", n): ((n, name), name) for n, name in enumerate(shapes)}
    found = (
        LayerMatrix(tensor=name, group=group, layer=layer, shape=(math.prod(leading), columns))
        for (group, layer), (_, name) in sorted(chosen.items())
        for *leading, columns in [shapes[name]]
    )
    return tuple(found)[:MOST_MATRICES]


def form_of(tensors: Mapping[str, TensorRef], matrices: Sequence[LayerMatrix]) -> dict[str, Any]:
    """`layers`, `vocabulary` and `dtype` of the `ModelRecord` of a checkpoint with these layer
    matrices; its embeddings are told by their name, else as the largest matrix beside them, where
    that has more rows than columns."""
    inside = {matrix.tensor for matrix in matrices}
    outside = {n: r.shape for n, r in tensors.items() if len(r.shape) == 2 and n not in inside}
    named = [shape for name, shape in outside.items() if _EMBEDDINGS.search(name)]
    largest = max(named or outside.values(), key=lambda s: (s[0] * s[1], s), default=(0, 0))
    is_told = bool(named) or largest[0] > largest[1]
    dtypes = Counter(tensors[name].dtype for name in sorted(inside))
    stacks = ((m.group.partition(".")[0], m.layer) for m in matrices)
    layers = {(stack if stack in STACKS else "", layer) for stack, layer in stacks}
    return {
        "layers": len(layers) or None,
        "vocabulary": largest[0] if is_told else None,
        "dtype": max(dtypes, key=dtypes.__getitem__, default=None),
    }


def natural_key(name: str) -> list[tuple[int, str]]:
    """Sorts numbers in names by their value: layer 10 after layer 9."""
    parts = _DIGITS.split(name)
    return [(int(p), "") if i % 2 else (-1, p) for i, p in enumerate(parts)]


def sample_matrices(
    checkpoint: Checkpoint, matrices: Iterable[LayerMatrix]
) -> tuple[MatrixSample, ...]:
    """The matrices with their runs, which are shorter where there are many. Peak: all runs."""
    matrices = list(matrices)
    refs = checkpoint.tensors
    length = _run_length(matrices, checkpoint)
    blocks = {_run_block(m, length): m for m in matrices}
    in_file = sorted(blocks, key=lambda b: (refs[b.tensor].file, refs[b.tensor].start))
    threads = 1 if checkpoint.concurrent else AT_ONCE
    size = max(1, math.ceil(len(in_file) / threads))
    shares = [in_file[start : start + size] for start in range(0, len(in_file), size)]

    with ThreadPoolExecutor(threads, thread_name_prefix="deltadex-run") as pool:
        read = pool.map(lambda share: list(checkpoint.stream_rows(share)), shares)
        runs = dict(chain.from_iterable(read))
    return tuple(
        MatrixSample(
            **asdict(m), values=_as_float32(runs[block])[:length], dtype=refs[m.tensor].dtype
        )
        for block, m in blocks.items()
    )


def _is_matrix(ref: TensorRef) -> bool:
    return ref.dtype in _FLOATS and len(ref.shape) in (2, 3) and min(ref.shape[-2:]) > 1


def _run_length(matrices: Iterable[LayerMatrix], checkpoint: Checkpoint) -> int:
    limit = min(MOST_BYTES, max(LEAST_BYTES, MOST_SHARE * checkpoint.bytes_total))
    dtypes = ((m, DTYPES[checkpoint.tensors[m.tensor].dtype]) for m in matrices)
    sizes = [(math.prod(m.shape), dtype.itemsize) for m, dtype in dtypes]
    length = RUN
    while length > LEAST_RUN and sum(min(length, n) * width for n, width in sizes) > limit:
        length //= 2
    return length


def _run_block(matrix: LayerMatrix, length: int) -> RowBlock:
    """The rows that hold a run of `length` entries, which begins with the row where one of `RUN`
    does."""
    n_rows, n_columns = matrix.shape
    height = min(n_rows, math.ceil(RUN / n_columns))
    digest = hashlib.sha256(f"{SEED}/{n_rows}/{n_columns}".encode()).digest()
    start = int.from_bytes(digest[:8], "big") % (n_rows - height + 1)
    height = min(height, math.ceil(length / n_columns))
    columns = length if height == 1 and n_columns > length else None
    return RowBlock(matrix.tensor, start, start + height, columns)


def _as_float32(rows: torch.Tensor) -> Float32[np.ndarray, " entries"]:
    values: Float32[np.ndarray, " entries"] = rows.float().reshape(-1).numpy().copy()
    values.flags.writeable = False
    return values


def row_pieces(
    sample: MatrixSample, length: int | None = None
) -> Iterator[Float32[np.ndarray, " entries"]]:
    """The run, or as much of it, cut at its rows."""
    values, width = sample.values[:length], sample.shape[1]
    for start in range(0, len(values), width):
        yield values[start : start + width]
