"""What was done to a base, by what a model's layers and values show beside its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ..arrays import Float32
from ..indexer import MatrixSample, row_pieces
from .opened_model import OpenedModel

Pair = tuple[MatrixSample, MatrixSample]
Run = Float32[np.ndarray, " entries"]

COPIED_SHARE = 0.999
"""Share of the sampled entries that must be the base's, as they are stored, for a copy."""

PRUNED_SHARE = 0.05
"""Least share of entries that became zero for a model to be called pruned."""

BLOCK = 32
"""Entries in which a quantised model has few values: groups are multiples of it."""

FOUR_BITS = 16
"""Values of four bits."""

MANY_VALUES = 24
"""Different values in a block from which on its base was not quantised itself."""

PRUNED_ON_GRID = 0.25
"""The same of a quantised model: a grid's zero is no pruning."""

GRID_RATIO = 0.75
"""A row whose number of values is this share of its base's, or less, lies on a grid."""

GRID_RESIDUAL = 0.05
"""Mean distance from whole numbers of values on a grid, in steps; of others it is a quarter."""

ALIGNED = 0.25
"""Correlation with the base from which on a role's entries are the base's."""

LEAST_ROW = 128
"""Entries of a row from which on its number of values tells a grid."""

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def describe_vocabulary(model: OpenedModel, facts: Mapping[str, str | int]) -> list[str]:
    """Whether the embeddings have more or fewer tokens than the base's."""
    before, now = facts.get("vocabulary"), model.facts.get("vocabulary")
    if not isinstance(before, int) or not isinstance(now, int) or before == now:
        return []
    return [f"vocabulary {'grown' if now > before else 'cut'} from {before} to {now}"]


def describe_storage(pairs: Sequence[Pair]) -> list[str]:
    """The type that the model is stored in, where it is another than the base's."""
    stored = Counter((child.dtype, base.dtype) for child, base in pairs)
    if not stored:
        return []
    child, base = max(sorted(stored), key=lambda types: stored[types])
    if child == base:
        return []
    return [f"stored as {_spelled(child)}, the base as {_spelled(base)}"]


def _spelled(dtype: str) -> str:
    return str(_TYPES[dtype]).removeprefix("torch.")


def is_copy(pairs: Sequence[Pair]) -> bool:
    """Whether nearly all entries are the base's, rounded to the type that they are stored in."""
    same = total = 0
    for child, base in pairs:
        n = min(len(child.values), len(base.values))
        rounded = torch.tensor(base.values[:n]).to(_TYPES[child.dtype]).float().numpy()
        same += int(np.count_nonzero(rounded == child.values[:n]))
        total += n
    return total > 0 and same >= COPIED_SHARE * total


def describe_values(pairs: Sequence[Pair]) -> list[str]:
    """Pruning and quantisation, by entries that became zero and by rows of few values."""
    zeros = [(_zero_share(child.values), _zero_share(base.values)) for child, base in pairs]
    pruned, before = np.median(np.array(zeros).reshape(-1, 2), axis=0) if zeros else (0.0, 0.0)
    kept = [(_without_zeros(child), _without_zeros(base)) for child, base in pairs]
    blocks = [(_values_in_blocks(c), _values_in_blocks(b)) for c, b in kept]
    few, many = np.median(np.array(blocks).reshape(-1, 2), axis=0) if blocks else (0, 0)
    quantised = []
    if few <= FOUR_BITS and many >= MANY_VALUES:
        quantised = ["quantised: a block has at most 16 values, as of 4 bits"]
    elif _lies_on_grid([c for c, _ in kept], [b for _, b in kept]):
        quantised = ["quantised: rows lie on a grid, as of 8 bits"]
    if pruned - before < (PRUNED_ON_GRID if quantised else PRUNED_SHARE):
        return quantised
    return [f"pruned: {pruned:.0%} of the entries of its layers are zero", *quantised]


def describe_roles(correlations: Mapping[str, float]) -> list[str]:
    """Roles whose entries are not the base's where others' are."""
    strange = [group for group, c in correlations.items() if c < ALIGNED]
    if not strange or len(strange) == len(correlations):
        return []
    roles = ", ".join(group.partition(".")[2] or group for group in strange)
    return [f"{roles}: not the base's entry by entry (permuted, transformed or replaced)"]


def _zero_share(values: Run) -> float:
    return 1.0 - np.count_nonzero(values) / max(1, len(values))


def _without_zeros(sample: MatrixSample) -> list[Run]:
    """The rows of a run; zeros, which pruning makes, count as no values."""
    return [piece[piece != 0] for piece in row_pieces(sample)]


def _values_in_blocks(rows: Sequence[Run]) -> float:
    """Median number of different values in `BLOCK` entries of a row."""
    counts = [
        len(np.unique(row[start : start + BLOCK]))
        for row in rows
        for start in range(0, len(row) - BLOCK + 1, BLOCK)
    ]
    return float(np.median(counts)) if counts else float(BLOCK)


def _lies_on_grid(child: Sequence[Sequence[Run]], base: Sequence[Sequence[Run]]) -> bool:
    ratios, residuals = [], []
    for ours, theirs in zip(child, base, strict=True):
        for row, own in zip(ours, theirs, strict=False):
            if len(row) >= LEAST_ROW and len(own) >= LEAST_ROW:
                share = len(np.unique(own)) / len(own)
                ratios.append(len(np.unique(row)) / len(row) / share)
            for start in range(0, len(row) - BLOCK + 1, BLOCK):
                residuals.append(_residual(row[start : start + BLOCK]))
    has_few = bool(ratios) and float(np.median(ratios)) <= GRID_RATIO
    return has_few or (bool(residuals) and float(np.median(residuals)) <= GRID_RESIDUAL)


def _residual(block: Run) -> float:
    """Mean distance from whole steps, where the largest value is 127 of them."""
    steps = block / np.abs(block).max() * 127
    return float(np.abs(steps - np.round(steps)).mean())
