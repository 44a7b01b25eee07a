"""Whether a model is a merge: its parents by sketches, then by rows where weights can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...errors import BaseError, ModelError, RequestError
from ...indexer import Key, RowSample, fingerprint_query, folder_at
from ...records import Indexed, Slot
from ...store import SLOT_NUMBERS, Catalog, FamilyUpdates, FamilyView, ModelRow
from .file_on_rows import Matrices, Place, Reconstruction
from .parents import MOST_CHANGED, SCREENED, Kind, Parent, Parentage, find_parents, near_rows
from .reconstruction import reconstruct

BLOCK_MODELS = 8192

SUM_OF_MEAN = 0.02
"""How far the weights of a mean are from 1, by sketches."""

HUB = "hub"

ATTENTION = frozenset(("q", "k", "v", "qkv", "o", "cross_q", "cross_k", "cross_v", "cross_o"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMerge:
    """What is known of a model as a merge.

    Attributes:
        base: Of the family.
        sources: Folder or Hub id of each parent, an adapter's as `BASE+ADAPTER`; the base's last.
        proof: None where the weights of the model, its base or a parent cannot be read.
        modules: The name of each matrix's module, for filters of a config file.
        unequal: Tensors that are not of one shape in the models that a config file names.
    """

    model: str
    base: str
    parentage: Parentage
    proof: Reconstruction | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    modules: Mapping[Key, str] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    unequal: tuple[str, ...] = ()

    @property
    def is_merge(self) -> bool:
        return self.parentage.kind in ("merge", "scaled")

    def to_json(self) -> dict[str, Any]:
        """What `trace` says of a merge, beside the numbers of its `Parentage`.

        Returns:
            `parents` of a merge; `related`: models whose updates are part of an update that they do
            not explain. `complete`: whether a config file gives the model again but for rounding;
            None where that cannot be told. `reconstructed_share`: of a hundredth of the entries,
            those that the config file gives up to rounding, None without one, or weights;
            `chance_share`: of a wrong recipe.
        """
        found, proof = self.parentage, self.proof
        file = proof if proof and proof.method is not None and not proof.is_drawn else None
        rows = [_parent_row(parent) for parent in found.parents if found.is_related]
        return {
            "parents": rows if self.is_merge else [],
            "related": [] if self.is_merge else rows,
            "method": found.method if self.is_merge else None,
            "density": found.density,
            "unexplained": round(found.unexplained, 6) if rows else None,
            "complete": found.is_complete if rows else None,
            "reconstructed_share": round(file.share, 4) if file else None,
            "chance_share": round(file.chance, 4) if file else None,
            "copies": list(found.copies),
        }

    @property
    def sentence(self) -> str:
        """What is known of it as a merge, in words."""
        found, rest = self.parentage, f"{self.parentage.unexplained:.2g}"
        named = " + ".join(f"{p.weight:.3g} {p.model}" for p in found.parents)
        if found.kind == "rounding":
            return "its update is hardly more than storage rounding: no parents can be found"
        same = f"the same update as {', '.join(found.copies)}" if found.copies else ""
        if not found.is_related or (same and found.kind == "part"):
            return same or "not a merge of what is indexed"
        first = f"{same}; or " if same else ""  # any of them may have been made of another
        if found.kind == "scaled":
            return f"{first}{named}, the rest of the base's weights"
        if found.kind == "merge" and found.is_complete is not False:
            method = found.method or "a method that is not known"
            return f"{first}a merge by {method}: {named}{self._doubt}"
        if found.kind == "merge":
            return (
                f"a merge by a method that is not known, or changed since: {named}; {rest} of "
                "|ΔW|² is of that, or of a parent of small weight that is not indexed"
            )
        if len(found.parents) == 1:
            return (
                f"not a merge of what is indexed: {named}, and {rest} of |ΔW|² of training, or of "
                "a parent that is not indexed"
            )
        return (
            f"whether it is a merge of what is indexed cannot be told: beside {named}, {rest} of "
            "|ΔW|² is of a parent that is not indexed, of training, or of a method that is not "
            "known"
        )

    @property
    def _doubt(self) -> str:
        """What keeps a merge's recipe from being proven."""
        found, proof = self.parentage, self.proof
        if found.is_complete:
            return ""
        if proof is None:
            return "; by sketches alone, which a sibling may mislead"
        if not proof.explains:
            return "; no recipe that is known makes it again"
        return "; its entries were drawn at random: no file makes them again" * proof.is_drawn


NO_MERGE = FoundMerge(model="", base="", parentage=Parentage(kind="none"))
"""What is said of a model that was not compared with a family."""


def _parent_row(parent: Parent) -> dict[str, Any]:
    row: dict[str, Any] = {"model": parent.model, "weight": round(parent.weight, 4)}
    if parent.layers:
        row["layers"] = {f"{s}.{n}": round(w, 4) for (s, n), w in parent.layers.items()}
    if parent.equal:
        row["equal"] = list(parent.equal)
    return row


def find_merge(
    catalog: Catalog, base: str, model: str, row: ModelRow | None, source: str | None
) -> FoundMerge | None:
    """What a model was merged from, of its base's family; None where the family keeps no sketches
    that tell.

    Args:
        row: Of an indexed model; another is read whole for its sketch.
        source: The model's folder or Hub id; None where its files are not there: then nothing can
            be proven.

    Raises:
        RequestError: a model that is not indexed cannot be read.
    """
    recipe = next((r for r in catalog.recipes_of(base) if r.has_linear_sketch), None)
    if recipe is None:
        return None
    view = catalog.family(base, recipe)
    own = None if row is None else next(iter(view.rows([row.id]).tolist()), None)
    if own is None and source is None:
        return None
    indexed = None if own is not None else fingerprint_query(catalog, str(source), base, recipe)
    target, family, ids = catalog.look(lambda: _read_family(view, own, indexed))
    created = {r.id: r.record.created_at for r in catalog.models(base=base, status="indexed")}
    made = created.get(row.id) if row is not None else None
    later = [n for n, id in enumerate(ids) if made and (created.get(id) or "") > made]
    notes, excluded = list[str](), [] if own is None else [ids.index(view.ids[own])]
    while True:
        parentage = find_parents(target, family, ids, excluded=excluded, later=later)
        if (mean := _mean_of_it(parentage.parents)) is None:
            break
        notes.append(f"{mean.model} is a merge of it, with a weight of {1 / mean.weight:.3g}")
        excluded.append(ids.index(mean.model))
    if source is None and parentage.parents:
        notes.append("its files are not there: its parents are by sketches, and not proven")
    merge = FoundMerge(model=model, base=base, parentage=parentage, notes=tuple(notes))
    return merge if source is None or not parentage.is_related else _proven(catalog, merge, source)


def _mean_of_it(parents: Sequence[Parent]) -> Parent | None:
    """The parent that is itself a mean of the model and the others, if one is: x = (m − bp) / a is
    m = ax + bp."""
    above = [parent for parent in parents if parent.weight > 1]
    if len(parents) < 2 or len(above) != 1 or any(0 < p.weight <= 1 for p in parents):
        return None
    return above[0] if abs(sum(parent.weight for parent in parents) - 1) <= SUM_OF_MEAN else None


def _read_family(
    view: FamilyView, own: int | None, indexed: Indexed | None
) -> tuple[FamilyUpdates, FamilyUpdates, list[str]]:
    """The update in question, `own` row or `indexed`; those of its family, of a large one the
    nearest; and their ids."""

    def wanted(updates: FamilyUpdates) -> FamilyUpdates:
        if indexed is not None:
            return updates_of(indexed, updates)
        return updates.take(np.flatnonzero(updates.keys == view.keys[own]).tolist())

    keys = view.keys
    if len(keys) > 2 * SCREENED:
        target = wanted(view.updates(keys[own or 0 :][:1]))
        near = [
            near_rows(target, view.updates(keys[start : start + BLOCK_MODELS]))
            for start in range(0, len(keys), BLOCK_MODELS)
        ]
        chosen = np.sort(np.argsort(-np.concatenate(near), kind="stable")[:SCREENED])
        keys = keys[chosen if own is None else np.union1d(chosen, [own])]
    updates = view.updates(keys)
    ids = [view.ids[row] for row in np.searchsorted(view.keys, keys)]
    return wanted(updates), updates, ids


def updates_of(indexed: Indexed, like: FamilyUpdates) -> FamilyUpdates:
    """A model that is not in the catalog as a row of a family's updates."""
    sketch = indexed.linear
    pooled = np.zeros_like(like.pooled[:1])
    layers = np.zeros((1, *like.layers.shape[1:]), dtype=np.float32)
    if sketch is not None:
        pooled[0] = sketch.pooled
        for place, name in enumerate(like.layer_names):
            layers[0, place] = sketch.layers.get(name, 0.0)
    of_slot: dict[Slot, Any] = {stats.slot: stats for stats in indexed.slots}
    known = [of_slot.get(slot) for slot in like.slots]
    columns: dict[str, Any] = {  # NumPy makes NaN of None
        name: np.array([[getattr(own, name, None) for own in known]], dtype=np.float64)
        for name in SLOT_NUMBERS
    }
    return replace(
        like,
        keys=np.array([-1], dtype=np.int64),
        sketched=np.array([sketch is not None]),
        pooled=pooled,
        layers=layers,
        **columns,
    )


def _proven(catalog: Catalog, merge: FoundMerge, source: str) -> FoundMerge:
    """The merge with its recipe as the rows of its weights show it, where they do."""
    found = merge.parentage
    family = {row.id: row for row in catalog.models(base=merge.base, status="indexed")}
    try:
        sample = RowSample.of_base(catalog, merge.base)
        base, merged = sample.of_the_base(), sample.read(source)
        read = [_readable(parent, sample, family) for parent in found.parents]
    except (BaseError, ModelError, RequestError) as err:
        return replace(merge, notes=(*merge.notes, f"not proven by its weights: {err}"))
    named, sources, rows = zip(*read, strict=True)
    weights, places = [parent.weight for parent in found.parents], setting_places(sample.modules)
    proof = reconstruct(base, merged, rows, weights, places=places)
    if proof is None:
        return merge
    of_base = str(sample.base.folder or sample.base.name)
    called = [
        f"{of_base}+{source}" if family[parent.model].record.kind == "adapter" else source
        for parent, source in zip(named, sources, strict=True)
    ]
    return replace(
        merge,
        parentage=_agreed(found, named, proof, next(slot.stack for slot, _ in base)),
        proof=proof,
        sources=(*called, of_base),
        modules=sample.modules,
        dtype=next(iter(merged.values())).dtype,
        unequal=_unequal(sample, sources),
    )


def _readable(
    parent: Parent, sample: RowSample, family: Mapping[str, ModelRow]
) -> tuple[Parent, str, Matrices]:
    """The parent under the first of its names whose files can be read, where these are, and its
    rows."""
    reasons = []
    names = (parent.model, *parent.equal)
    for name in names:
        source = source_of(family[name]) if name in family else None
        try:
            if source is None:
                raise ModelError("not-found", "its files are not there")
            others = tuple(other for other in names if other != name)
            return replace(parent, model=name, equal=others), source, sample.read(source)
        except (BaseError, ModelError, RequestError) as err:
            reasons.append(f"{name}: {err}")
    raise RequestError(reasons[0])


def _unequal(sample: RowSample, sources: Sequence[str]) -> tuple[str, ...]:
    """Tensors that the parents, or the base and a parent, have in different shapes."""
    refs = sample.base.weights().checkpoint.tensors
    of_base = {name: tuple(ref.shape) for name, ref in refs.items()}
    models = of_base, *(sample.shapes.get(source, {}) for source in sources)
    shapes = {shape for model in models for shape in model.items()}
    counts = Counter(name for name, _ in shapes)
    return tuple(sorted(name for name, n in counts.items() if n > 1))


def _agreed(
    found: Parentage, named: Sequence[Parent], proof: Reconstruction, stack: str
) -> Parentage:
    """What sketches say, corrected by the rows; only what a file gives again is complete."""
    if not proof.explains:
        is_close = found.kind == "merge" and found.is_complete is not False
        is_small = found.method is None and found.unexplained <= MOST_CHANGED
        kind: Kind = "merge" if is_close or (is_small and found.kind == "merge") else "part"
        complete = None if is_close else False
        unproven = replace(found, parents=tuple(named), kind=kind, is_complete=complete)
        return replace(unproven, method=None, density=None)
    parents = []
    for place, (parent, weight) in enumerate(zip(named, proof.weights, strict=True)):
        layers = _by_layer(stack, {own: w[place] for own, w in proof.by_place.items()})
        parents.append(replace(parent, weight=weight, layers=layers))
    said = {round(float(w), 3) for by in (proof.weights, *proof.by_place.values()) for w in by}
    if len(parents) == 1 and said == {1.0} and not proof.densities:
        copies = dict.fromkeys((*found.copies, parents[0].model, *parents[0].equal))
        return Parentage(kind="copy", copies=tuple(copies))
    return replace(
        found,
        kind="merge" if len(parents) > 1 else "scaled",
        parents=tuple(parents),
        method=proof.method,
        density=float(np.mean(proof.densities)) if proof.densities else None,
        unexplained=0.0,
        is_complete=True if proof.is_reproduced else None,
    )


def _by_layer(stack: str, weights: Mapping[Place, float]) -> dict[tuple[str, int], float]:
    layers: dict[tuple[str, int], list[float]] = {}
    for (layer, _), weight in sorted(weights.items()):
        layers.setdefault((stack, layer), []).append(weight)
    return {name: float(np.mean(values)) for name, values in layers.items()}


def source_of(row: ModelRow) -> str | None:
    """The folder or Hub id that a model was read from; None where that is not there any more."""
    source = row.record.place
    if source == HUB:
        return row.id
    return source if Path(source).is_absolute() and folder_at(source) is not None else None


def setting_places(modules: Mapping[Key, str]) -> Mapping[Key, Place] | None:
    """Where a config file may give each matrix weights of its own; None of several stacks, whose
    layers it cannot tell apart."""
    if len({slot.stack for slot, _ in modules}) != 1:
        return None
    tells = attention_name(modules) is not None
    return {key: (key[0].layer, tells and key[0].role in ATTENTION) for key in modules}


def attention_name(modules: Mapping[Key, str]) -> str | None:
    """The part of module names that attention's have, and no others do."""
    inside = [set(m.split(".")) for (slot, _), m in modules.items() if slot.role in ATTENTION]
    beside = [set(m.split(".")) for (slot, _), m in modules.items() if slot.role not in ATTENTION]
    common = set.intersection(*inside) if inside else set[str]()
    return min(common.difference(*beside), default=None)
