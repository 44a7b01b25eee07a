"""Proof of a merge by reconstruction: its recipe redone on a few rows, compared bit by bit.

Of the rows of every matrix, parents' weights follow by least squares where the merge is a sum. In a
sparse merge they do not, but an entry that came from one parent alone is an exact multiple of that
parent's, and the multiples form a spike among all ratios. From the spikes every entry is decoded:
which parents it is made of. The sets tell the method: sets without regard to magnitude are DARE's,
sets of the largest entries are TIES's, sets of one sign are elected. Of TIES the formula is then
redone with thresholds; of DARE, whose draws are not known, the decoded share is the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import torch

from ...arrays import Bool, Float64
from ...indexer import Key
from .merge_formulas import Formula, Method, combine

Matrices = Mapping[Key, torch.Tensor]

STEPS = {torch.float32: 4.0, torch.float64: 4.0, torch.float16: 1.01, torch.bfloat16: 1.01}
"""Steps of the storage type within which an entry counts as reproduced: one rounding, and in
float32 the order of additions besides."""

PROVEN = 0.95
"""Share of entries that are reproduced, beyond those that a wrong recipe reproduces, from which a
recipe is proven; the rest are ties of rounding and of magnitude."""

SLERP_EXTRA = 2e-7
"""Weights of two models on a great circle add up to 1 and this much more, or to 1 as far as single
precision tells."""

MOST_DECODED = 5
"""Parents up to which all sets of them are tried."""

SPIKE_WIDTH = 0.01
"""Of log ratios, over all matrices: DARE's rescaling differs by as much."""

FINE_WIDTH = 2e-4
"""In one matrix: rounding of single precision in updates of a thousandth of the weights."""

GAIN_ERROR = 2e-6
"""Relative error of a multiple after least squares."""

DENSITY_ERROR = 0.006
"""Of a density that draws show, of some ten thousand entries."""

FURTHER = 25.0
"""Squared standard errors of a further parent's weight, from which it is tried."""

SPIKE_ENTRIES = 12
"""Fewest entries of a spike."""

TRIMMED, DRAWN = 0.97, 0.6
"""Probability that a kept entry is larger than one that is not: from the first on they were
trimmed, up to the second drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """What the rows say of a merge.

    Attributes:
        share: Of entries that the recipe reproduces, 0…1.
        chance: The same of a recipe that is wrong: parents' entries shifted by one.
        weights: As a config file has them.
        by_matrix: Where weights vary: of each parent by slot and part.
        densities: One a parent; empty without.
        normalises: As the config's `normalize`; `scale`: its `lambda`.
        entries: That were compared.
    """

    method: Method | None
    weights: tuple[float, ...]
    share: float
    chance: float
    densities: tuple[float, ...] = ()
    normalises: bool = False
    scale: float = 1.0
    by_matrix: tuple[Mapping[Key, float], ...] = ()
    entries: int = 0

    @property
    def is_proven(self) -> bool:
        return self.share - self.chance >= PROVEN * (1 - self.chance)


@dataclass(slots=True, eq=False)
class _Rows:
    """Entries of all matrices side by side. `wanted`: ΔW of the merge; `parts`: of its parents;
    `slack`: how far an entry may be off, absolute."""

    keys: list[Key]
    pieces: list[slice]
    base: Float64[np.ndarray, " entries"]
    wanted: Float64[np.ndarray, " entries"]
    parts: Float64[np.ndarray, "parents entries"]
    slack: Float64[np.ndarray, " entries"]
    is_fine: bool

    @classmethod
    def of(cls, base: Matrices, merged: Matrices, parents: Sequence[Matrices]) -> _Rows | None:
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
        flat = [
            np.concatenate([model[key].double().flatten().numpy() for key in keys])
            for model in (base, merged, *parents)
        ]
        dtype = merged[keys[0]].dtype
        sizes = np.maximum(np.abs(np.stack(flat)).max(0), 1e-30)
        return cls(
            keys=list(keys),
            pieces=[slice(*pair) for pair in pairwise(ends.tolist())],
            base=flat[0],
            wanted=flat[1] - flat[0],
            parts=np.stack(flat[2:]) - flat[0],
            slack=STEPS[dtype] * torch.finfo(dtype).eps * sizes,
            is_fine=torch.finfo(dtype).eps < 1e-6,
        )

    def shifted(self) -> _Rows:
        """The same with parents' entries that belong to their neighbours."""
        parts = np.roll(self.parts, 1, axis=1)
        return _Rows(
            self.keys, self.pieces, self.base, self.wanted, parts, self.slack, self.is_fine
        )

    def share(self, made: Float64[np.ndarray, " entries"]) -> float:
        return float((np.abs(made - self.wanted) <= self.slack).mean())


def reconstruct(
    base: Matrices,
    merged: Matrices,
    parents: Sequence[Matrices],
    guess: Sequence[float],
    *,
    is_sparse: bool = False,
) -> Reconstruction | None:
    """The recipe that explains most of the rows; None where nothing can be decided by them.

    Args:
        base, merged, parents: The same rows by slot and part, as they are stored.
        guess: The weights that sketches gave.
        is_sparse: Sketches say that no sum explains it.
    """
    rows = _Rows.of(base, merged, parents)
    if rows is None:
        return None
    best = max(_sums(rows), key=lambda found: round(found.share, 3))
    if best.is_proven:
        return best
    if not rows.is_fine:
        return None if is_sparse else best
    if len(parents) > MOST_DECODED:
        return best
    sparse = _decoded(rows, np.array(guess))
    return sparse if sparse is not None and sparse.share > best.share else best


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


def _sums(rows: _Rows) -> Iterator[Reconstruction]:
    """Weights for all matrices, of two models on a great circle, then for each matrix; the first
    that is proven ends it."""
    everywhere = _written(rows, np.linalg.lstsq(rows.parts.T, rows.wanted, rcond=None)[0])
    by_piece = [_piece_weights(rows, piece) for piece in rows.pieces]
    same = _sum_of(rows, everywhere, [everywhere] * len(rows.pieces))
    yield same
    if same.is_proven:
        return
    if len(rows.parts) == 2 and (slerp := _slerp(rows)) is not None:
        yield slerp
        if slerp.is_proven and not slerp.by_matrix:
            return
    yield _sum_of(rows, _mean_used(rows, by_piece), by_piece, varies=True)


def _sum_of(
    rows: _Rows,
    weights: Float64[np.ndarray, " parents"],
    own: Sequence[Float64[np.ndarray, " parents"]],
    *,
    varies: bool = False,
) -> Reconstruction:
    wrong, known = rows.shifted(), _changed(rows).all(1)
    sums = np.array(own).sum(1)
    # where a parent changed nothing its weight is not known
    off = np.abs(sums[known] - 1) if known.any() else np.clip(sums - 1, 0.0, None)
    is_mean = np.min(own) >= 0 and bool(np.quantile(off, 0.9) < (1e-3 if rows.is_fine else 0.02))
    return Reconstruction(
        method="linear" if is_mean else "task_arithmetic",
        weights=tuple(weights.tolist()),
        share=rows.share(_summed(rows, own)),
        chance=wrong.share(_summed(wrong, own)),
        by_matrix=_by_matrix(rows, own) if varies else (),
        entries=len(rows.wanted),
    )


def _piece_weights(rows: _Rows, piece: slice) -> Float64[np.ndarray, " parents"]:
    """Those of one matrix; 0 of a parent that left it unchanged."""
    return np.asarray(np.linalg.lstsq(rows.parts[:, piece].T, rows.wanted[piece], rcond=1e-9)[0])


def _mean_used(
    rows: _Rows, own: Sequence[Float64[np.ndarray, " parents"]]
) -> Float64[np.ndarray, " parents"]:
    """Mean weights over the matrices that a parent changed."""
    used = _changed(rows)
    return np.asarray((np.array(own) * used).sum(0) / np.maximum(used.sum(0), 1))


def _changed(rows: _Rows) -> Bool[np.ndarray, "pieces parents"]:
    """Whether a parent changed a matrix."""
    return np.array([(rows.parts[:, piece] != 0).any(1) for piece in rows.pieces])


def _by_matrix(
    rows: _Rows, own: Sequence[Float64[np.ndarray, " parents"]]
) -> tuple[Mapping[Key, float], ...]:
    """Of each parent, in the matrices that it changed."""
    used = _changed(rows)
    return tuple(
        {
            key: float(weights[parent])
            for key, weights, is_used in zip(rows.keys, own, used[:, parent], strict=True)
            if is_used
        }
        for parent in range(len(rows.parts))
    )


def _summed(
    rows: _Rows, own: Sequence[Float64[np.ndarray, " parents"]]
) -> Float64[np.ndarray, " entries"]:
    made = [weights @ rows.parts[:, p] for weights, p in zip(own, rows.pieces, strict=True)]
    return np.concatenate(made)


def _slerp(rows: _Rows) -> Reconstruction | None:
    """Two models on a great circle: their weights add up to a little more than 1, so that some of
    the base's own weights is left over; None where there is none."""
    fits = []
    for piece in rows.pieces:
        system = np.vstack([rows.parts[:, piece], rows.base[piece]])
        fits.append(np.linalg.lstsq(system.T, rows.wanted[piece], rcond=1e-12)[0])
    extra = np.array(fits)[:, 2]
    # where an angle is small, the models are interpolated linearly
    if (extra > SLERP_EXTRA).mean() < 0.05 or (extra < -SLERP_EXTRA).mean() > 0.1:
        return None

    def made(of: _Rows) -> Float64[np.ndarray, " entries"]:
        pairs = zip(fits, of.pieces, strict=True)
        return np.concatenate([f[:2] @ of.parts[:, p] + f[2] * of.base[p] for f, p in pairs])

    used = _changed(rows).all(1)
    own = [fit[:2] / max(float(fit[:2].sum()), 1e-9) for fit in fits]
    places = np.array(own)[used if used.any() else slice(None)]
    varies = bool(np.abs(places - np.median(places, axis=0)).mean() > 2e-3)
    wrong = rows.shifted()
    return Reconstruction(
        method="slerp",
        weights=tuple(np.median(places, axis=0).round(4).tolist()),
        share=rows.share(made(rows)),
        chance=wrong.share(made(wrong)),
        by_matrix=_by_matrix(rows, own) if varies else (),
        entries=len(rows.wanted),
    )


def _written(
    rows: _Rows, weights: Float64[np.ndarray, " parents"]
) -> Float64[np.ndarray, " parents"]:
    """Weights of few digits, as somebody would write them, where they reproduce as much."""
    exact = weights.round(7)
    least = rows.share(exact @ rows.parts) - 1e-3
    short = (weights.round(digits) for digits in (2, 3, 4))
    return next((own for own in short if rows.share(own @ rows.parts) >= least), exact)


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
            near = ratios[np.abs(np.log(np.clip(ratios, 1e-9, None) / pooled)) < 2 * SPIKE_WIDTH]
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
    code, share = _decode(rows, _set_values(rows, gains, weights), GAIN_ERROR)
    wrong = rows.shifted()
    _, chance = _decode(wrong, _set_values(wrong, gains, weights), GAIN_ERROR)
    return _recipe(rows, code, gains, weights, share, chance)


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
    rows: _Rows, values: Mapping[tuple[int, ...], Float64[np.ndarray, " entries"]], error: float
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


def _recipe(
    rows: _Rows,
    code: _Code,
    gains: Float64[np.ndarray, "parents pieces"],
    weights: Float64[np.ndarray, " parents"] | None,
    share: float,
    chance: float,
) -> Reconstruction:
    n_parents = len(rows.parts)
    typical = np.median(gains, axis=1)
    kept = np.stack([code.has(parent) for parent in range(n_parents)])
    fitting = code.number >= 0
    terms = rows.parts * typical[:, None]
    positive, negative = (kept & (terms > 0)).any(0), (kept & (terms < 0)).any(0)
    opposed = (terms > 0).any(0) & (terms < 0).any(0) & fitting & (kept.sum(0) > 0)
    mixed = (positive & negative & fitting).sum()
    elects = bool(opposed.sum() >= SPIKE_ENTRIES and mixed < 0.01 * opposed.sum())
    # an entry against the majority's sign says nothing of whether it was kept before
    counted = fitting & ((terms * rows.wanted >= 0) | (not elects))
    separation = float(
        np.median(
            [
                _separation(rows, kept[i], counted[i] if elects else fitting, i)
                for i in range(n_parents)
            ]
        )
    )
    scale = round(float(typical.mean()), 5) if weights is not None else 1.0
    common = partial(Reconstruction, share=share, chance=chance, entries=len(rows.wanted))
    if separation >= TRIMMED:
        formula = Formula(trims=True, elects=elects, normalises=weights is not None)
        used = typical if weights is None else weights
        return _trimmed(rows, kept, counted, used, scale, formula, chance)
    density = _drawn_density(rows)
    if abs(density - round(density, 2)) < DENSITY_ERROR:
        density = round(density, 2)
    if separation <= DRAWN:
        method: Method = "dare_ties" if elects else "dare_linear"
        own = typical * density if weights is None else weights
        return common(
            method=method,
            weights=tuple(own.round(3).tolist()),
            densities=(round(density, 4),) * n_parents,
            normalises=weights is not None,
        )
    own = typical if weights is None else weights
    return common(method=None, weights=tuple(own.round(4).tolist()))


def _separation(rows: _Rows, kept: np.ndarray, counted: np.ndarray, parent: int) -> float:
    """The probability that a kept entry of a parent is larger than one that is not: mean over
    matrices (Mann, Whitney 1947)."""
    found = []
    for piece in rows.pieces:
        use = counted[piece] & (rows.parts[parent, piece] != 0)
        sizes, is_kept = np.abs(rows.parts[parent, piece])[use], kept[piece][use]
        n_kept = int(is_kept.sum())
        if n_kept and n_kept < len(sizes):
            ranks = np.argsort(np.argsort(sizes, kind="stable"), kind="stable")
            wins = ranks[is_kept].sum() - n_kept * (n_kept - 1) / 2
            found.append(float(wins) / (n_kept * (len(sizes) - n_kept)))
    return float(np.mean(found)) if found else 0.5


def _drawn_density(rows: _Rows) -> float:
    """The rate of draws at which as many entries stay unchanged as did: by halving."""
    changed = (rows.parts != 0).sum(0)
    counts = np.bincount(changed[changed > 0])
    zeros = float((rows.wanted[changed > 0] == 0).mean())
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        expected = float(counts @ (1 - middle) ** np.arange(len(counts)) / counts.sum())
        low, high = (middle, high) if expected > zeros else (low, middle)
    return high


def _trimmed(
    rows: _Rows,
    kept: np.ndarray,
    counted: np.ndarray,
    weights: Float64[np.ndarray, " parents"],
    scale: float,
    formula: Formula,
    chance: float,
) -> Reconstruction:
    """TIES redone: in each matrix the threshold that best parts what was kept from what was not."""
    masks = np.zeros_like(kept)
    for parent, part in enumerate(np.abs(rows.parts)):
        for piece in rows.pieces:
            use = counted[parent, piece] & (part[piece] > 0)
            sizes, is_kept = part[piece][use], kept[parent, piece][use]
            order = np.argsort(sizes, kind="stable")
            # errors where everything from a place on is kept
            below = np.concatenate([[0], np.cumsum(is_kept[order])])
            above = np.concatenate([[0], np.cumsum(~is_kept[order])])
            place = int((below + above[-1] - above).argmin())
            least = np.append(sizes[order], np.inf)[place]
            masks[parent, piece] = part[piece] >= least
    parts = torch.from_numpy(rows.parts * masks)
    made = combine(parts, torch.from_numpy(weights)[:, None], formula).numpy() * scale
    changed = rows.parts != 0
    return Reconstruction(
        method="ties" if formula.elects else None,
        weights=tuple(weights.round(4).tolist()),
        densities=tuple(((masks & changed).sum(1) / changed.sum(1)).round(2).tolist()),
        normalises=formula.normalises,
        scale=round(scale, 3),
        share=rows.share(made),
        chance=chance,
        entries=len(rows.wanted),
    )
