"""Parents of merges of real fine-tunes, found among them and 10,000 synthetic distractors.

    python -m benchmarks.provenance.parents FAMILY [--merges 200] [--distractors 10000] [--seed 0]

FAMILY is a folder of fine-tunes of the base, as `python -m benchmarks.families` trains them.
Merges of 2 to 4 of them are made in memory by mergekit's formulas and sketched as `index` does.
Distractors have the norms of real updates by matrix; half of them are siblings, at a cosine of .5,
of a real model, the rest come in fours at .5. Rivals in the same run: non-negative least squares
over all models, and nearest neighbours by cosine, which are told how many parents there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

import deltadex
from deltadex.indexer import RowSample
from deltadex.indexer.base import BaseWeights, resolve_base, wanted_base
from deltadex.indexer.delta import DenseDelta, MatrixUpdate, Scratch, rounding_norm, update_against
from deltadex.indexer.family import find_member
from deltadex.indexer.fingerprint import UpdateCollector
from deltadex.indexer.job import Job
from deltadex.indexer.updates import collect_adapter, collect_full
from deltadex.provenance.merge_formulas import FORMULAS, combine, slerp_weights
from deltadex.provenance.parents import Updates
from deltadex.records import LINEAR_DIM, LINEAR_LAYER_DIM

from ..families.base import base_folder

COSINE = 0.5
SIBLINGS = 4
LEAST_WEIGHT = 0.12
KINDS = (
    ("linear", None),
    ("linear by layer", None),
    ("task arithmetic", None),
    ("slerp", None),
    ("linear, bfloat16", None),
    ("ties", 0.5),
    ("ties", 0.2),
    ("dare_linear", 0.5),
    ("dare_linear", 0.1),
    ("dare_ties", 0.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge that is made: `weights` by layer, as its config file would have them."""

    kind: str
    density: float | None
    parents: tuple[int, ...]
    weights: np.ndarray  # (parents, layers)

    @property
    def name(self) -> str:
        return self.kind if self.density is None else f"{self.kind} {self.density}"


@dataclass(slots=True)
class Family:
    """Real fine-tunes: their sketches, and their updates, read from the files."""

    catalog: object
    base: str
    ids: list[str]
    updates: Updates
    recipe: object
    weights: BaseWeights
    family_updates: object
    folder: Path
    sample: RowSample

    @classmethod
    def read(cls, folder: Path, catalog: Path) -> Family:
        db = deltadex.open(str(catalog))
        if not db._catalog.bases():
            db.index(str(base_folder()), str(folder))
        own = db._catalog
        base = own.bases()[0]
        view = own.family(base, own.find_recipe("sketch", base))
        updates = view.updates()
        opened = resolve_base(own, base)
        return cls(
            catalog=own,
            base=base,
            ids=list(view.ids),
            updates=Updates.of_family(view.ids, updates),
            recipe=view.recipe,
            weights=opened.weights(),
            family_updates=updates,
            folder=folder,
            sample=RowSample.of_base(own, base),
        )

    @lru_cache(maxsize=80)  # noqa: B019
    def deltas(self, row: int) -> dict:
        """ΔW by slot and part, float32."""
        base = resolve_base(self.catalog, self.base)
        job = Job(base=base, wanted=wanted_base(base), recipes=(), layout=())
        member = find_member(str(self.folder / self.ids[row]), self.base).with_config()
        keeper = _Keeper()
        with closing(member.checkpoint()) as checkpoint:
            collect = collect_adapter if member.is_adapter else collect_full
            collect(member, checkpoint, job, keeper)
        return keeper.kept

    @lru_cache(maxsize=80)  # noqa: B019
    def rows(self, row: int) -> dict:
        return self.sample.read(str(self.folder / self.ids[row]))

    __hash__ = object.__hash__


@dataclass(slots=True)
class _Keeper:
    kept: dict = field(default_factory=dict)

    def measure(self, update: MatrixUpdate) -> tuple:
        delta = update.delta
        if delta is None:
            return (update.slot, update.part), None
        matrix = delta.matrix.clone() if isinstance(delta, DenseDelta) else delta.left @ delta.right
        return (update.slot, update.part), matrix

    def take(self, measured: tuple) -> None:
        self.kept[measured[0]] = measured[1]


def planned(family: Family, n_merges: int, seed: int) -> Iterator[Merge]:
    """Merges of every kind in turn, of 2, 3 and 4 parents in turn."""
    rng = np.random.default_rng(seed)
    n_layers = len(family.updates.layer_names)
    for number in range(n_merges):
        kind, density = KINDS[number % len(KINDS)]
        n_parents = 2 if kind == "slerp" else 2 + number // len(KINDS) % 3
        parents = tuple(rng.choice(len(family.ids), n_parents, replace=False).tolist())
        while (weights := rng.dirichlet(np.full(n_parents, 8.0))).min() < LEAST_WEIGHT:
            pass
        by_layer = np.repeat(weights[:, None], n_layers, axis=1)
        if kind == "linear by layer":
            by_layer = rng.dirichlet(30 * weights, n_layers).T
        if kind == "task arithmetic":
            scale = rng.uniform(0.6, 1.4)
            by_layer = by_layer * scale * np.where(np.arange(n_parents) == 0, 1.0, 1.0)[:, None]
            if number // len(KINDS) % 2:
                by_layer[-1] *= -1
        yield Merge(kind=kind, density=density, parents=parents, weights=by_layer)


def made(family: Family, merge: Merge, seed: int) -> tuple[Updates, dict]:
    """The merge's update as `index` measures it, and its sampled rows."""
    random = torch.Generator().manual_seed(seed)
    collector, rows = UpdateCollector([family.recipe], ()), {}
    deltas = [family.deltas(row) for row in merge.parents]
    layer_of = {name: column for column, name in enumerate(family.updates.layer_names)}
    dtype = torch.bfloat16 if "bfloat16" in merge.kind else torch.float32
    for key in sorted(family.weights.placed.by_key):
        slot, part = key
        with family.weights.matrix(key) as stored:
            base = stored.float().clone()
        own = [torch.zeros_like(base) if d.get(key) is None else d[key] for d in deltas]
        weights = merge.weights[:, layer_of[slot.stack, slot.layer]]
        child = merged_matrix(base, torch.stack(own), weights, merge, random).to(dtype)
        delta = update_against(child, stored, Scratch())
        part_read = family.sample.parts.parts[key]
        rows[key] = child.narrow(part_read.axis, part_read.start, part_read.stop - part_read.start)
        update = MatrixUpdate(
            slot=slot,
            part=part,
            delta=delta if delta.norm > 0 else None,
            shape=(base.shape[0], base.shape[1]),
            noise_norm=rounding_norm(float(base.norm()), dtype),
            weight_norm=float(base.norm()),
        )
        collector.take(collector.measure(update))
    return as_updates(family, collector), {key: part.clone() for key, part in rows.items()}


def as_updates(family: Family, collector: UpdateCollector) -> Updates:
    sketch, slots = collector.linear_sketch(), {s.slot: s for s in collector.statistics()}
    names, like = family.updates.layer_names, family.family_updates
    one = replace(
        like,
        keys=np.array([0]),
        sketched=np.array([True]),
        pooled=sketch.pooled[None],
        layers=np.stack([sketch.layers.get(n, np.zeros(256, np.float32)) for n in names])[None],
        **{
            name: np.array([[getattr(slots[slot], name) for slot in like.slots]], dtype=np.float64)
            for name in ("fro_norm", "noise_floor", "relative_norm", "zero_share")
        },
    )
    return Updates.of_family(["merge"], one)


def merged_matrix(base, deltas, weights, merge: Merge, random) -> torch.Tensor:
    """One matrix of the merge by mergekit's formulas, float32."""
    column = torch.tensor(weights, dtype=torch.float32)[:, None, None]
    models = base + deltas
    if merge.kind == "slerp":
        a, b = models[0].flatten(), models[1].flatten()
        cosine = float((a / a.norm()) @ (b / b.norm()))
        one, other = slerp_weights(float(weights[1]), cosine)
        return one * models[0] + other * models[1]
    if merge.kind.startswith("linear"):
        return (models * column).sum(0) / column.sum()
    if merge.kind == "task arithmetic":
        return base + ((models - base) * column).sum(0)
    formula = FORMULAS[merge.kind]
    parts = models - base
    if formula.trims:
        kept = []
        for part in parts:
            n_kept = max(1, int(merge.density * part.numel()))
            mask = torch.zeros(part.numel())
            mask[torch.argsort(part.abs().flatten(), descending=True)[:n_kept]] = 1
            kept.append(part * mask.view_as(part))
        parts = torch.stack(kept)
    if formula.drops:
        mask = (torch.rand(parts.shape, generator=random) < merge.density).float()
        masked = parts * mask
        before, after = parts.abs().sum((1, 2)), masked.abs().sum((1, 2))
        scale = torch.where((before < 1e-7) | (after < 1e-7), 1.0, before / after.clamp(min=1e-30))
        parts = masked * scale[:, None, None]
    return base + combine(parts, column, formula)


def distractors(real: Updates, number: int, seed: int) -> Updates:
    """Synthetic updates in sketch space, with real norms by matrix."""
    rng = np.random.default_rng(seed + 1)
    n_layers = len(real.layer_names)
    origins = rng.integers(0, len(real.ids), number)
    norms = real.norms[origins] * rng.lognormal(0.0, 0.3, number)[:, None]
    by_layer = np.zeros((number, n_layers))
    for slot, layer in enumerate(real.slot_layers):
        by_layer[:, layer] += norms[:, slot] ** 2
    pooled = np.zeros((number, LINEAR_DIM), dtype=np.float32)
    layers = np.zeros((number, n_layers, LINEAR_LAYER_DIM), dtype=np.float32)
    shared = np.zeros((n_layers, LINEAR_DIM))
    for row in range(number):
        own = rng.standard_normal((n_layers, LINEAR_DIM)) / LINEAR_DIM**0.5
        if row < number // 2:
            # a sibling of a real model: its sketch, and noise of its own
            numbers = own * np.sqrt(by_layer[row])[:, None] * (1 - COSINE**2) ** 0.5
            scale = np.sqrt(by_layer[row].sum() / (real.norms[origins[row]] ** 2).sum()) * COSINE
            pooled[row] = numbers.sum(0) + scale * real.pooled[origins[row]]
            layers[row] = numbers.reshape(n_layers, -1, LINEAR_LAYER_DIM).sum(1)
            layers[row] += scale * real.layers[origins[row]]
            continue
        if row % SIBLINGS == 0:
            shared = rng.standard_normal((n_layers, LINEAR_DIM)) / LINEAR_DIM**0.5
        numbers = COSINE**0.5 * shared + (1 - COSINE) ** 0.5 * own
        numbers *= np.sqrt(by_layer[row])[:, None]
        pooled[row] = numbers.sum(0)
        layers[row] = numbers.reshape(n_layers, -1, LINEAR_LAYER_DIM).sum(1)
    return replace(
        real,
        ids=[f"distractor-{row}" for row in range(number)],
        sketched=np.ones(number, dtype=np.bool_),
        pooled=pooled,
        layers=layers,
        floors=real.floors[origins],
        norms=norms,
        slot_floors=real.slot_floors[origins],
        zeros=real.zeros[origins],
    )


def joined(one: Updates, other: Updates) -> Updates:
    names = ("sketched", "pooled", "layers", "floors", "norms", "slot_floors", "zeros")
    arrays = {n: np.concatenate([getattr(one, n), getattr(other, n)]) for n in names}
    return replace(one, ids=[*one.ids, *other.ids], **arrays)
