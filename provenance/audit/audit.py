"""An audit of a family by what the catalog holds: copies, frozen parts, rounding, outliers, edits,
licences and cards.

Every check states a tolerance, and abstains where too little is known to tell: no finding rests on
the largest of some numbers, or on two that are equal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import indexer
from ...arrays import Bool, Float64
from ...errors import DeltadexError
from ...records import FindingKind, Slot
from ...results import JsonRecord, agree, count
from ...store import Catalog, FamilyUpdates, ModelRow, Track
from ..bases.changes import compare_folders, not_compared, why_not_read
from ..lineage.descent import Updates
from ..lineage.forms import TouchedTokens
from .one_direction import LEAST_MATRICES, LEAST_STRENGTH, WRITERS, find_direction_edit

SAME_UPDATE = 1e-3
"""|ΔW − ΔW'| / |ΔW| up to which two updates are the same, beside what storage rounding explains."""

EQUAL = 1e-6
"""The same of sketches of equal matrices."""

NOISE_FACTOR, NOISE_SHARE = 2.0, 0.3
"""A difference is explained by rounding up to so many times its norm, where rounding is at most
this share of the update."""

PAIRS_AT_ONCE = 1024
"""Models whose sketches are compared with all others at a time."""

SAME_NORMS, MANY_SLOTS = 1e-5, 0.9
"""Two bases whose matrices' norms |W| differ by so little in this share of the slots are copies."""

LEAST_SHARED = 12
"""Matrices that two bases must have both, to be compared."""

OUTLIER_Z = 5.0

LEAST_LENGTHS, LEAST_SPREAD = 5, math.log(8.0) / OUTLIER_Z
"""Models of a kind whose lengths are compared; and the least standard deviation of log lengths: one
must be eight times as long or as short as the median."""

CONCENTRATED, FEW_MATRICES = 0.9, 16
"""Share of |ΔW|² that no more than one in so many matrices hold, for a concentrated update; of
fewer matrices nothing is said."""

RANK_ONE = 1.5
"""Stable rank up to which an update is of one direction."""

USUAL_SHARE = 0.1
"""Share of a family from which on a name that its models give is one of the base's."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(JsonRecord):
    """A finding: `detail` is a sentence; `z` standard deviations from what is ordinary, where the
    check measures that."""

    model: str
    base: str
    kind: FindingKind
    detail: str
    z: float | None = None

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | {"z": None if self.z is None else round(self.z, 2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Which kinds and models are wanted, all where None; how many models are read, those on the Hub
    too where it may `fetch`; `track` shows progress."""

    kind: FindingKind | None
    models: frozenset[str] | None
    read: int
    fetch: bool
    track: Track

    def includes(self, model: str) -> bool:
        return self.models is None or model in self.models


@dataclass(slots=True)
class AuditedFamily:
    """A family's rows by id, and the updates of those that have a fingerprint, in order of key;
    `reads_left`: models whose files may still be compared."""

    catalog: Catalog
    options: AuditOptions
    base: str
    rows: Mapping[str, ModelRow]
    ids: Sequence[str]
    updates: FamilyUpdates
    out_of: Mapping[Slot, int]
    touched: TouchedTokens
    reads_left: int

    @classmethod
    def read(cls, catalog: Catalog, base: str, options: AuditOptions) -> AuditedFamily:
        view = catalog.family(base, catalog.find_recipe(None, base), is_current=True)
        rows = {row.id: row for row in catalog.models(base=view.base)}
        out_of = {slot: out for slot, (out, _) in catalog.shapes(view.base).items()}
        updates, members = view.updates(), [rows[id] for id in view.ids]
        rounding = Updates.of_family(updates).rounding
        touched = TouchedTokens.of_family(catalog, view.base, members, rounding)
        left = options.read
        return cls(catalog, options, view.base, rows, view.ids, updates, out_of, touched, left)

    @property
    def changed(self) -> Bool[np.ndarray, "models slots"]:
        """Whether a model changed a slot; False where it has no number of it."""
        return np.asarray(np.nan_to_num(self.updates.fro_norm) > 0.0)

    def base_norms(self) -> Float64[np.ndarray, " slots"]:
        """|W| of each slot of the base, the median over the models that tell; NaN of no model."""
        updates = self.updates
        with np.errstate(divide="ignore", invalid="ignore"):
            norms = updates.fro_norm / updates.relative_norm
        return _column_medians(np.where(self.changed & np.isfinite(norms), norms, np.nan))

    def age(self, row: int) -> tuple[str, str]:
        """Sorts models from the oldest that states its date, then by id."""
        return self.rows[self.ids[row]].created_at or "~", self.ids[row]

    def differences(
        self, model: str, other: str | None = None, *, matrices: bool = True
    ) -> list[str] | str:
        """What differs between the files of a model and another one's, else the base's, where some
        may still be read; see `compare_folders`."""
        if self.reads_left <= 0:
            return not_compared("no more models were read")
        self.reads_left -= 1
        theirs = self.base if other is None else self.rows[other].place
        return compare_folders(self.rows[model].place, theirs, matrices=matrices)

    def finding(self, row: int, kind: FindingKind, detail: str, z: float | None = None) -> Finding:
        return Finding(model=self.ids[row], base=self.base, kind=kind, detail=detail, z=z)


def _column_medians(
    numbers: Float64[np.ndarray, "rows columns"],
) -> Float64[np.ndarray, " columns"]:
    """The median of each column without its NaN; NaN of a column of nothing else."""
    medians = np.full(numbers.shape[1], np.nan)
    known = np.isfinite(numbers).any(axis=0)
    medians[known] = np.nanmedian(numbers[:, known], axis=0)
    return medians


def find_duplicates(family: AuditedFamily) -> Iterator[Finding]:
    """Models with the weight files of an earlier one, or whose layer matrices are the base's."""
    for row in family.rows.values():
        twin = row.duplicate_of
        kind: FindingKind = "duplicate"
        if row.status == "indexed" and twin is not None:
            detail = f"its weight files are those of {twin}, byte for byte"
        elif row.code != "no-update":
            continue
        elif row.reason != indexer.EQUAL_MATRICES:
            kind, detail = "rounding", str(row.reason)
        else:
            kind, detail = "duplicate", f"{indexer.EQUAL_MATRICES}, and so does every other tensor"
            if differences := family.differences(row.id):
                kind, detail = "frozen", f"{indexer.EQUAL_MATRICES}; {_said(differences)}"
        yield Finding(model=row.id, base=family.base, kind=kind, detail=detail)


def _said(differences: list[str] | str) -> str:
    return differences if isinstance(differences, str) else "; ".join(differences)


def find_near_duplicates(family: AuditedFamily) -> Iterator[Finding]:
    """Models with the update of an earlier one, up to rounding, and not its files.

    |ΔW − ΔW'| is estimated by the pooled linear sketches, with a standard error of 3 %; |ΔW| is
    exact, and rounding adds its own square to that of the update.
    """
    updates = family.updates
    sketches = updates.pooled.astype(np.float64)
    norms = np.linalg.norm(sketches, axis=1)
    exact = np.nansum(np.square(updates.fro_norm), axis=1)
    noise = np.sqrt(np.nansum(np.square(updates.noise_floor) * family.changed, axis=1))
    told = updates.sketched & (norms > 0.0) & (noise <= NOISE_SHARE * norms)
    rows = np.array(sorted(np.flatnonzero(told).tolist(), key=family.age), np.int64)
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        block = rows[start : start + PAIRS_AT_ONCE]
        earlier = rows[: start + len(block)]
        squares = np.square(norms[block])[:, None] + np.square(norms[earlier])[None, :]
        distance = squares - 2.0 * sketches[block] @ sketches[earlier].T
        rounding = np.square(noise[block])[:, None] + np.square(noise[earlier])[None, :]
        allowed = NOISE_FACTOR**2 * rounding + SAME_UPDATE**2 * squares / 2.0
        is_same = (distance <= allowed) & np.tri(len(block), len(earlier), start - 1, dtype=bool)
        apart = np.abs(exact[block][:, None] - exact[earlier][None, :])
        is_same &= apart <= NOISE_FACTOR * rounding + 2 * SAME_UPDATE * exact[block][:, None]
        for place in np.flatnonzero(is_same.any(axis=1)).tolist():
            row, alike = int(block[place]), np.flatnonzero(is_same[place]).tolist()
            if family.rows[family.ids[row]].duplicate_of is not None:
                continue
            # the first whose embedding may be equal too; else the first
            column = next((c for c in alike if family.touched.same(row, int(earlier[c]))), alike[0])
            twin, square = int(earlier[column]), max(0.0, float(distance[place, column]))
            share = math.sqrt(square) / float(norms[row])
            kind, detail = _like_another(family, row, twin, share)
            partly = family.rows[family.ids[row]].partly_read
            yield family.finding(row, kind, f"{detail}; it {partly}" if partly else detail)


def _like_another(
    family: AuditedFamily, row: int, other: int, share: float
) -> tuple[FindingKind, str]:
    """Kind and sentence of a model with another one's update, but for a share of it."""
    model, twin = family.ids[row], family.ids[other]
    differences = family.differences(model, twin, matrices=share <= EQUAL)
    if isinstance(differences, str) and not family.touched.same(row, other):
        differences = f"{differences}; other rows of its embedding moved"
    if share <= EQUAL and not differences:
        return "duplicate", f"its layer matrices are those of {twin}; so are all other tensors"
    detail = f"its update is that of {twin} up to rounding: {share:.2%} of it differs"
    if share <= EQUAL:
        detail = f"its layer matrices are those of {twin}"
    return "near-duplicate", f"{detail}; {_said(differences)}" if differences else detail


def find_base_copies(families: Sequence[AuditedFamily]) -> Iterator[Finding]:
    """Bases whose matrices have the norms of another one's."""
    known = [
        dict(zip(family.updates.slots, family.base_norms().tolist(), strict=True))
        for family in families
    ]
    for later, own in enumerate(known):
        for first, theirs in enumerate(known[:later]):
            shared = [s for s in own if np.isfinite(own[s]) and np.isfinite(theirs.get(s, np.nan))]
            same = [s for s in shared if abs(own[s] / theirs[s] - 1.0) <= SAME_NORMS]
            if len(shared) >= LEAST_SHARED and len(same) >= MANY_SLOTS * len(shared):
                base, twin = families[later].base, families[first].base
                detail = (
                    f"this base is a copy of {twin}: the norms of {len(same)} of {len(shared)} "
                    f"matrices are equal to {SAME_NORMS:.0e}"
                )
                yield Finding(model=base, base=base, kind="base-copy", detail=detail)
                break


def find_frozen(family: AuditedFamily) -> Iterator[Finding]:
    """Full fine-tunes of which layers or roles have no update at all."""
    slots, stacks = family.updates.slots, sorted({slot.stack for slot in family.updates.slots})
    still_at = np.isfinite(family.updates.fro_norm) & ~family.changed
    for row in np.flatnonzero(family.touched.is_full & still_at.any(axis=1)).tolist():
        still = [slots[column] for column in np.flatnonzero(still_at[row]).tolist()]
        parts: list[str] = []
        for stack in stacks:
            name = f"{stack} " if len(stacks) > 1 else ""
            parts += _frozen_parts(name, [s for s in slots if s.stack == stack], set(still))
        yield family.finding(row, "frozen", "; ".join(parts))


def _frozen_parts(name: str, slots: Sequence[Slot], still: set[Slot]) -> Iterator[str]:
    """Whole layers, then roles in all other layers, then how many more matrices."""
    moving = set(slots) - still
    layers = sorted({slot.layer for slot in slots} - {slot.layer for slot in moving})
    if layers:
        equal = agree(len(layers), "equals", "equal")
        yield f"{name}{indexer.name_layers(layers)} {equal} the base's"
    rest = {slot for slot in still.intersection(slots) if slot.layer not in layers}
    roles = sorted({slot.role for slot in rest} - {slot.role for slot in moving})
    if roles:
        where = "in the others" if layers else "in every layer"
        equal = agree(len(roles), "equals", "equal")
        yield f"{name}{', '.join(roles)} {equal} the base's {where}"
    n_left = sum(slot.role not in roles for slot in rest)
    if n_left:
        more = "more " if layers or roles else ""
        noun = agree(n_left, "matrix equals", "matrices equal")
        yield f"{n_left} {more}{name}{noun} the base's"


def find_rounding(family: AuditedFamily) -> Iterator[Finding]:
    """Full fine-tunes most of whose changed matrices moved less than rounding moves them."""
    updates, changed = family.updates, family.changed
    # what is measured holds the rounding: below √2 times it, the update is the smaller part
    below = changed & (updates.fro_norm <= math.sqrt(2.0) * updates.noise_floor)
    n_changed, n_below = changed.sum(axis=1), below.sum(axis=1)
    for row in np.flatnonzero(family.touched.is_full & (2 * n_below > n_changed)).tolist():
        ratio = updates.fro_norm[row, changed[row]] / updates.noise_floor[row, changed[row]]
        detail = (
            f"in {n_below[row]} of {count(int(n_changed[row]), 'matrix')} its update is smaller "
            f"than the rounding of its stored numbers: {float(np.median(ratio)):.2f} times it in "
            "the median"
        )
        yield family.finding(row, "rounding", detail)


def find_outliers(family: AuditedFamily) -> Iterator[Finding]:
    """Models whose update is far longer or shorter than those of their kind."""
    squares = np.nansum(np.square(family.updates.fro_norm), axis=1)
    lengths = np.full(len(squares), np.nan)
    lengths[squares > 0] = np.log(squares[squares > 0]) / 2.0
    for rows, kind in (
        (np.flatnonzero(family.touched.is_full), "full fine-tune"),
        (np.flatnonzero(~family.touched.is_full), "adapter"),
    ):
        own = lengths[rows]
        z, middle = length_z(own), float(_column_medians(own[:, None])[0])
        for place in np.flatnonzero(np.abs(z) >= OUTLIER_Z).tolist():
            detail = (
                f"its update is {math.exp(own[place] - middle):.3g} times as long as the median "
                f"of {count(len(rows), kind)}"
            )
            yield family.finding(int(rows[place]), "outlier", detail, float(z[place]))


def length_z(lengths: Float64[np.ndarray, " models"]) -> Float64[np.ndarray, " models"]:
    """Standard deviations of log lengths from their median, by the median absolute deviation; 0 of
    fewer than `LEAST_LENGTHS`, and of one of a group: where more than a tenth of the models, and
    another one, are half as far or farther on its side."""
    known = lengths[np.isfinite(lengths)]
    if len(known) < LEAST_LENGTHS:
        return np.zeros_like(lengths)
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    # the spread is known to 1.17 / √n
    scale = max(LEAST_SPREAD, spread * (1.0 + 1.64 * 1.17 / math.sqrt(len(known))))
    z = np.nan_to_num((lengths - middle) / scale)
    for row in np.flatnonzero(np.abs(z) >= OUTLIER_Z).tolist():
        beside = int(np.count_nonzero((known - middle) / (lengths[row] - middle) >= 0.5))
        if beside > max(1, USUAL_SHARE * len(known)):
            z[row] = 0.0
    return np.asarray(z)


def find_concentrated(family: AuditedFamily) -> Iterator[Finding]:
    """Models with nearly all of their update in one matrix, or a few, as edits of single facts have
    it; not where a tenth of the family has it in the same ones."""
    energy = np.square(np.nan_to_num(family.updates.fro_norm))
    n_matrices = np.isfinite(family.updates.fro_norm).sum(axis=1)
    found: dict[int, tuple[int, ...]] = {}
    for row in np.flatnonzero((n_matrices >= FEW_MATRICES) & (energy.sum(axis=1) > 0)).tolist():
        order = np.argsort(-energy[row], kind="stable")
        shares = np.cumsum(energy[row][order]) / energy[row].sum()
        n_most = int(np.searchsorted(shares, CONCENTRATED)) + 1
        if n_most <= n_matrices[row] // FEW_MATRICES:
            found[row] = tuple(sorted(order[:n_most].tolist()))
    counts = Counter(found.values())
    for row, columns in found.items():
        if counts[columns] >= max(3, USUAL_SHARE * len(family.ids)):
            continue
        share = energy[row, list(columns)].sum() / energy[row].sum()
        names = indexer.name_some([str(family.updates.slots[column]) for column in columns])
        detail = f"{share:.0%} of its update is in {len(columns)} of {n_matrices[row]} matrices"
        yield family.finding(row, "edit", f"{detail}: {names}")


def find_suspects(family: AuditedFamily) -> dict[int, bool]:
    """The rows of models that could hold an edit along one direction: whose ΔW is as long as one in
    one direction, in `LEAST_MATRICES` or more; those first whose writing matrices stand out most
    from the others. Whether it is likely: what the model adds to the residual stream changed alone,
    and each matrix by one direction.

    An edit that removes a share λ of r changes a matrix by λ|rᵀW|, about λ|W| / √out, and the
    largest singular value of ΔW is hardly smaller. Where |W| is not known nothing is ruled out.
    """
    updates, changed = family.updates, family.changed
    writes = np.array([slot.role in WRITERS for slot in updates.slots], dtype=np.bool_)
    out = np.array([family.out_of.get(slot, 0) for slot in updates.slots], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.minimum(np.where(changed, 1.0 / updates.stable_rank, np.nan), 1.0)
        longest = updates.fro_norm * np.sqrt(first * out) / family.base_norms()
    is_long = changed & writes & ~(longest < LEAST_STRENGTH / 2)
    alone = changed & writes & (first >= 1.0 / RANK_ONE) & (longest >= LEAST_STRENGTH)
    written, read = (np.nan_to_num(_column_medians(first[:, part].T)) for part in (writes, ~writes))
    is_likely = family.touched.is_full & (alone.sum(axis=1) >= LEAST_MATRICES) & (read <= 1.0 / 2)
    is_likely &= 2 * alone.sum(axis=1) > (changed & writes).sum(axis=1)
    rows = np.flatnonzero(is_long.sum(axis=1) >= LEAST_MATRICES)
    order = np.lexsort((rows, -np.round(written - read, 6)[rows]))
    return {row: bool(is_likely[row]) for row in rows[order].tolist()}


def find_edits(family: AuditedFamily) -> Iterator[Finding | str]:
    """Concentrated updates; the edits along one direction, or some, of the suspects that are read,
    those that may be edited and are not, and a note that counts the others."""
    yield from find_concentrated(family)
    suspects, options = find_suspects(family), family.options
    rows = {row: family.rows[family.ids[row]] for row in suspects}
    rows = {row: model for row, model in rows.items() if options.includes(model.id)}
    reasons = {row: _unreadable(model, fetch=options.fetch) for row, model in rows.items()}
    readable = [row for row in rows if reasons[row] is None]
    for row in readable[options.read :]:
        reasons[row] = f"--read is {options.read}"
    base = indexer.resolve_base(family.catalog, family.base)
    for row in options.track(readable[: options.read], "reading models"):
        source = rows[row].place
        source = rows[row].id if source in ("", "hub") else source
        try:
            edit = find_direction_edit(base, source)
        except DeltadexError as err:
            reasons[row] = why_not_read(err)
            continue
        if edit is not None:
            yield family.finding(row, "edit", str(edit), edit.z)
    unread = [row for row in rows if reasons[row] is not None]
    for row in filter(suspects.get, unread):
        detail = (
            "perhaps edited along one direction: it changed only what it adds to the residual "
            f"stream, each matrix by one direction; not read: {reasons[row]}"
        )
        yield family.finding(row, "edit", detail)
    others = Counter(reasons[row] for row in unread if not suspects[row])
    for reason, n_models in sorted(others.items(), key=str):
        yield (
            f"{count(n_models, 'more model')} could be edited along one direction, and what the "
            f"catalog holds does not tell: {reason}"
        )


def _unreadable(model: ModelRow, *, fetch: bool) -> str | None:
    """Why a model's files are not read; None where they are there."""
    if model.source not in ("", "hub"):
        return None if Path(model.place).is_dir() else "the folder is not there any more"
    return None if fetch else "on the Hub, --fetch reads them"


def find_licence_conflicts(family: AuditedFamily) -> Iterator[Finding]:
    """Models whose licence drops what an ancestor's asks, by the view `licence_conflicts`."""
    for model, own, ancestor, theirs, says in family.catalog.licence_conflicts(family.base):
        detail = f"its licence is {own}; that of {ancestor}, {theirs}, {says}"
        yield Finding(model=model, base=family.base, kind="licence", detail=detail)


def find_other_bases(family: AuditedFamily) -> Iterator[Finding]:
    """Full fine-tunes whose card or config names another base than their weights show.

    Not of an adapter, whose weights show no base; nor where a folder is named, or a model of the
    family, or what so many models name that it must be a name of this base.
    """
    wanted = indexer.names_of_base(family.catalog, family.base)
    ids = {indexer.BaseName.of(id).last for id in family.rows}
    named = [row for row in family.rows.values() if row.base_raw]
    keys = {row.id: indexer.base_key(row.base_raw or "") for row in named}
    counts = Counter(keys[row.id] for row in named if row.status == "indexed")
    usual = max(3, math.ceil(USUAL_SHARE * len(family.ids)))
    others = {indexer.base_key(b) for b in family.catalog.bases() if b != family.base}
    for row in named:
        claim, key = row.base_raw or "", keys[row.id]
        is_ours = wanted.named_in([claim])
        if row.code == "wrong-base" and is_ours:
            detail = f"its card names {claim} as its base, but its weights are {row.reason}"
        elif row.status == "indexed" and row.kind == "full" and not is_ours:
            is_usual = indexer.BaseName.of(claim).last in ids or counts[key] >= usual
            is_usual |= not _HUB_ID.fullmatch(claim)
            if key not in others and is_usual:
                continue
            detail = (
                f"its card names {claim} as its base; its weights are those of a fine-tune of "
                f"{family.base}"
            )
        else:
            continue
        yield Finding(model=row.id, base=family.base, kind="card-base", detail=detail)


def unread_models(
    catalog: Catalog, bases: Sequence[str], options: AuditOptions
) -> list[dict[str, str]]:
    """The models of some families that were not read, or in part, and the note on each."""
    rows = [row for base in bases for row in catalog.models(base=base) if options.includes(row.id)]
    notes = {
        row.id: row.partly_read or str(row.reason)
        for row in rows
        if row.code == "not-read" or row.partly_read
    }
    return [{"model": id, "note": note} for id, note in sorted(notes.items())]


CHECKS: Mapping[FindingKind, Callable[[AuditedFamily], Iterator[Finding | str]]] = {
    "duplicate": find_duplicates,
    "near-duplicate": find_near_duplicates,
    "frozen": find_frozen,
    "edit": find_edits,
    "rounding": find_rounding,
    "outlier": find_outliers,
    "licence": find_licence_conflicts,
    "card-base": find_other_bases,
}


def audit_families(
    catalog: Catalog, bases: Sequence[str], options: AuditOptions
) -> tuple[list[Finding], list[str], int]:
    """The findings of some families, notes on what was not looked at, and how many models were.

    Reads the catalog; and for edits along one direction of at most `options.read` models of a
    family the matrices that write to the residual stream.
    """
    families = catalog.look(lambda: [AuditedFamily.read(catalog, b, options) for b in bases])
    findings: list[Finding] = []
    notes: list[str] = []
    for family in families:
        for kind, check in CHECKS.items():
            for outcome in check(family) if options.kind in (None, kind) else ():
                if isinstance(outcome, str):
                    notes.append(outcome if len(families) == 1 else f"{family.base}: {outcome}")
                elif options.includes(outcome.model):
                    findings.append(outcome)
    if options.kind in (None, "base-copy") and options.models is None:
        findings += find_base_copies(families)
    return findings, notes, sum(options.includes(id) for family in families for id in family.ids)
