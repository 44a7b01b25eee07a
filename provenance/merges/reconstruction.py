"""Proof of a merge by reconstruction: a config file's numbers, evaluated as mergekit does.

What is compared is what a file would give: every hypothesis ends in the numbers that a file has,
and these are put through mergekit's formulas in the file's arithmetic and storage type, on a few
rows of every matrix. Numbers of sums follow by least squares, those of SLERP from the place between
two models, those of TIES by descent. Where single precision keeps multiples exact, an entry that
came from one parent alone is found among all ratios, and every entry is decoded into its parents;
in coarser types the same begins with the best sum. Sets without regard to magnitude are DARE's: its
draws are not known, no file gives them again, and the decoded share is the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import torch

from ...arrays import Bool, Float64
from ...indexer import Key
from .merge_formulas import FORMULAS, SLERP_LINEAR, Formula, Method, combine, slerp_weights

Matrices = Mapping[Key, torch.Tensor]

Place = tuple[int, bool]
"""A layer, and whether of its attention: what a config file gives weights of their own."""

STEPS = {torch.float32: 4.0, torch.float64: 4.0, torch.float16: 1.01, torch.bfloat16: 1.01}
"""Steps of the storage type within which an entry counts as reproduced: one rounding, and in
float32 the order of additions besides."""

PROVEN = 0.95
"""Share of entries that are reproduced, beyond those that a wrong recipe reproduces, from which a
recipe is proven; the rest are ties of rounding and of magnitude."""

LEAST_ERROR = 1e-3
"""|file − merge| / |ΔW| up to which a file gives a merge again, beside `ROUNDINGS` times the energy
of one rounding: few entries that are far off are no rounding."""

ROUNDINGS = 0.5

COARSE_ERROR = 1e-2
"""The same of arithmetic in bfloat16 or float16, which rounds every product."""

TRIM_ERROR = 0.06
"""The same of a method that trims: the threshold of a whole matrix is not in its rows."""

MOST_ERROR = 0.4
"""The same from which no threshold is looked for."""

SAMPLED = 10.0
"""Standard errors by which what rows show of a whole matrix may be off."""

MOST_SEARCHED = 0.6
"""The same of the best of a few TIES, from which its numbers are not searched."""

MOST_DECODED = 5
"""Parents up to which all sets of them are tried."""

SPIKE_WIDTH = 0.01
"""Of log ratios, over all matrices: DARE's rescaling differs by as much."""

RESCALED = 4.0
"""Over the square root of a matrix's entries: how far its rescaling may be from the others'."""

FINE_WIDTH = 2e-4
"""In one matrix: rounding of single precision in updates of a thousandth of the weights."""

GAIN_ERROR = {True: 2e-6, False: 8e-3}
"""Relative error of a multiple after least squares, in single precision and in coarser types, whose
products are rounded themselves."""

APART = 3.0
"""Slacks by which the sums of all sets differ in an entry that a coarse type decodes."""

DENSITY_ERROR = 0.006
"""Of a density that draws show, of some ten thousand entries."""

FURTHER = 25.0
"""Squared standard errors of a further parent's weight, from which it is tried."""

SPIKE_ENTRIES = 12
"""Fewest entries of a spike."""

LEAST_DECODED = 400
"""Fewest entries by which draws are told from what depends on magnitude."""

TRIMMED = 0.97
"""Probability that a kept entry is larger than one that is not, from which they were trimmed."""

DRAWN = 0.012
"""How far from a half that probability may be, beside two standard errors, if entries were drawn at
random: DELLA's draws, of an epsilon of .15 and half of the entries, are .10 off."""

MOST_DOUBT = 0.0125
"""Its standard error from which nothing is said of draws."""

SEARCHED = 60_000
"""Entries by which the numbers of TIES are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """What the rows say of a merge.

    Attributes:
        method: None where no file gives the merge: then `share` is that of sums that do.
        share: Of entries that the file gives, 0…1; of draws, of entries that are sums of kept ones.
        chance: The same of a recipe that is wrong: parents' entries shifted by one.
        weights: As a config file has them; means, where they vary.
        by_place: Where weights vary: of each parent.
        densities: One a parent; empty without.
        normalises: As the config's `normalize`; `scale`: its `lambda`.
        arithmetic: The config's `dtype`.
        is_drawn: Entries were drawn at random: no file gives them again.
        error: |file − merge| / |ΔW|; `rounding`: of one rounding of the merge.
        entries: That were compared.
    """

    method: Method | None
    weights: tuple[float, ...]
    share: float
    chance: float
    densities: tuple[float, ...] = ()
    normalises: bool = False
    scale: float = 1.0
    by_place: Mapping[Place, tuple[float, ...]] = field(default_factory=dict)
    arithmetic: torch.dtype = torch.float32
    is_drawn: bool = False
    error: float = 0.0
    rounding: float = 0.0
    entries: int = 0

    @property
    def explains(self) -> bool:
        """Whether nothing is missing."""
        is_fine = torch.finfo(self.arithmetic).eps < 1e-6 and self.rounding < LEAST_ERROR
        least = TRIM_ERROR if self.densities else LEAST_ERROR if is_fine else COARSE_ERROR
        is_close = self.error**2 <= least**2 + ROUNDINGS * self.rounding**2
        return is_close and self.share - self.chance >= PROVEN * (1 - self.chance)

    @property
    def is_reproduced(self) -> bool:
        """Whether the file gives the merge again."""
        return self.explains and self.method is not None and not self.is_drawn


@dataclass(slots=True, eq=False)
class _Rows:
    """Entries of all matrices side by side, in the file's arithmetic. `wanted`: ΔW of the merge;
    `parts`: of its parents; `slack`: how far an entry may be off; `step`: of the storage type, both
    absolute; `places`: where a file may give weights of their own; empty where it cannot."""

    keys: list[Key]
    pieces: list[slice]
    base: Float64[np.ndarray, " entries"]
    wanted: Float64[np.ndarray, " entries"]
    parts: Float64[np.ndarray, "parents entries"]
    slack: Float64[np.ndarray, " entries"]
    step: Float64[np.ndarray, " entries"]
    stored: torch.dtype
    arithmetic: torch.dtype
    places: list[Place]

    @classmethod
    def of(
        cls,
        base: Matrices,
        merged: Matrices,
        parents: Sequence[Matrices],
        arithmetic: torch.dtype = torch.float64,
        places: Mapping[Key, Place] | None = None,
    ) -> _Rows | None:
        """Of the matrices that any of the models changes."""
        models = (merged, *parents)
        keys = [
            key
            for key in sorted(base, key=str)
            if not all(torch.equal(model[key].to(base[key].dtype), base[key]) for model in models)
        ]
        if not keys:
            return None
        ends = np.cumsum([0, *(base[key].numel() for key in keys)])

        def flat(model: Matrices, dtype: torch.dtype) -> Float64[np.ndarray, " entries"]:
            return np.concatenate([model[k].to(dtype).double().flatten().numpy() for k in keys])

        own, result = flat(base, arithmetic), flat(merged, torch.float64)
        stored = np.stack([flat(model, arithmetic) for model in parents])
        dtype = merged[keys[0]].dtype
        sizes = np.maximum(np.abs(np.vstack([own, result, stored])).max(0), 1e-30)
        eps = torch.finfo(dtype).eps
        return cls(
            keys=list(keys),
            pieces=[slice(*pair) for pair in pairwise(ends.tolist())],
            base=own,
            wanted=result - own,
            parts=stored - own,
            slack=STEPS[dtype] * eps * sizes,
            step=eps * 2.0 ** np.floor(np.log2(np.maximum(np.abs(result), 1e-30))),
            stored=dtype,
            arithmetic=arithmetic,
            places=[places[key] for key in keys] if places else [],
        )

    @property
    def is_fine(self) -> bool:
        return torch.finfo(self.stored).eps < 1e-6

    def shifted(self) -> _Rows:
        """The same with parents' entries that belong to their neighbours."""
        return replace(self, parts=np.roll(self.parts, 1, axis=1))

    def thinned(self) -> _Rows:
        """Every so many entries of each matrix."""
        every = max(1, len(self.wanted) // SEARCHED)
        chosen = np.concatenate([np.arange(p.start, p.stop, every) for p in self.pieces])
        ends = np.cumsum([0, *(len(range(p.start, p.stop, every)) for p in self.pieces)])
        names = ("base", "wanted", "slack", "step")
        arrays = {name: getattr(self, name)[chosen] for name in names}
        pieces = [slice(*pair) for pair in pairwise(ends.tolist())]
        return replace(self, pieces=pieces, parts=self.parts[:, chosen], **arrays)

    def share(self, made: Float64[np.ndarray, " entries"]) -> float:
        return float((np.abs(made - self.wanted) <= self.slack).mean())

    def error(self, made: Float64[np.ndarray, " entries"]) -> float:
        return float(np.linalg.norm(made - self.wanted) / max(np.linalg.norm(self.wanted), 1e-300))

    def rounding(self) -> float:
        length = max(float(np.linalg.norm(self.wanted)), 1e-300)
        return float(np.linalg.norm(self.step)) / 12**0.5 / length

    def spread(
        self, by_piece: Float64[np.ndarray, "parents pieces"]
    ) -> Float64[np.ndarray, "parents entries"]:
        return np.repeat(by_piece, [p.stop - p.start for p in self.pieces], axis=1)

    def kept_as(self, model: torch.Tensor) -> Float64[np.ndarray, " entries"]:
        """ΔW of a model once it is stored."""
        made: Float64[np.ndarray, " entries"] = model.to(self.stored).double().numpy()
        return made - self.base


Make = Callable[[_Rows], Float64[np.ndarray, " entries"]]


def reconstruct(
    base: Matrices,
    merged: Matrices,
    parents: Sequence[Matrices],
    guess: Sequence[float],
    *,
    places: Mapping[Key, Place] | None = None,
) -> Reconstruction | None:
    """The recipe that explains most of the rows; None where nothing can be decided by them.

    Args:
        base, merged, parents: The same rows by slot and part, as they are stored.
        guess: The weights that sketches gave.
        places: Where a config file may give weights of their own.
    """
    stored = next(iter(merged.values())).dtype
    best: Reconstruction | None = None
    for arithmetic in dict.fromkeys((stored, torch.float32)):
        if torch.finfo(arithmetic).eps < torch.finfo(stored).eps < 1e-6:
            continue
        rows = _Rows.of(base, merged, parents, arithmetic, places)
        if rows is None:
            return None
        found = _best(rows, np.array(guess))
        if best is None or _order(found) < _order(best):
            best = found
        if best.error > MOST_SEARCHED or (best.is_reproduced and 10 * best.error < best.rounding):
            break
    return best


def _order(found: Reconstruction) -> tuple[bool, bool, int, float]:
    """What explains it comes first, of that what a file has; then what is nearest, up to a tenth of
    a rounding."""
    return (
        not found.explains,
        found.explains and found.method is None,
        round(found.error / (0.1 * found.rounding + 0.1 * LEAST_ERROR)),
        -round(found.share, 3),
    )


def _best(rows: _Rows, guess: Float64[np.ndarray, " parents"]) -> Reconstruction:
    """The first kind of recipe that explains the rows; else that which comes nearest."""
    kinds: list[Callable[[], list[Reconstruction]]] = [
        lambda: list(_sums(rows, np.zeros(len(rows.pieces), dtype=np.int64))),
        lambda: list(_sums(rows, _numbered(rows.places))) if len(set(rows.places)) > 1 else [],
        lambda: list(_sparse(rows, guess)) if 1 < len(rows.parts) <= MOST_DECODED else [],
        lambda: [_by_matrix(rows)],
    ]
    found: list[Reconstruction] = []
    for kind in kinds:
        found += kind()
        best = min(found, key=_order)
        if best.explains:
            return best
    # sums by matrix and decoded entries have more freedom than any file
    return min((f for f in found if f.method is not None), key=_order)


def _numbered(places: Sequence[Place]) -> np.ndarray:
    names = sorted(set(places))
    return np.array([names.index(place) for place in places])


def _evaluated(
    rows: _Rows, make: Make, method: Method | None, weights: Sequence[float], **numbers: object
) -> Reconstruction:
    """A recipe with what it gives; `make` takes the rows, or those of a wrong recipe."""
    made, wrong = make(rows), rows.shifted()
    return Reconstruction(
        method=method,
        weights=tuple(float(weight) for weight in weights),
        share=rows.share(made),
        chance=wrong.share(make(wrong)),
        error=rows.error(made),
        rounding=rows.rounding(),
        arithmetic=rows.arithmetic,
        entries=len(rows.wanted),
        **numbers,  # type: ignore[arg-type]
    )


def further_parent(
    base: Matrices, merged: Matrices, parents: Sequence[Matrices], others: Sequence[Matrices]
) -> int | None:
    """Which other model explains most of what the best sum of parents leaves, of those that explain
    more than noise; None where none does."""
    rows = _Rows.of(base, merged, [*parents, *others]) if others else None
    if rows is None:
        return None
    known, more = rows.parts[: len(parents)], rows.parts[len(parents) :]
    rest = rows.wanted - np.linalg.lstsq(known.T, rows.wanted, rcond=None)[0] @ known
    own = more - np.linalg.lstsq(known.T, more.T, rcond=None)[0].T @ known
    squares = (own**2).sum(1)
    usable = squares > 1e-6 * (more**2).sum(1)
    gains = np.where(usable, (own @ rest) ** 2 / np.where(usable, squares, 1.0), 0.0)
    best = int(gains.argmax())
    return best if gains[best] > FURTHER * (rest @ rest) / len(rest) else None


def _sums(rows: _Rows, place_of: np.ndarray) -> Iterator[Reconstruction]:
    """Sums and SLERP with weights of their own in every place (`place_of`: of each matrix)."""
    free = _fitted(rows, place_of, is_mean=False)
    mean = _fitted(rows, place_of, is_mean=True)
    if (mean > -1e-3).all() and (mean.sum(0) < 1 + 1e-3).all():
        yield _shortest(rows, mean, place_of, "linear")
    yield _shortest(rows, free, place_of, "task_arithmetic")
    if len(rows.parts) == 2:
        for between in (_places_between(rows, place_of), mean):
            yield _shortest(rows, between, place_of, "slerp")


def _fitted(
    rows: _Rows, place_of: np.ndarray, *, is_mean: bool
) -> Float64[np.ndarray, "parents places"]:
    """Least squares in every place; of a mean, with a sum of 1 where there is more than one."""
    weights = np.zeros((len(rows.parts), int(place_of.max()) + 1))
    for place in range(weights.shape[1]):
        chosen = [p for p, own in zip(rows.pieces, place_of, strict=True) if own == place]
        parts = np.concatenate([rows.parts[:, piece] for piece in chosen], axis=1)
        wanted = np.concatenate([rows.wanted[piece] for piece in chosen])
        if not is_mean or len(parts) == 1:
            weights[:, place] = np.linalg.lstsq(parts.T, wanted, rcond=1e-9)[0]
            continue
        spans = (parts[:-1] - parts[-1]).T
        first = np.linalg.lstsq(spans, wanted - parts[-1], rcond=1e-9)[0]
        weights[:, place] = [*first, 1 - first.sum()]
    return weights


def _shortest(
    rows: _Rows,
    weights: Float64[np.ndarray, "parents places"],
    place_of: np.ndarray,
    method: Method,
) -> Reconstruction:
    """With the fewest digits that give the merge as well: as somebody would write them."""
    exact = _sum_of(rows, weights.round(7), place_of, method)
    for digits in (2, 3, 4):
        short = _rounded(weights, digits, method)
        found = _sum_of(rows, short, place_of, method)
        for parent in range(len(short)) if digits == 2 and short.shape[1] == 1 else ():
            for change in (0.01, -0.01):
                other = short.copy()
                other[parent] += change
                if method != "task_arithmetic":
                    other[parent - 1] -= change
                changed = _sum_of(rows, other.round(2), place_of, method)
                found = min(found, changed, key=lambda one: one.error)
        if found.error <= 1.02 * exact.error + 1e-6:
            return found
    return exact


def _rounded(
    weights: Float64[np.ndarray, "parents places"], digits: int, method: Method
) -> Float64[np.ndarray, "parents places"]:
    """Sums of 1 stay so."""
    short = weights.round(digits)
    if method != "task_arithmetic" and len(short) > 1:
        total = weights.sum(0).round(digits)
        short[-1] = (total - short[:-1].sum(0)).round(digits)
    return short


def _sum_of(
    rows: _Rows,
    weights: Float64[np.ndarray, "parents places"],
    place_of: np.ndarray,
    method: Method,
) -> Reconstruction:
    own = weights[:, place_of]
    by_place = {}
    if weights.shape[1] > 1:
        names = sorted(set(rows.places))
        by_place = {name: tuple(weights[:, n].tolist()) for n, name in enumerate(names)}
    make: Make = {
        "linear": partial(_mean, weights=own),
        "task_arithmetic": partial(_combined, weights=own, formula=FORMULAS["task_arithmetic"]),
        "slerp": partial(_on_circle, weights=own),
    }[method]
    used = own.mean(1).tolist()
    return _evaluated(rows, make, method, used, by_place=by_place)


def _mean(
    rows: _Rows, weights: Float64[np.ndarray, "parents pieces"]
) -> Float64[np.ndarray, " entries"]:
    """As mergekit's `linear.py`: in single precision, whatever is stored; the base has the rest."""
    own = rows.spread(np.vstack([weights, 1 - weights.sum(0)]))
    models = np.vstack([rows.parts, np.zeros_like(rows.base)[None]]) + rows.base
    dtype = torch.float64 if rows.arithmetic == torch.float64 else torch.float32
    result = torch.zeros(len(rows.base), dtype=dtype)
    for model, weight in zip(models, own, strict=True):
        result += torch.from_numpy(model).to(dtype) * torch.from_numpy(weight).to(dtype)
    return rows.kept_as(result.to(rows.arithmetic))


def _combined(
    rows: _Rows,
    weights: Float64[np.ndarray, "parents pieces"],
    formula: Formula,
    scale: float = 1.0,
    masks: Bool[np.ndarray, "parents entries"] | None = None,
) -> Float64[np.ndarray, " entries"]:
    """As mergekit's `generalized_task_arithmetic.py`, each step in the file's arithmetic."""
    base = torch.from_numpy(rows.base).to(rows.arithmetic)
    parts = torch.from_numpy(rows.parts + rows.base).to(rows.arithmetic) - base
    if masks is not None:
        parts = parts * torch.from_numpy(masks)
    own = torch.from_numpy(rows.spread(weights)).to(rows.arithmetic)
    merged = combine(parts, own, formula)
    return rows.kept_as(base + (merged * scale if scale != 1 else merged))


def _places_between(rows: _Rows, place_of: np.ndarray) -> Float64[np.ndarray, "parents places"]:
    """1 − t and t of SLERP in every place, from the weights of both models in each matrix, which
    also show the angle between them."""
    sums, totals = np.zeros((2, int(place_of.max()) + 1))
    for piece, place in zip(rows.pieces, place_of, strict=True):
        one, other = models = rows.parts[:, piece] + rows.base[piece]
        a, b = np.linalg.lstsq(models.T, rows.wanted[piece] + rows.base[piece], rcond=1e-14)[0]
        low, high = _apart(models)
        cosine = (1 - a * a - b * b) / (2 * a * b) if a * b > 1e-3 else 1 - (low + high) / 2
        angle = np.arccos(np.clip(cosine, 1 - high, min(1 - low, 1 - 1e-12)))
        t = np.arctan2(b * np.sin(angle), a + b * np.cos(angle)) / angle
        apart = float(((one - other) ** 2).sum())
        sums[place] += apart * t
        totals[place] += apart
    t = sums / np.maximum(totals, 1e-300)
    return np.stack([1 - t, t])


def _apart(models: Float64[np.ndarray, "2 n"]) -> tuple[float, float]:
    """1 − the cosine of two whole matrices, at least and at most, by their rows."""
    lengths = float(np.prod(np.linalg.norm(models, axis=1)))
    apart = 1 - float(models[0] @ models[1]) / max(lengths, 1e-300)
    within = SAMPLED * (2 / models.shape[1]) ** 0.5
    return apart * max(0.0, 1 - within), apart * (1 + within)


def _on_circle(
    rows: _Rows, weights: Float64[np.ndarray, "parents pieces"]
) -> Float64[np.ndarray, " entries"]:
    """As mergekit's `slerp.py`. The angle between whole matrices is that of the rows, within their
    standard error."""
    made = np.empty_like(rows.wanted)
    for number, piece in enumerate(rows.pieces):
        models, wanted = rows.parts[:, piece] + rows.base[piece], rows.wanted[piece]
        t, wanted = float(weights[1, number]), wanted + rows.base[piece]
        low, high = _apart(models)
        tried = [(1 - t) * models[0] + t * models[1]] if low < 1 - SLERP_LINEAR else []
        if high > 1 - SLERP_LINEAR:
            nearest = _nearest_angle(models, wanted, t, max(low, 1 - SLERP_LINEAR + 1e-9), high)
            tried.append(nearest)
        best = min(tried, key=lambda one: float(((one - wanted) ** 2).sum()))
        made[piece] = best
    return rows.kept_as(torch.from_numpy(made).to(torch.float32).to(rows.arithmetic))


def _nearest_angle(
    models: Float64[np.ndarray, "2 n"],
    wanted: Float64[np.ndarray, " n"],
    t: float,
    low: float,
    high: float,
) -> Float64[np.ndarray, " n"]:
    """The great circle's model for an angle (as 1 − cosine) between two that fits best: on a line
    between ever nearer ones."""
    for _ in range(4):
        first, last = (np.array(slerp_weights(t, 1 - angle)) @ models for angle in (low, high))
        span = last - first
        place = float(span @ (wanted - first)) / max(float(span @ span), 1e-300)
        middle, width = low + np.clip(place, 0.0, 1.0) * (high - low), (high - low) / 20
        low, high = max(low, middle - width), min(high, middle + width)
    return np.asarray(np.array(slerp_weights(t, 1 - middle)) @ models)


def _by_matrix(rows: _Rows) -> Reconstruction:
    """A sum with weights of their own in every matrix, which no file has."""
    own = np.stack([_piece_weights(rows, piece) for piece in rows.pieces], axis=1)
    used = np.stack([(rows.parts[:, piece] != 0).any(1) for piece in rows.pieces], axis=1)
    means = (own * used).sum(1) / np.maximum(used.sum(1), 1)
    make = partial(_combined, weights=own, formula=FORMULAS["task_arithmetic"])
    return _evaluated(rows, make, None, means.tolist())


def _piece_weights(rows: _Rows, piece: slice) -> Float64[np.ndarray, " parents"]:
    """Those of one matrix; 0 of a parent that left it unchanged."""
    return np.asarray(np.linalg.lstsq(rows.parts[:, piece].T, rows.wanted[piece], rcond=1e-9)[0])


def _sparse(rows: _Rows, guess: Float64[np.ndarray, " parents"]) -> Iterator[Reconstruction]:
    """TIES, and what is decoded into its parents' entries."""
    decoded = _decoded(rows, guess) if rows.is_fine else _decoded_coarse(rows, guess)
    if decoded is not None:
        yield decoded
        if decoded.explains and (rows.is_fine or decoded.is_drawn):
            return
    for normalises in (True, False):
        fitted = _fitted_ties(rows, guess, normalises=normalises)
        yield fitted
        if fitted.explains:
            return


@dataclass(slots=True, eq=False)
class _Trimming:
    """How large each entry of a parent is among those of its matrix: 0 the largest, 1 the least."""

    rows: _Rows
    ranks: Float64[np.ndarray, "parents entries"]

    @classmethod
    def of(cls, rows: _Rows) -> _Trimming:
        ranks = np.empty_like(rows.parts)
        for piece in rows.pieces:
            order = np.argsort(-np.abs(rows.parts[:, piece]), axis=1, kind="stable")
            places = np.arange(piece.stop - piece.start) / (piece.stop - piece.start)
            np.put_along_axis(ranks[:, piece], order, places[None], axis=1)
        return cls(rows, ranks)

    def made(
        self,
        weights: Float64[np.ndarray, " parents"],
        kept: Float64[np.ndarray, "parents pieces"],
        formula: Formula,
        scale: float,
    ) -> Float64[np.ndarray, " entries"]:
        own = np.repeat(weights[:, None], len(self.rows.pieces), axis=1)
        masks = self.ranks < self.rows.spread(kept)
        return _combined(self.rows, own, formula, scale, masks)

    def cut(
        self,
        weights: Float64[np.ndarray, " parents"],
        densities: Float64[np.ndarray, " parents"],
        formula: Formula,
        scale: float,
    ) -> Float64[np.ndarray, "parents pieces"]:
        """The share of rows that is kept of each matrix, whose threshold is that of the whole: that
        which fits best, within the standard error of the density."""
        rows = self.rows
        lengths = np.array([p.stop - p.start for p in rows.pieces], dtype=np.float64)
        width = 4 * np.sqrt((densities * (1 - densities))[:, None] / lengths) + 1e-9
        kept = np.repeat(densities[:, None], len(lengths), axis=1)
        starts = [p.start for p in rows.pieces]
        for finer in (1.0, 1 / 5, 1 / 25, 1 / 125):
            for parent in range(len(kept)):
                tried, errors = [], []
                for offset in np.linspace(-1, 1, 11) * finer:
                    other = kept.copy()
                    other[parent] += offset * width[parent]
                    misses = (self.made(weights, other, formula, scale) - rows.wanted) ** 2
                    tried.append(other[parent])
                    # as likely as so many standard errors from the density
                    away = 4 * (other[parent] - densities[parent]) / width[parent]
                    errors.append(np.add.reduceat(misses, starts) + away**2 * misses.mean())
                best = np.array(errors).argmin(0)
                kept[parent] = np.array(tried)[best, np.arange(len(lengths))]
        return kept


def _ties_formula(*, normalises: bool) -> Formula:
    return replace(FORMULAS["ties"], normalises=normalises)


def _fitted_ties(
    rows: _Rows, guess: Float64[np.ndarray, " parents"], *, normalises: bool
) -> Reconstruction:
    """TIES by descent over weights, densities and, where it divides by the weights, its length."""
    trimming = _Trimming.of(rows.thinned())
    formula, n_parents = _ties_formula(normalises=normalises), len(guess)
    start = np.abs(guess) / max(float(np.abs(guess).sum()), 1e-9)

    def error(numbers: Float64[np.ndarray, " numbers"]) -> float:
        weights, densities, scale = _as_ties(numbers, n_parents, normalises=normalises)
        kept = np.repeat(densities[:, None], len(trimming.rows.pieces), axis=1)
        return trimming.rows.error(trimming.made(weights, kept, formula, scale))

    grid = [
        np.array([*(start * length), *np.full(n_parents, density), 1.0])
        for density in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
        for length in ((1.0,) if normalises else (0.7, 1.0, 1.4))
    ]
    numbers = min(grid, key=error)
    if error(numbers) < MOST_SEARCHED:
        numbers = _descended(error, numbers)
    return _written_ties(rows, numbers, normalises=normalises)


def _as_ties(
    numbers: Float64[np.ndarray, " numbers"], n_parents: int, *, normalises: bool
) -> tuple[Float64[np.ndarray, " parents"], Float64[np.ndarray, " parents"], float]:
    weights, densities = numbers[:n_parents], np.clip(numbers[n_parents:-1], 0.001, 1.0)
    return (
        (weights / max(weights.sum(), 1e-9), densities, float(numbers[-1]))
        if normalises
        else (
            weights,
            densities,
            1.0,
        )
    )


def _descended(
    error: Callable[[Float64[np.ndarray, " numbers"]], float],
    numbers: Float64[np.ndarray, " numbers"],
) -> Float64[np.ndarray, " numbers"]:
    """By coordinate, in shrinking steps."""
    least = error(numbers)
    for step in (0.1, 0.05, 0.02, 0.01, 0.005, 0.002):
        improved = True
        while improved:
            improved = False
            for place in range(len(numbers)):
                for change in (step, -step):
                    other = numbers.copy()
                    other[place] = max(0.0, other[place] + change)
                    if (found := error(other)) < least * (1 - 1e-4):
                        numbers, least, improved = other, found, True
    return numbers


def _written_ties(
    rows: _Rows, numbers: Float64[np.ndarray, " numbers"], *, normalises: bool
) -> Reconstruction:
    """With the fewest digits that give the merge as well."""
    weights, densities, scale = _as_ties(numbers, len(rows.parts), normalises=normalises)
    found = [
        _ties_of(rows, weights.round(digits), densities.round(2), length, normalises=normalises)
        for digits, length in ((2, 1.0), (2, round(scale, 2)), (3, round(scale, 3)))
    ]
    return max(found, key=lambda one: round(one.share, 2))


def _round_density(density: float) -> float:
    """As somebody would write it, as far as thresholds of some rows tell."""
    twentieth = round(density * 20) / 20
    return twentieth if abs(density - twentieth) < 2 * DENSITY_ERROR else round(density, 2)


def _polished(
    trimming: _Trimming,
    weights: Float64[np.ndarray, " parents"],
    kept: Float64[np.ndarray, "parents pieces"],
    formula: Formula,
    scale: float,
) -> tuple[Float64[np.ndarray, " parents"], float]:
    """Weights and length changed by hundredths as long as more entries are given."""
    numbers = np.array([*weights, scale])

    def share(of: Float64[np.ndarray, " numbers"]) -> float:
        return trimming.rows.share(trimming.made(of[:-1], kept, formula, float(of[-1])))

    most, improved = share(numbers), True
    while improved:
        improved = False
        for place in range(len(numbers) if formula.normalises else len(weights)):
            for change in (0.01, -0.01):
                other = numbers.copy()
                other[place] += change
                if (found := share(other)) > most + 1e-3:
                    numbers, most, improved = other.round(4), found, True
    short = numbers[:-1] / numbers[:-1].sum() if formula.normalises else numbers[:-1]
    rounded = np.array([*short.round(2), numbers[-1]])
    numbers = rounded if share(rounded) > most - 1e-3 else numbers
    return numbers[:-1], float(numbers[-1])


def _ties_of(
    rows: _Rows,
    weights: Float64[np.ndarray, " parents"],
    densities: Float64[np.ndarray, " parents"],
    scale: float,
    *,
    normalises: bool,
) -> Reconstruction:
    formula, trimming = _ties_formula(normalises=normalises), _Trimming.of(rows)
    kept = np.repeat(densities[:, None], len(rows.pieces), axis=1)
    if rows.error(trimming.made(weights, kept, formula, scale)) < MOST_ERROR:
        kept = trimming.cut(weights, densities, formula, scale)
        lengths = [p.stop - p.start for p in rows.pieces]
        pooled = np.average(kept, axis=1, weights=lengths)
        densities = np.array([_round_density(density) for density in pooled])
        if normalises:
            weights = (weights / weights.sum()).round(3)
        weights, scale = _polished(trimming, weights, kept, formula, scale)

    def make(of: _Rows) -> Float64[np.ndarray, " entries"]:
        return _Trimming.of(of).made(weights, kept, formula, scale)

    return _evaluated(
        rows,
        make,
        "ties",
        weights.tolist(),
        densities=tuple(densities.tolist()),
        normalises=normalises,
        scale=scale,
    )


@dataclass(slots=True, eq=False)
class _Code:
    """Which parents each entry is made of: the number of a set, −1 where none fits."""

    sets: list[tuple[int, ...]]
    number: np.ndarray

    def has(self, parent: int) -> Bool[np.ndarray, " entries"]:
        inside = np.array([parent in members for members in self.sets] + [False])
        member: Bool[np.ndarray, " entries"] = inside[self.number]
        return member


def _spike(ratios: Float64[np.ndarray, " entries"], width: float) -> tuple[float, int]:
    """The value at which most positive ratios lie, to a relative width, and how many."""
    logs = np.sort(np.log(ratios[(ratios > 1e-4) & (ratios < 1e4)]))
    if len(logs) < SPIKE_ENTRIES:
        return 0.0, 0
    ends = np.searchsorted(logs, logs + width, side="right")
    counts = ends - np.arange(len(logs))
    first = int(counts.argmax())
    return float(np.exp(np.median(logs[first : ends[first]]))), int(counts[first])


def _ratios(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    usable = (under != 0) & (over != 0)
    return np.asarray(over[usable] / under[usable])


def _decoded(rows: _Rows, guess: Float64[np.ndarray, " parents"]) -> Reconstruction | None:
    """The recipe of a sparse merge; None where parents have no spikes."""
    signs = np.where(guess < 0, -1.0, 1.0)
    gains = np.zeros((len(rows.parts), len(rows.pieces)))
    for parent, part in enumerate(rows.parts):
        pooled, count = _spike(_ratios(rows.wanted, part * signs[parent]), SPIKE_WIDTH)
        if count < SPIKE_ENTRIES:
            return None
        for column, piece in enumerate(rows.pieces):
            ratios = _ratios(rows.wanted[piece], part[piece] * signs[parent])
            width = max(2 * SPIKE_WIDTH, RESCALED / (piece.stop - piece.start) ** 0.5)
            near = ratios[np.abs(np.log(np.clip(ratios, 1e-9, None) / pooled)) < width]
            fine, count = _spike(near, FINE_WIDTH)
            gains[parent, column] = signs[parent] * (
                fine if count >= SPIKE_ENTRIES // 2 else pooled
            )
    typical = np.median(gains, axis=1)
    readings = [_read(rows, gains, None)]
    if len(typical) > 1 and np.ptp(typical) < 2e-3 * np.abs(typical).max():
        # entries of one parent are as long whatever the weights: or all weights are equal
        weights = _pair_weights(rows, typical.mean())
        readings += [_read(rows, gains, weights)] if weights is not None else []
    return max(readings, key=lambda found: round(found.share, 3))


def _read(
    rows: _Rows,
    gains: Float64[np.ndarray, "parents pieces"],
    weights: Float64[np.ndarray, " parents"] | None,
) -> Reconstruction:
    """The recipe by which entries of several parents are a sum, or a mean by these weights."""
    code, _ = _decode(rows, _set_values(rows, gains, weights), 3 * FINE_WIDTH)
    gains = _refined_gains(rows, code, gains)
    weights = None if weights is None else _refined_weights(rows, code, gains, weights)
    code, share = _decode(rows, _set_values(rows, gains, weights), GAIN_ERROR[True])
    wrong = rows.shifted()
    _, chance = _decode(wrong, _set_values(wrong, gains, weights), GAIN_ERROR[True])
    return _recipe(rows, _Decoding(code, gains, code.number >= 0, share, chance), weights)


def _refined_gains(
    rows: _Rows, code: _Code, gains: Float64[np.ndarray, "parents pieces"]
) -> Float64[np.ndarray, "parents pieces"]:
    """Least squares over the entries that are of one parent alone."""
    refined = gains.copy()
    for parent, part in enumerate(rows.parts):
        alone = code.number == code.sets.index((parent,))
        for column, piece in enumerate(rows.pieces):
            own, wanted = part[piece][alone[piece]], rows.wanted[piece][alone[piece]]
            if 2 * len(own) >= SPIKE_ENTRIES:
                refined[parent, column] = (own @ wanted) / (own @ own)
    return refined


def _refined_weights(
    rows: _Rows,
    code: _Code,
    gains: Float64[np.ndarray, "parents pieces"],
    weights: Float64[np.ndarray, " parents"],
) -> Float64[np.ndarray, " parents"]:
    """The weights for which Σ w (x − y) of a set is smallest, over entries of several parents."""
    lengths = [piece.stop - piece.start for piece in rows.pieces]
    away = rows.parts * np.repeat(gains, lengths, axis=1) - rows.wanted
    members = np.stack([code.has(parent) for parent in range(len(away))])
    several = members.sum(0) > 1
    system = (away * members)[:, several]
    _, vectors = np.linalg.eigh(system @ system.T)
    solved = vectors[:, 0] / vectors[:, 0].sum()
    refined: Float64[np.ndarray, " parents"] = solved if (solved > 0).all() else weights
    return refined


def _pair_weights(rows: _Rows, scale: float) -> Float64[np.ndarray, " parents"] | None:
    """Weights, of a sum of 1, where entries of two parents are their mean by weight: the place of
    the merge between both is the same everywhere."""
    n_parents = len(rows.parts)
    equations, logs = [], []
    for one, other in combinations(range(n_parents), 2):
        span = scale * (rows.parts[one] - rows.parts[other])
        usable = (rows.parts[one] * rows.parts[other] > 0) & (rows.wanted != 0) & (span != 0)
        place = (rows.wanted[usable] - scale * rows.parts[other][usable]) / span[usable]
        inside = place[(place > 0.01) & (place < 0.99)]
        value, count = _spike(inside / (1 - inside), 4 * FINE_WIDTH)
        if count >= SPIKE_ENTRIES:
            equation = np.zeros(n_parents)
            equation[one], equation[other] = count**0.5, -(count**0.5)
            equations.append(equation)
            logs.append(np.log(value) * count**0.5)
    if np.linalg.matrix_rank(np.array(equations)) < n_parents - 1 if equations else True:
        return None
    solved = np.exp(np.linalg.lstsq(np.array(equations), np.array(logs), rcond=None)[0])
    weights: Float64[np.ndarray, " parents"] = solved / solved.sum()
    return weights


def _set_values(
    rows: _Rows,
    gains: Float64[np.ndarray, "parents pieces"],
    weights: Float64[np.ndarray, " parents"] | None,
) -> dict[tuple[int, ...], Float64[np.ndarray, " entries"]]:
    """ΔW of every entry, were it made of a set of parents."""
    lengths = [piece.stop - piece.start for piece in rows.pieces]
    terms = rows.parts * np.repeat(gains, lengths, axis=1)
    values: dict[tuple[int, ...], Float64[np.ndarray, " entries"]] = {}
    values[()] = np.zeros(rows.parts.shape[1])
    for size in range(1, len(terms) + 1):
        for members in combinations(range(len(terms)), size):
            chosen = list(members)
            if weights is None:
                values[members] = terms[chosen].sum(0)
            else:
                values[members] = weights[chosen] @ terms[chosen] / weights[chosen].sum()
    return values


def _decode(
    rows: _Rows,
    values: Mapping[tuple[int, ...], Float64[np.ndarray, " entries"]],
    error: float | Float64[np.ndarray, " entries"],
) -> tuple[_Code, float]:
    """The set whose value is nearest, of those within rounding and a relative error of gains."""
    sets = list(values)
    best = np.full(len(rows.wanted), np.inf)
    number = np.full(len(rows.wanted), -1)
    for place, members in enumerate(sets):
        distance = np.abs(values[members] - rows.wanted)
        slack = rows.slack + error * np.abs(values[members])
        nearer = (distance <= slack) & (distance < best)
        best[nearer], number[nearer] = distance[nearer], place
    return _Code(sets, number), float((number >= 0).mean())


def _decoded_coarse(rows: _Rows, guess: Float64[np.ndarray, " parents"]) -> Reconstruction | None:
    """Draws, in a type that keeps no exact multiples; None where rounding hides them. Entries in
    which all parents go the same way have the weights of a sum on average, whatever is elected."""
    terms = rows.parts * np.where(guess < 0, -1.0, 1.0)[:, None]
    same = (terms >= 0).all(0) | (terms <= 0).all(0)
    weights = np.linalg.lstsq(rows.parts[:, same].T, rows.wanted[same], rcond=None)[0]
    own = rows.spread(np.repeat(weights[:, None], len(rows.pieces), axis=1)) * rows.parts
    large = (np.abs(own) > APART * rows.slack).all(0)
    if large.sum() < LEAST_DECODED or not weights.all():
        return None
    dropped = float((np.abs(rows.wanted[large]) <= rows.slack[large] / 2).mean())
    density = 1 - dropped ** (1 / len(weights))
    if density <= 0:
        return None
    gains = np.repeat(weights[:, None] / density, len(rows.pieces), axis=1)
    lengths = np.array([[piece.stop - piece.start for piece in rows.pieces]])
    rescaled = rows.spread(RESCALED / lengths**0.5 * ((1 - density) / density) ** 0.5)[0]
    for narrower in (1.0, 0.5, 0.1, 0.0):
        values = _set_values(rows, gains, None)
        code, share = _decode(rows, values, GAIN_ERROR[False] + narrower * rescaled)
        clear = _clear(rows, values) & (code.number >= 0)
        if clear.sum() < LEAST_DECODED:
            return None
        gains = _gains_of(rows, code, clear, gains)
    wrong = rows.shifted()
    _, chance = _decode(wrong, _set_values(wrong, gains, None), GAIN_ERROR[False])
    return _recipe(rows, _Decoding(code, gains, clear, share, chance), None)


def _clear(
    rows: _Rows, values: Mapping[tuple[int, ...], Float64[np.ndarray, " entries"]]
) -> Bool[np.ndarray, " entries"]:
    """Entries in which no two sets are so near that rounding could take one for the other."""
    apart = np.diff(np.sort(np.stack(list(values.values())), axis=0), axis=0).min(0)
    clear: Bool[np.ndarray, " entries"] = apart > APART * rows.slack
    return clear


def _gains_of(
    rows: _Rows,
    code: _Code,
    clear: Bool[np.ndarray, " entries"],
    gains: Float64[np.ndarray, "parents pieces"],
) -> Float64[np.ndarray, "parents pieces"]:
    """Least squares over decoded entries: of all matrices, and of one where it has enough."""
    kept = np.stack([code.has(parent) for parent in range(len(rows.parts))]) * rows.parts
    pooled = np.linalg.lstsq(kept[:, clear].T, rows.wanted[clear], rcond=None)[0]
    refined = np.repeat(pooled[:, None], gains.shape[1], axis=1)
    for column, piece in enumerate(rows.pieces):
        chosen = np.flatnonzero(clear[piece]) + piece.start
        if len(chosen) >= SPIKE_ENTRIES * len(kept):
            own = kept[:, chosen]
            refined[:, column] = np.linalg.lstsq(own.T, rows.wanted[chosen], rcond=None)[0]
    return refined


@dataclass(frozen=True, slots=True, eq=False)
class _Decoding:
    """Entries as sums of parents' entries. `clear`: those that rounding leaves no doubt of."""

    code: _Code
    gains: Float64[np.ndarray, "parents pieces"]
    clear: Bool[np.ndarray, " entries"]
    share: float
    chance: float


def _recipe(
    rows: _Rows, decoding: _Decoding, mean_weights: Float64[np.ndarray, " parents"] | None
) -> Reconstruction:
    """What the sets of entries tell of the method. `mean_weights`: where entries of several parents
    are a mean."""
    typical = np.median(decoding.gains, axis=1)
    n_parents = len(typical)
    kept = np.stack([decoding.code.has(parent) for parent in range(n_parents)])
    terms = rows.parts * typical[:, None]
    against = (terms > 0).any(0) & (terms < 0).any(0)
    opposed = against & decoding.clear & (kept.sum(0) > 0)
    mixed = (kept & (terms > 0)).any(0) & (kept & (terms < 0)).any(0) & opposed
    # of draws that are not elected, both are kept in the square of the density
    rate = float((kept & decoding.clear).sum() / max(1, n_parents * decoding.clear.sum()))
    least = max(0.01, rate**2 / 4)
    elects = bool(opposed.sum() >= SPIKE_ENTRIES and mixed.sum() < least * opposed.sum())
    # an entry that another was elected over says nothing of whether it was kept
    counted = decoding.clear & ~(against & elects)
    separation, error = _separation(rows, kept, counted)
    scale = round(float(typical.mean()), 5) if mean_weights is not None else 1.0
    used = typical if mean_weights is None else mean_weights
    if rows.is_fine and separation >= TRIMMED and elects:
        densities = [_trimmed_density(rows, kept[i], counted, i) for i in range(n_parents)]
        numbers = np.array(used).round(4), np.array(densities).round(2), round(scale, 3)
        return _ties_of(rows, *numbers, normalises=mean_weights is not None)
    drawn, density = _drawn(rows, kept, counted, decoding.gains)
    used = drawn if mean_weights is None else mean_weights
    found = Reconstruction(
        method=None,
        weights=tuple(_written(weight) for weight in used),
        share=decoding.share,
        chance=decoding.chance,
        arithmetic=rows.arithmetic,
        entries=len(rows.wanted),
    )
    if error > MOST_DOUBT or abs(separation - 0.5) > DRAWN + 2 * error:
        return found
    method: Method = "dare_ties" if elects else "dare_linear"
    return replace(
        found,
        method=method,
        densities=(_written(density),) * n_parents,
        normalises=mean_weights is not None,
        is_drawn=True,
    )


def _drawn(
    rows: _Rows,
    kept: Bool[np.ndarray, "parents entries"],
    counted: Bool[np.ndarray, " entries"],
    gains: Float64[np.ndarray, "parents pieces"],
) -> tuple[Float64[np.ndarray, " parents"], float]:
    """Weights and density of draws: a matrix is rescaled to the sum of |entries| it had."""
    sizes = np.abs(rows.parts) * counted
    starts = [piece.start for piece in rows.pieces]
    before = np.add.reduceat(sizes, starts, axis=1)
    after = np.add.reduceat(sizes * kept, starts, axis=1)
    weights = (gains * after).sum(1) / np.maximum(before.sum(1), 1e-300)
    usable = sizes > 0
    density = float((kept & usable).sum() / max(int(usable.sum()), 1))
    means = gains.mean(1)
    if (np.ptp(gains, axis=1) < 1e-3 * np.abs(means)).all():
        weights = means * _written(density)  # divided by the density, as the method was published
    return weights, density


def _written(value: float) -> float:
    """A number that draws show, as somebody would write it."""
    short = round(float(value), 2)
    return short if abs(value - short) < DENSITY_ERROR else round(float(value), 3)


def _trimmed_density(
    rows: _Rows, kept: np.ndarray, counted: Bool[np.ndarray, " entries"], parent: int
) -> float:
    """The share of entries above the threshold that best parts what was kept from what was not."""
    above, sizes = 0.0, np.abs(rows.parts[parent])
    for piece in rows.pieces:
        use = counted[piece] & (sizes[piece] > 0)
        order = np.argsort(sizes[piece][use], kind="stable")
        is_kept = kept[piece][use][order]
        # errors where everything from a place on is kept
        below = np.concatenate([[0], np.cumsum(is_kept)])
        over = np.concatenate([[0], np.cumsum(~is_kept)])
        place = int((below + over[-1] - over).argmin())
        least = np.append(sizes[piece][use][order], np.inf)[place]
        above += float((sizes[piece] >= least).sum())
    return above / len(sizes)


def _separation(
    rows: _Rows, kept: np.ndarray, counted: Bool[np.ndarray, " entries"]
) -> tuple[float, float]:
    """The probability that a kept entry of a parent is larger than one that is not: mean over
    matrices and parents (Mann, Whitney 1947), with its standard error."""
    found, variances = [], []
    for parent, is_of in enumerate(kept):
        for piece in rows.pieces:
            use = counted[piece] & (rows.parts[parent, piece] != 0)
            sizes, is_kept = np.abs(rows.parts[parent, piece])[use], is_of[piece][use]
            n_kept, n_not = int(is_kept.sum()), int((~is_kept).sum())
            if n_kept and n_not:
                ranks = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
                wins = ranks[is_kept].sum() - n_kept * (n_kept - 1) / 2
                found.append(float(wins) / (n_kept * n_not))
                variances.append((n_kept + n_not + 1) / (12 * n_kept * n_not))
    if not found:
        return 0.5, 1.0
    weights = 1 / np.array(variances)
    return float(np.average(found, weights=weights)), float(weights.sum() ** -0.5)
