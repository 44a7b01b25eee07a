"""Two models beside each other in all their tensors: what one has and the other has not so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ... import indexer
from ...errors import DeltadexError, ModelError, RequestError
from ..extraction.other_tensors import counterparts, parameters
from .changes import describe_shapes, describe_vocabulary, unmapped_layers
from .opened_model import OpenedModel, open_model

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")

OTHERS = "embeddings, norms, biases and heads"


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
    found: indexer.LayerMap,
    *,
    values: bool = True,
    either: bool = False,
) -> list[str] | NotCompared:
    """What differs in tensors of a model and of another, by a map of their layers, in words; empty
    where all are equal, up to the rounding of the model's stored type, or of `either`'s.

    Not shapes of layer matrices, and those that were added, which `describe_shapes` says; nor
    their values, unless `values`.
    """
    if not found.by_name:
        return NotCompared("its tensors have other names")
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


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Why two models' tensors were not compared."""

    reason: str

    def __str__(self) -> str:
        return f"{OTHERS} were not compared: {self.reason}"


def why_not_read(err: DeltadexError) -> str:
    """What an error says of a model in a catalog: without its code, and without advice to index."""
    cause = err.__cause__ if isinstance(err, RequestError) else err
    text = cause.reason if isinstance(cause, ModelError) else " ".join(str(err).split())
    return text.partition("; index it")[0]


def compare_with_folder(
    model: OpenedModel, source: str, found: indexer.LayerMap
) -> list[str] | NotCompared:
    """The same beside the model in a folder, where both are on this machine."""
    if model.member.folder is None:
        return NotCompared("its files are not on this machine")
    if (folder := indexer.folder_at(source)) is None:
        return NotCompared(f"the files of {source} are not on this machine")
    try:
        with open_model(str(folder)) as other:
            return compare_mapped(model, other, found)
    except ModelError as err:
        return NotCompared(f"{source}: {why_not_read(err)}")


def compare_folders(source: str, other: str, *, matrices: bool = True) -> list[str] | NotCompared:
    """What differs between the full checkpoints in two folders, in words; empty where nothing does.

    Args:
        matrices: Whether layer matrices are compared too, beside their shapes.
    """
    if not all(Path(name).is_absolute() and indexer.folder_at(name) for name in (source, other)):
        return NotCompared("their files are not all on this machine")
    try:
        with open_model(source) as ours, open_model(other) as theirs:
            found = indexer.find_layer_map(ours.samples, theirs.samples)
            if found is None or not found.is_significant:
                return NotCompared("their layers do not correspond")
            differences = compare_mapped(ours, theirs, found, values=matrices, either=True)
            if isinstance(differences, NotCompared):
                return differences
            shapes = describe_shapes(found, ours.matrices, theirs.matrices)
            shapes += describe_vocabulary(ours, theirs.facts)
            return [*indexer.describe_layers(found), *shapes, *differences]
    except ModelError as err:
        return NotCompared(f"not both can be opened: {why_not_read(err)}")
