"""TIES and DARE in rows.

Of DARE every entry is decoded into the set of parents it is made of: sets without regard to
magnitude are draws, which are not known; no file gives them again, and the decoded share is the
proof. Of TIES densities are searched; they tell which entries are kept, and so the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ...arrays import Bool, Float64
from .file_on_rows import (
    MOST_SEARCHED,
    TIES,
    Entries,
    Formula,
    MergeRows,
    Method,
    PerParent,
    PerPiece,
    Reconstruction,
    combined,
    evaluated,
)

SetValues = Float64[np.ndarray, "sets entries"]
Chosen = Bool[np.ndarray, " entries"]
Kept = Bool[np.ndarray, "parents entries"]

MOST_ERROR = 0.4
"""|file − merge| / |ΔW| from which no threshold is looked for."""

SPIKE_WIDTH = 0.01
"""Of log ratios of entries that came from one parent: DARE's rescaling differs by as much."""

RESCALED = 4.0
"""Over the square root of a matrix's entries: how far its rescaling may be from the others'."""

GAIN_ERROR = {True: 2e-6, False: 8e-3}
"""Relative error of a multiple after least squares, in single precision and in coarser types, whose
products are rounded themselves."""

APART = 3.0
"""Slacks by which the sums of all sets differ in an entry that a coarse type decodes."""

DENSITY_ERROR = 0.006
"""Of a density that draws show, of some ten thousand entries."""

RATES_WITHIN = 0.1
"""How far the shares of entries that are kept of each parent differ, if one density is given."""

SPIKE_ENTRIES = 12
"""Fewest entries of a spike."""

LEAST_DECODED = 400
"""Fewest entries by which draws are told from what depends on magnitude."""

DRAWN = 0.012
"""How far from a half that probability may be, beside two standard errors, if entries were drawn at
random: DELLA's draws, of an epsilon of .15 and half of the entries, are .10 off."""

MOST_DOUBT = 0.0125
"""Its standard error from which nothing is said of draws."""


def sparse(rows: MergeRows, guess: PerParent) -> Iterator[Reconstruction]:
    """DARE, as decoded into its parents' entries; TIES."""
    decoded = _decoded(rows, guess)
    if decoded is not None:
        yield decoded
        if decoded.explains and decoded.is_drawn:
            return
    for normalises in (True, False):
        fitted = _fitted_ties(rows, normalises=normalises)
        yield fitted
        if fitted.explains:
            return


class _Trimming:
    """TIES of rows. `ranks`: how large each entry of a parent is among those of its matrix: 0 the
    largest, 1 the least."""

    def __init__(self, rows: MergeRows, formula: Formula) -> None:
        self.rows, self.formula, self.ranks = rows, formula, np.empty_like(rows.parts)
        for piece in rows.pieces:
            order = np.argsort(-np.abs(rows.parts[:, piece]), axis=1, kind="stable")
            places = np.arange(piece.stop - piece.start) / (piece.stop - piece.start)
            np.put_along_axis(self.ranks[:, piece], order, places[None], axis=1)

    def masks(self, kept: PerPiece) -> Bool[np.ndarray, "parents entries"]:
        return np.asarray(self.ranks < self.rows.spread(kept))

    def weights(self, kept: PerPiece) -> tuple[PerParent, float]:
        """Those with which kept entries give the merge best, and its length.

        Those of an entry's sign are added. Of a mean, y = s Σ w x / Σ w: entries of one parent
        alone show s, and w is the direction in which Σ w (s x − y) is smallest over all entries.
        """
        rows = self.rows
        counted = rows.parts * (self.masks(kept) & (np.sign(rows.parts) == np.sign(rows.wanted)))
        if not self.formula.normalises:
            return np.linalg.lstsq(counted.T, rows.wanted, rcond=1e-9)[0], 1.0
        is_alone = (counted != 0).sum(0) == 1
        alone = counted.sum(0)[is_alone]
        scale = float(alone @ rows.wanted[is_alone]) / max(float(alone @ alone), 1e-300) or 1.0
        away = scale * counted - rows.wanted * (counted != 0)
        weights = np.abs(np.linalg.eigh(away @ away.T).eigenvectors[:, 0])
        return weights / weights.sum(), scale

    def made(self, weights: PerParent, kept: PerPiece, scale: float) -> Entries:
        own = np.repeat(weights[:, None], len(self.rows.pieces), axis=1)
        return combined(self.rows, own, self.formula, scale, self.masks(kept))

    def cut(self, weights: PerParent, densities: PerParent, scale: float) -> PerPiece:
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
                    misses = (self.made(weights, other, scale) - rows.wanted) ** 2
                    tried.append(other[parent])
                    # as likely as so many standard errors from the density
                    away = 4 * (other[parent] - densities[parent]) / width[parent]
                    errors.append(np.add.reduceat(misses, starts) + away**2 * misses.mean())
                best = np.array(errors).argmin(0)
                kept[parent] = np.array(tried)[best, np.arange(len(lengths))]
        return kept


def _fitted_ties(rows: MergeRows, *, normalises: bool) -> Reconstruction:
    """TIES: its densities by descent, from which weights and length follow."""
    formula = replace(TIES, normalises=normalises)
    thinned = _Trimming(rows.thinned(), formula)

    def error(densities: PerParent) -> float:
        kept = np.repeat(densities[:, None], len(rows.pieces), axis=1)
        weights, scale = thinned.weights(kept)
        return thinned.rows.error(thinned.made(weights, kept, scale))

    grid = [np.full(len(rows.parts), density) for density in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)]
    densities = min(grid, key=error)
    if error(densities) < MOST_SEARCHED:
        densities = _descended(error, densities)
    return _written_ties(rows, densities, formula)


def _descended(error: Callable[[PerParent], float], numbers: PerParent) -> PerParent:
    """By coordinate, in shrinking steps, within 0…1."""
    least = error(numbers)
    for step in (0.1, 0.05, 0.02, 0.01, 0.005, 0.002):
        improved = True
        while improved:
            improved = False
            for place in range(len(numbers)):
                for change in (step, -step):
                    other = numbers.copy()
                    other[place] = np.clip(other[place] + change, 0.001, 1.0)
                    if (found := error(other)) < least * (1 - 1e-4):
                        numbers, least, improved = other, found, True
    return numbers


def _written_ties(rows: MergeRows, densities: PerParent, formula: Formula) -> Reconstruction:
    """With the fewest digits that give the merge as well, and the share of rows that is kept of
    each matrix."""
    trimming = _Trimming(rows, formula)
    kept = np.repeat(densities[:, None], len(rows.pieces), axis=1)
    weights, scale = trimming.weights(kept)
    if rows.error(trimming.made(weights, kept, scale)) < MOST_ERROR:
        for _ in range(2):
            kept = trimming.cut(weights, densities, scale)
            weights, scale = trimming.weights(kept)
    pooled = np.average(kept, axis=1, weights=[p.stop - p.start for p in rows.pieces])
    densities = np.array([_round_density(density) for density in pooled])

    def written(unit: float, length: float) -> Reconstruction:
        own = (weights / unit).round() * unit

        def make(of: MergeRows) -> Entries:
            return _Trimming(of, formula).made(own, kept, length)

        numbers = {"densities": tuple(densities.tolist()), "normalises": formula.normalises}
        return evaluated(rows, make, "ties", own.round(3).tolist(), scale=length, **numbers)

    units = ((0.05, 1.0), (0.01, 1.0), (0.01, round(scale, 2)), (0.001, round(scale, 3)))
    return max((written(*unit) for unit in units), key=lambda found: round(found.share, 2))


def _round_density(density: float) -> float:
    """As somebody would write it, as far as thresholds of some rows tell."""
    twentieth = round(density * 20) / 20
    return twentieth if abs(density - twentieth) < 2 * DENSITY_ERROR else round(density, 2)


def _decode(
    rows: MergeRows, gains: PerPiece, error: float | Entries
) -> tuple[Kept, Chosen, SetValues]:
    """Which parents each entry is made of; whether a set of them fits it, that whose value is
    nearest, of those within rounding and a relative error of gains; and ΔW of every entry, were it
    made of a set, the smaller sets first."""
    sets = np.array(list(product((True, False), repeat=len(gains))))
    sets = sets[np.argsort(sets.sum(1), kind="stable")]
    values = sets @ (rows.parts * rows.spread(gains))
    distances = np.abs(values - rows.wanted)
    distances[distances > rows.slack + error * np.abs(values)] = np.inf
    fits: Chosen = np.isfinite(distances).any(0)
    return sets[distances.argmin(0)].T & fits, fits, values


def _decoded(rows: MergeRows, guess: PerParent) -> Reconstruction | None:
    """What entries tell, decoded into their parents'; None where rounding hides them."""
    gains = _first_gains(rows, np.where(guess < 0, -1.0, 1.0))
    if gains is None:
        return None
    # draws keep some share of a matrix: it is rescaled by as much
    lengths = np.array([[piece.stop - piece.start for piece in rows.pieces]])
    rescaled, error = rows.spread(RESCALED / lengths**0.5)[0], GAIN_ERROR[rows.is_fine]
    for narrower in (1.0, 0.5, 0.1, 0.0):
        kept, fits, values = _decode(rows, gains, error + narrower * rescaled)
        # entries in which no two sets are so near that rounding could take one for the other
        apart = np.diff(np.sort(values, axis=0), axis=0).min(0)
        clear = np.asarray(apart > APART * rows.slack) & fits
        if clear.sum() < LEAST_DECODED:
            return None
        gains = _gains_of(rows, kept, clear, gains)
    kept, fits = _decode(rows, gains, error)[:2]
    by_chance = _decode(rows.shifted(), gains, error)[1]
    found = Reconstruction(
        method=None,
        weights=(),
        share=float(fits.mean()),
        chance=float(by_chance.mean()),
        arithmetic=rows.arithmetic,
        entries=len(rows.wanted),
    )
    return _recipe(rows, found, kept, clear, gains)


def _first_gains(rows: MergeRows, signs: PerParent) -> PerPiece | None:
    """What a kept entry is multiplied by, roughly.

    In a fine type, that of most entries, which came from one parent alone. In others, weights of a
    sum over the density: entries in which all parents go the same way have them on average,
    whatever is elected.
    """
    if rows.is_fine:
        first = signs * [
            _spike(rows.wanted, part * s) for part, s in zip(rows.parts, signs, strict=True)
        ]
    else:
        terms = rows.parts * signs[:, None]
        same = (terms >= 0).all(0) | (terms <= 0).all(0)
        weights = np.linalg.lstsq(rows.parts[:, same].T, rows.wanted[same], rcond=None)[0]
        large = (np.abs(weights[:, None] * rows.parts) > APART * rows.slack).all(0)
        if large.sum() < LEAST_DECODED:
            return None
        dropped = float((np.abs(rows.wanted[large]) <= rows.slack[large] / 2).mean())
        first = weights / max(1 - dropped ** (1 / len(weights)), 1e-9)
    return np.repeat(first[:, None], len(rows.pieces), axis=1) if first.all() else None


def _spike(wanted: Entries, part: Entries) -> float:
    """The value of most positive ratios, up to `SPIKE_WIDTH`; 0 of few."""
    ratios = wanted[part != 0] / part[part != 0]
    logs = np.sort(np.log(ratios[(ratios > 1e-4) & (ratios < 1e4)]))
    counts = np.searchsorted(logs, logs + SPIKE_WIDTH, side="right") - np.arange(len(logs))
    if counts.max(initial=0) < SPIKE_ENTRIES:
        return 0.0
    first = int(counts.argmax())
    return float(np.exp(np.median(logs[first : first + counts[first]])))


def _gains_of(rows: MergeRows, kept: Kept, clear: Chosen, gains: PerPiece) -> PerPiece:
    """Least squares over decoded entries: of all matrices, and of one where it has enough."""
    parts = kept * rows.parts
    pooled = np.linalg.lstsq(parts[:, clear].T, rows.wanted[clear], rcond=None)[0]
    refined = np.repeat(pooled[:, None], gains.shape[1], axis=1)
    for column, piece in enumerate(rows.pieces):
        chosen = np.flatnonzero(clear[piece]) + piece.start
        if len(chosen) >= SPIKE_ENTRIES * len(parts):
            own = parts[:, chosen]
            refined[:, column] = np.linalg.lstsq(own.T, rows.wanted[chosen], rcond=None)[0]
    return refined


def _recipe(
    rows: MergeRows, found: Reconstruction, kept: Kept, clear: Chosen, gains: PerPiece
) -> Reconstruction:
    """What the sets of entries tell of the method; `clear`: those that rounding leaves no doubt
    of."""
    typical, n_parents = np.median(gains, axis=1), len(gains)
    terms = rows.parts * typical[:, None]
    against = (terms > 0).any(0) & (terms < 0).any(0)
    opposed = against & clear & (kept.sum(0) > 0)
    mixed = (kept & (terms > 0)).any(0) & (kept & (terms < 0)).any(0) & opposed
    # of draws that are not elected, both are kept in the square of the density
    rate = float((kept & clear).sum() / max(1, n_parents * clear.sum()))
    least = max(0.01, rate**2 / 4)
    elects = bool(opposed.sum() >= SPIKE_ENTRIES and mixed.sum() < least * opposed.sum())
    # an entry that another was elected over says nothing of whether it was kept
    counted = clear & ~(against & elects)
    separation, error = _separation(rows, kept, counted)
    rates = (kept & counted).sum(1) / max(1, int(counted.sum()))
    used, density = _drawn(rows, kept, counted, gains)
    found = replace(found, weights=tuple(_written(weight) for weight in used))
    is_even = error <= MOST_DOUBT and abs(separation - 0.5) <= DRAWN + 2 * error
    if not is_even or np.ptp(rates) > RATES_WITHIN:
        return found
    method: Method = "dare_ties" if elects else "dare_linear"
    return replace(found, method=method, densities=(_written(density),) * n_parents, is_drawn=True)


def _drawn(
    rows: MergeRows, kept: Kept, counted: Chosen, gains: PerPiece
) -> tuple[PerParent, float]:
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


def _separation(rows: MergeRows, kept: np.ndarray, counted: Chosen) -> tuple[float, float]:
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
