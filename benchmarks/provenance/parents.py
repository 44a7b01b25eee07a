"""Parents of merges of real fine-tunes, found among them and 10,000 synthetic distractors.

    python -m benchmarks.provenance.parents FAMILY [--merges 200] [--distractors 10000] [--seed 0]

FAMILY is a folder of fine-tunes of the base, as `python -m benchmarks.families` trains them.
Merges of 2 to 4 of them are made in memory by mergekit's formulas and sketched as `index` does.
Distractors have the norms of real updates by matrix; half of them are siblings, at a cosine of .5,
of a real model, the rest come in fours at .5. Rivals in the same run: non-negative least squares
over all models, and nearest neighbours by cosine, which are told how many parents there are.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls

import deltadex
from deltadex.indexer import RowSample
from deltadex.indexer.base import BaseWeights, resolve_base, wanted_base
from deltadex.indexer.delta import DenseDelta, MatrixUpdate, Scratch, rounding_norm, update_against
from deltadex.indexer.family import find_member
from deltadex.indexer.fingerprint import UpdateCollector
from deltadex.indexer.job import Job
from deltadex.indexer.updates import collect_adapter, collect_full
from deltadex.provenance.merges.merge_formulas import FORMULAS, combine, slerp_weights
from deltadex.provenance.merges.merges import Merge as FoundMerge
from deltadex.provenance.merges.merges import Proof
from deltadex.provenance.merges.parents import (
    Dictionary,
    Parentage,
    Updates,
    _features,
    find_parents,
)
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
    rows_of: dict

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
            rows_of={row.id: row for row in own.models(base=base, status="indexed")},
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said of one merge. `is_set`: the parents are those that it was made of; `error`: the
    mean error of a weight; `said`: that nothing is missing."""

    name: str
    is_set: bool
    error: float
    is_complete: bool
    method: str | None = None


def answered(merge: Merge, ids: Sequence[str], found: Parentage) -> Answer:
    truth = dict(zip((ids[row] for row in merge.parents), merge.weights, strict=True))
    given = {parent.model: parent for parent in found.parents}
    names = set(given).union(*(p.equal for p in found.parents)) if given else set()
    is_set = found.kind == "merge" and len(given) == len(truth) and set(truth) <= names
    errors = []
    total = sum(float(own.mean()) for own in truth.values())
    # TIES divides by the weights: their sum is nobody's
    scale = total if found.method == "ties" else 1.0
    for model, own in truth.items():
        parent = given.get(model)
        if parent is None:
            errors.append(float(np.abs(own).mean()))
        elif parent.layers:
            names_of = [name for name in LAYER_NAMES if name in parent.layers]
            pairs = ((parent.layers[n], own[LAYER_NAMES.index(n)]) for n in names_of)
            errors.append(float(np.mean([abs(a - b) for a, b in pairs])))
        else:
            errors.append(abs(parent.weight * scale - float(own.mean())))
    return Answer(
        name=merge.name,
        is_set=is_set,
        error=float(np.mean(errors)),
        is_complete=found.kind in ("merge", "scaled") and found.is_complete is True,
        method=found.method,
    )


LAYER_NAMES: list[tuple[str, int]] = []


def by_rows(family: Family, merged: dict, found: Parentage, absent: Sequence[str]) -> Parentage:
    """What the rows of the files say; distractors, and parents that are absent, have none."""
    if not found.is_related:
        return found
    known = {i: r for i, r in family.rows_of.items() if i not in absent}
    read = {family.ids[row]: family.rows(row) for row in range(len(family.ids))}
    read = {name: rows for name, rows in read.items() if name not in absent}
    merge = FoundMerge(model="merge", base=family.base, parentage=found)
    proof = Proof(merge, family.sample, family.sample.of_the_base(), merged, known, read)
    return proof.proven().parentage


def rivals(target: Updates, dictionary: Dictionary, n_parents: int) -> list[list[str]]:
    """Parents by non-negative least squares, and by cosine; as many as there are."""
    space = dictionary.whole.updates[:, 0]
    own = _features(target)[0].astype(np.float64)
    products = space @ own.astype(np.float32)
    cosines = products / np.sqrt(np.maximum(dictionary.whole_norms[:, 0], 1e-30))
    ids = dictionary.updates.ids
    # the solver takes minutes for 10,000 columns: those that are nearest
    near = np.argsort(-cosines, kind="stable")[:NNLS_MODELS]
    weights, _ = nnls(space[near].T.astype(np.float64), own, maxiter=100 * NNLS_MODELS)
    sizes = weights * np.sqrt(dictionary.whole_norms[near, 0])
    largest = near[np.argsort(-sizes, kind="stable")[:n_parents]]
    return [[ids[row] for row in rows] for rows in (largest, near[:n_parents])]


NNLS_MODELS = 600


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("family", type=Path)
    parser.add_argument("--merges", type=int, default=200)
    parser.add_argument("--distractors", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--catalog", type=Path, help="of the family, kept for the next run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        catalog = options.catalog or Path(folder) / "family.duckdb"
        family = Family.read(options.family.resolve(), catalog)
        measure(family, options)


def measure(family: Family, options: argparse.Namespace) -> None:
    LAYER_NAMES[:] = family.updates.layer_names
    real = len(family.ids)
    fake = distractors(family.updates, options.distractors, options.seed)
    dictionary = Dictionary.of(joined(family.updates, fake))
    origins = np.random.default_rng(options.seed + 1).integers(0, real, options.distractors)
    table = defaultdict(list)
    seconds = []
    for number, merge in enumerate(planned(family, options.merges, options.seed)):
        target, rows = made(family, merge, options.seed + number)
        start = time.perf_counter()
        found = find_parents(target, dictionary)
        seconds.append(time.perf_counter() - start)
        row = {"sketches": answered(merge, family.ids, found)}
        row["rows"] = answered(merge, family.ids, by_rows(family, rows, found, ()))
        gone = merge.parents[number % len(merge.parents)]
        kin = real + np.flatnonzero(origins[: options.distractors // 2] == gone)
        for name, excluded in (("absent", [gone, *kin]), ("sibling", [gone, *kin[1:]])):
            without = find_parents(target, dictionary, excluded=excluded)
            row[name] = answered(merge, family.ids, without)
            checked = by_rows(family, rows, without, [family.ids[gone]])
            row[f"{name} rows"] = answered(merge, family.ids, checked)
        truth = {family.ids[parent] for parent in merge.parents}
        row["rivals"] = [set(r) == truth for r in rivals(target, dictionary, len(truth))]
        table[merge.name].append(row)
        print(f"# {number} {merge.name} {len(truth)}", *_flags(row), flush=True)
    print(f"seed {options.seed}, {real} fine-tunes, {options.distractors} distractors,", end=" ")
    print(f"{platform.machine()}, {np.median(seconds):.2f} s a merge by sketches (median)")
    print_table(table)


def _flags(row: dict) -> Iterator[str]:
    for name in ("sketches", "rows"):
        yield f"{name} {'set' if row[name].is_set else 'WRONG'} {row[name].error:.3f}"
    for name in ("sketches", "rows"):
        yield f"{name} {'complete' if row[name].is_complete else 'open'}"
    for name in ("absent", "absent rows", "sibling", "sibling rows"):
        yield f"{name} {'UNSAID' if row[name].is_complete else 'said'}"


def print_table(table: dict) -> None:
    heads = ("merges", "n", "set", "error", "nothing missing", "method", "set", "error")
    heads += (
        "nothing missing",
        "method",
        "absent",
        "absent",
        "sibling",
        "sibling",
        "NNLS",
        "cosine",
    )
    print("| " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (len(heads) - 1))
    rows = [*table.items(), ("all", [row for rows in table.values() for row in rows])]
    for name, merges in rows:
        cells = [name, str(len(merges))]
        for way in ("sketches", "rows"):
            answers = [row[way] for row in merges]
            cells.append(f"{np.mean([a.is_set for a in answers]):.3f}")
            cells.append(f"{np.mean([a.error for a in answers]):.3f}")
            cells.append(f"{np.mean([a.is_complete for a in answers]):.2f}")
            right = [_same_method(a) for a in answers]
            cells.append(f"{np.mean(right):.2f}")
        for way in ("absent", "absent rows", "sibling", "sibling rows"):
            cells.append(f"{np.mean([not row[way].is_complete for row in merges]):.2f}")
        cells += [f"{np.mean([row['rivals'][i] for row in merges]):.2f}" for i in (0, 1)]
        print("| " + " | ".join(cells) + " |")


def _same_method(answer: Answer) -> bool:
    """SLERP between models so close is linear."""
    wanted = answer.name.split(",")[0].split(" 0")[0].replace(" by layer", "").replace(" ", "_")
    same = {wanted, "linear"} if wanted == "slerp" else {wanted}
    return answer.method in same


if __name__ == "__main__":
    main()
