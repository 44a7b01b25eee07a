"""What was done to a base, by what a model's layers, values and tensors show beside its own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ... import indexer
from ...arrays import Float32
from ...errors import DeltadexError, ModelError, RequestError
from ...indexer import LayerMap, LayerMatrix, MatrixSample, row_pieces, stack_of
from ...results import count
from ..extraction.other_tensors import counterparts, parameters
from .opened_model import OpenedModel, open_model

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

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


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
    """What tensors' names begin with in layers that are not mapped, by stack and number."""
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


def _listed(names: Sequence[str]) -> str:
    """Names, those that differ in numbers alone once, with how many they are."""
    counts = Counter(_NUMBER.sub("*", name) for name in names)
    alone = {_NUMBER.sub("*", name): name for name in names}
    return indexer.name_some(
        [f"{n} × {like}" if n > 1 else alone[like] for like, n in counts.items()]
    )


def compare_mapped(
    model: OpenedModel,
    other: OpenedModel,
    found: LayerMap,
    *,
    values: bool = True,
    either: bool = False,
) -> list[str] | str:
    """What differs in tensors of a model and of another, by a map of their layers, in words; empty
    where all are equal, up to the rounding of the model's stored type, or of `either`'s; a sentence
    where they were not compared.

    Not shapes of layer matrices, and those that were added, which `describe_shapes` says; nor
    their values, unless `values`.
    """
    if not found.by_name:
        return not_compared("its tensors have other names")
    configs = model.member.config, other.member.config
    ours, theirs = map(parameters, (model.checkpoint, other.checkpoint), configs)
    layers = [(child.tensor, own.tensor) for child, own in found.pairs]
    ours_to_theirs = counterparts(ours, theirs, layers, configs)
    new = unmapped_layers(model.matrices, [(stack, layer) for stack, layer, _ in found.layers])
    left_out = unmapped_layers(other.matrices, [(stack, own) for stack, _, own in found.layers])
    matrices = {matrix.tensor for matrix in model.matrices}
    names: dict[str, list[str]] = {"changed": [], "of another shape": [], "added": []}
    # by tensors, which tied names share
    difference = cache(lambda tensor, own: _difference(model, tensor, other, own, either))
    met = set()
    for name, tensor in ours.items():
        if name.startswith(new):
            continue
        own, is_matrix = ours_to_theirs[name], tensor in matrices
        met.add(own)
        how = difference(tensor, own) if values or not is_matrix else ""
        if how and (not is_matrix or how == "changed"):
            names[how].append(name)
    names["missing"] = [
        name for name, own in theirs.items() if own not in met and not name.startswith(left_out)
    ]
    return [f"{how}: {_listed(some)}" for how, some in names.items() if some]


def _difference(
    model: OpenedModel, tensor: str, other: OpenedModel, own: str | None, either: bool
) -> Literal["changed", "of another shape", "added", ""]:
    if own is None:
        return "added"
    ref, base = model.checkpoint.tensors[tensor], other.checkpoint.tensors[own]
    tokens = [(m.facts.get("vocabulary"),) for m in (model, other)]
    are_of_tokens = [ref.shape[:1], base.shape[:1]] == tokens and ref.shape[1:] == base.shape[1:]
    if ref.shape != base.shape and not are_of_tokens:
        return "of another shape"
    is_equal = indexer.are_equal(model.checkpoint, tensor, other.checkpoint, own, either=either)
    return "" if is_equal else "changed"


def not_compared(reason: str) -> str:
    return f"embeddings, norms, biases and heads were not compared: {reason}"


def why_not_read(err: DeltadexError) -> str:
    """What an error says of a model in a catalog: without its code, and without advice to index."""
    cause = err.__cause__ if isinstance(err, RequestError) else err
    text = cause.reason if isinstance(cause, ModelError) else " ".join(str(err).split())
    return text.partition("; index it")[0]


def compare_with_folder(model: OpenedModel, source: str, found: LayerMap) -> list[str] | str:
    """The same beside the model in a folder, where both are on this machine."""
    if model.member.folder is None:
        return not_compared("its files are not on this machine")
    if (folder := indexer.folder_at(source)) is None:
        return not_compared(f"the files of {source} are not on this machine")
    try:
        with open_model(str(folder)) as other:
            return compare_mapped(model, other, found)
    except ModelError as err:
        return not_compared(f"{source}: {why_not_read(err)}")


def compare_folders(source: str, other: str, *, matrices: bool = True) -> list[str] | str:
    """What differs between the full checkpoints in two folders, in words; empty where nothing does.

    Args:
        matrices: Whether layer matrices are compared too, beside their shapes.
    """
    if not all(Path(name).is_absolute() and indexer.folder_at(name) for name in (source, other)):
        return not_compared("their files are not all on this machine")
    try:
        with open_model(source) as ours, open_model(other) as theirs:
            found = indexer.find_layer_map(ours.samples, theirs.samples)
            if found is None or not found.is_significant:
                return not_compared("their layers do not correspond")
            differences = compare_mapped(ours, theirs, found, values=matrices, either=True)
            if isinstance(differences, str):
                return differences
            shapes = describe_shapes(found, ours.matrices, theirs.matrices)
            shapes += describe_vocabulary(ours, theirs.facts)
            return [*indexer.describe_layers(found), *shapes, *differences]
    except ModelError as err:
        return not_compared(f"not both can be opened: {why_not_read(err)}")
