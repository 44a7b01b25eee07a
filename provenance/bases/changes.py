"""What was done to a base, by what a model's layers and values show beside its own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from ...arrays import Float32
from ...indexer import LayerMap, LayerMatrix, MatrixSample, row_pieces, stack_of
from ...results import count
from .opened_model import OpenedModel

Pair = tuple[MatrixSample, MatrixSample]
Run = Float32[np.ndarray, " _"]
"""Entries of a run, or of a part of it."""

COPIED_SHARE = 0.999
"""Share of the sampled entries that must be the base's, as they are stored, for a copy."""

PRUNED_SHARE = 0.05
"""Least share of entries that became zero for a model to be called pruned."""

BLOCK = 32
"""Entries in which a quantised model has few values: groups are multiples of it."""

FEW_IN_BLOCK, MANY_IN_BLOCK = 0.65, 0.9
"""Share of different values in a block of a model with four bits, at most, and of a base that was
not quantised itself, at least."""

PRUNED_ON_GRID = 0.25
"""The same of a quantised model: a grid's zero is no pruning."""

GRID_RATIO = 0.75
"""A model in whose rows different values are this share of its base's, or fewer, lies on a grid."""

GRID_RESIDUAL = 0.05
"""Mean distance from whole numbers of values on a grid, in steps; of others it is a quarter."""

ALIGNED = 0.25
"""Correlation with the base from which on a role's entries are the base's."""

LEAST_ROW = 128
"""Entries of a row in which different values are counted to tell a grid of eight bits."""

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


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
    names = (str(_TYPES[dtype]).removeprefix("torch.") for dtype in (child, base))
    return ["stored as {}, the base as {}".format(*names)]


def is_copy(pairs: Sequence[Pair]) -> bool:
    """Whether nearly all entries are the base's, rounded to the type that they are stored in."""
    counts = [equal_entries(child, base) for child, base in pairs]
    same, total = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 0)
    return total > 0 and same >= COPIED_SHARE * total


def equal_entries(child: MatrixSample, base: MatrixSample) -> tuple[int, int]:
    """How many entries of a run are the base's, rounded to the child's type; and of how many."""
    n = min(len(child.values), len(base.values))
    rounded = torch.tensor(base.values[:n]).to(_TYPES[child.dtype]).float().numpy()
    return int(np.count_nonzero(rounded == child.values[:n])), n


def describe_values(pairs: Sequence[Pair]) -> list[str]:
    """Pruning and quantisation, by entries that became zero and by rows of few values."""
    zeros = [(_zero_share(child.values), _zero_share(base.values)) for child, base in pairs]
    pruned, before = np.median(np.array(zeros).reshape(-1, 2), axis=0) if zeros else (0.0, 0.0)
    quantised = _quantised(pairs)
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


def describe_shapes(
    found: LayerMap, ours: Sequence[LayerMatrix], theirs: Sequence[LayerMatrix]
) -> list[str]:
    """Matrices of layers of the base that have another shape, are missing or added."""
    if not found.by_name:
        n_left = len(theirs) - len({own.tensor for _, own in found.pairs})
        of_all = f"{n_left} of the base's {count(len(theirs), 'layer matrix')}"
        return [f"{of_all} not found, or of another shape"] if n_left else []
    own, base = _by_layer(ours), _by_layer(theirs)
    counts: Counter[str] = Counter()
    for stack, layer, base_layer in found.layers:
        counts.update(_differ(own[stack, layer], base[stack, base_layer]))
    n_layers = count(len(found.layers), "layer")
    return [f"{what} in {n} of {n_layers}" for what, n in sorted(counts.items())]


def _by_layer(
    matrices: Iterable[LayerMatrix],
) -> Mapping[tuple[str, int], Mapping[str, tuple[int, int]]]:
    """Shapes by role, by stack and layer."""
    layers: dict[tuple[str, int], dict[str, tuple[int, int]]] = defaultdict(dict)
    for matrix in matrices:
        stack = stack_of(matrix.group)
        role = matrix.group.removeprefix(f"{stack}.") if stack else matrix.group
        layers[stack, matrix.layer][role] = matrix.shape
    return layers


def _differ(
    ours: Mapping[str, tuple[int, int]], theirs: Mapping[str, tuple[int, int]]
) -> Iterable[str]:
    """How the matrices of a layer differ from those of its base's; fused roles are compared with
    nothing but themselves."""
    for role in sorted(ours.keys() & theirs.keys()):
        (rows, columns), (base_rows, base_columns) = ours[role], theirs[role]
        if (rows, columns) != (base_rows, base_columns):
            yield f"{role} of {rows} × {columns}, the base's of {base_rows} × {base_columns},"
    for what, some, others in (("missing", theirs, ours), ("added", ours, theirs)):
        names = {part for role in others for part in role.split("+")}
        for role in sorted(some.keys() - others.keys()):
            is_fused = bool(names.intersection(role.split("+")))
            if not is_fused:
                yield f"{role} {what}"
            elif what == "missing":
                yield f"{role} stored otherwise, not compared,"


def unmapped_layers(
    matrices: Iterable[LayerMatrix], mapped: Iterable[tuple[str, int]]
) -> tuple[str, ...]:
    """What the names of tensors begin with in layers that are none of the mapped, by stack and
    number."""
    kept, starts = set(mapped), set()
    for matrix in matrices:
        number = f".{matrix.layer}."
        if number in matrix.tensor and (stack_of(matrix.group), matrix.layer) not in kept:
            starts.add(matrix.tensor[: matrix.tensor.index(number) + len(number)])
    return tuple(sorted(starts))


def _zero_share(values: Run) -> float:
    return 1.0 - np.count_nonzero(values) / max(1, len(values))


def _quantised(pairs: Sequence[Pair]) -> list[str]:
    """Whether the model's values are few in a block, or on a grid, and the base's are not."""
    ours, theirs = ([row for pair in pairs for row in row_pieces(pair[side])] for side in (0, 1))
    share, own_share = _value_share(ours, BLOCK), _value_share(theirs, BLOCK)
    if share <= FEW_IN_BLOCK < MANY_IN_BLOCK <= own_share:
        return ["quantised: few values in a block, as of 4 bits"]
    in_rows = _value_share(ours, LEAST_ROW) <= GRID_RATIO * _value_share(theirs, LEAST_ROW)
    if in_rows or _residual(ours) <= GRID_RESIDUAL < _residual(theirs):
        return ["quantised: rows lie on a grid, as of 8 bits"]
    return []


def _blocks(rows: Sequence[Run], size: int) -> Iterable[Run]:
    """Entries of rows, `size` at a time, without zeros, which pruning makes; those with enough."""
    for row in rows:
        for start in range(0, len(row) - size + 1, size):
            block = row[start : start + size]
            block = block[block != 0]
            if 4 * len(block) >= size:
                yield block


def _value_share(rows: Sequence[Run], size: int) -> float:
    """Median share of the entries of a block that are different values; 1 where none is full."""
    shares = [len(np.unique(block)) / len(block) for block in _blocks(rows, size)]
    return float(np.median(shares)) if shares else 1.0


def _residual(rows: Sequence[Run]) -> float:
    """Median over blocks of the mean distance from whole steps, the largest being 127 of them."""
    residuals = []
    for block in _blocks(rows, BLOCK):
        steps = block / np.abs(block).max() * 127
        residuals.append(float(np.abs(steps - np.round(steps)).mean()))
    return float(np.median(residuals)) if residuals else 0.25
