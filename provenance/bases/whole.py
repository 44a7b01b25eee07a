"""Two models beside each other in all their tensors: what one has and the other has not so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ModelError
from ...indexer import (
    LayerMap,
    TensorRef,
    are_equal,
    describe_layers,
    find_layer_map,
    folder_at,
    name_some,
)
from ..extraction.other_tensors import name_in_memory, names_in_base, parameters, starts_of
from .changes import describe_shapes, unmapped_layers
from .opened_model import OpenedModel, open_model

TensorPairs = Sequence[tuple[str, str]]
"""Layer matrices that belong together, by name: they tell which names mean the same."""

LeftOut = tuple[tuple[str, ...], tuple[str, ...]]
"""What names begin with that are not compared: of the model, of the other."""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")

OTHERS = "embeddings, norms, biases and heads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Names of a model's tensors, of `missing` ones the other's; all empty where both are equal, up
    to the rounding of the model's stored type."""

    changed: tuple[str, ...] = ()
    reshaped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.reshaped or self.added or self.missing)

    def without(self, matrices: Collection[str], *, values: bool = False) -> Differences:
        """The same but for shapes of some matrices, and those that were added; also but for their
        values."""
        left = {
            what: tuple(name for name in getattr(self, what) if name not in matrices)
            for what in ("reshaped", "added", *(["changed"] if values else []))
        }
        return replace(self, **left)

    def in_words(self) -> list[str]:
        sentences = (
            ("changed", self.changed),
            ("of another shape", self.reshaped),
            ("added", self.added),
            ("missing", self.missing),
        )
        return [f"{what}: {_listed(names)}" for what, names in sentences if names]


def _listed(names: Sequence[str]) -> str:
    """Names, those that differ in numbers alone once, with how many they are."""
    counts = Counter(_NUMBER.sub("*", name) for name in names)
    alone = {_NUMBER.sub("*", name): name for name in names}
    return name_some([f"{n} × {like}" if n > 1 else alone[like] for like, n in counts.items()])


def compare_whole(
    model: OpenedModel, other: OpenedModel, pairs: TensorPairs, left_out: LeftOut = ((), ())
) -> Differences:
    """Every tensor of a model beside that of another which `pairs` show to mean the same, but for
    those that are left out."""
    ours, theirs = (parameters(m.checkpoint, m.config) for m in (model, other))
    starts = starts_of(
        (name_in_memory(a, model.config), name_in_memory(b, other.config)) for a, b in pairs
    )
    found: dict[str, list[str]] = {"changed": [], "reshaped": [], "added": []}
    met = set()
    for name, tensor in ours.items():
        if name.startswith(left_out[0]):
            continue
        own = next((theirs[n] for n in names_in_base(name, starts) if n in theirs), None)
        if own is None:
            found["added"].append(name)
            continue
        met.add(own)
        ref, base = model.checkpoint.tensors[tensor], other.checkpoint.tensors[own]
        if ref.shape != base.shape and not _are_rows_of_tokens(model, ref, other, base):
            found["reshaped"].append(name)
        elif not are_equal(model.checkpoint, tensor, other.checkpoint, own):
            found["changed"].append(name)
    known = met | {own for name, own in theirs.items() if name.startswith(left_out[1])}
    missing = [name for name, own in theirs.items() if own not in known]
    return Differences(
        **{what: tuple(names) for what, names in found.items()}, missing=tuple(missing)
    )


def _are_rows_of_tokens(
    model: OpenedModel, ref: TensorRef, other: OpenedModel, own: TensorRef
) -> bool:
    """Whether two tensors have a row for each token of their models."""
    rows = (ref.shape[:1], own.shape[:1])
    tokens = ((m.facts.get("vocabulary"),) for m in (model, other))
    return rows == tuple(tokens) and ref.shape[1:] == own.shape[1:]


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Why two models' tensors were not compared."""

    reason: str


def compare_mapped(
    model: OpenedModel, other: OpenedModel, found: LayerMap
) -> Differences | NotCompared:
    """The same by a map of the model's layers to the other's."""
    if not found.by_name:
        return NotCompared("its tensors have other names")
    pairs = [(child.tensor, own.tensor) for child, own in found.pairs]
    left_out = (
        unmapped_layers(model.matrices, [(stack, layer) for stack, layer, _ in found.layers]),
        unmapped_layers(other.matrices, [(stack, layer) for stack, _, layer in found.layers]),
    )
    return compare_whole(model, other, pairs, left_out)


def compare_with_folder(
    model: OpenedModel, source: str, found: LayerMap
) -> Differences | NotCompared:
    """The same beside the model in a folder, where both are on this machine."""
    if model.member.folder is None:
        return NotCompared("its files are not on this machine")
    folder = folder_at(source)
    if folder is None:
        return NotCompared(f"the files of {source} are not on this machine")
    try:
        with open_model(str(folder)) as other:
            return compare_mapped(model, other, found)
    except ModelError as err:
        return NotCompared(f"{source}: {err}")


def compare_folders(source: str, other: str, *, matrices: bool = True) -> list[str] | NotCompared:
    """What differs between the full checkpoints in two folders, in words; empty where nothing does.

    Args:
        matrices: Whether layer matrices are compared too, beside their shapes.
    """
    for name in (source, other):
        if not Path(name).is_absolute() or folder_at(name) is None:
            return NotCompared(f"the files of {name or 'one'} are not on this machine")
    try:
        with open_model(source) as ours, open_model(other) as theirs:
            if ours.itemsize > theirs.itemsize:
                ours, theirs = theirs, ours
            found = find_layer_map(ours.samples, theirs.samples)
            if found is None or not found.is_significant:
                return NotCompared("their layers do not correspond")
            differences = compare_mapped(ours, theirs, found)
            if isinstance(differences, NotCompared):
                return differences
            inside = {m.tensor for m in ours.matrices}
            left = differences.without(inside, values=not matrices)
            shapes = describe_shapes(found, ours.matrices, theirs.matrices)
            return [*describe_layers(found), *shapes, *left.in_words()]
    except ModelError as err:
        return NotCompared(str(err))
