"""Proof of a merge by reconstruction: a config file's numbers, evaluated as mergekit does.

What is compared is what a file would give: every hypothesis ends in the numbers that a file has,
and these are put through mergekit's formulas in the file's arithmetic and storage type, on a few
rows of every matrix (`file_on_rows.py`). Numbers of sums follow by least squares, those of SLERP
from the place between two models; `sparse_rows.py` has TIES and DARE.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ...indexer import Key
from .file_on_rows import (
    LEAST_ERROR,
    MOST_SEARCHED,
    TASK_ARITHMETIC,
    Entries,
    Make,
    Matrices,
    MergeRows,
    Method,
    PerParent,
    PerPiece,
    Place,
    Reconstruction,
    combined,
    evaluated,
)
from .sparse_rows import sparse

SLERP_LINEAR = 0.9995
"""Cosine of two tensors beyond which mergekit interpolates linearly."""

SAMPLED = 10.0
"""Standard errors by which what rows show of a whole matrix may be off."""

MOST_DECODED = 5
"""Parents up to which all sets of them are tried."""


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
        rows = MergeRows.of(base, merged, parents, arithmetic, places)
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


def _best(rows: MergeRows, guess: PerParent) -> Reconstruction:
    """The first kind of recipe that explains the rows; else that which comes nearest."""
    kinds = (  # each looked at only where those before do not explain them
        _sums(replace(rows, places=rows.places[:1] * len(rows.places))),
        _sums(rows) if len(set(rows.places)) > 1 else (),
        sparse(rows, guess) if 1 < len(rows.parts) <= MOST_DECODED else (),
        _by_matrix(rows),
    )
    found: list[Reconstruction] = []
    for kind in kinds:
        found += kind
        best = min(found, key=_order)
        if best.explains:
            return best
    # sums by matrix and decoded entries have more freedom than any file
    return min((f for f in found if f.method is not None), key=_order)


def _sums(rows: MergeRows) -> Iterator[Reconstruction]:
    """Sums and SLERP with weights of their own in every place."""
    free, mean = (_fitted(rows, is_mean=is_mean) for is_mean in (False, True))
    if (mean > -1e-3).all() and (mean.sum(0) < 1 + 1e-3).all():
        yield _shortest(rows, mean, "linear")
    yield _shortest(rows, free, "task_arithmetic")
    if len(rows.parts) == 2:
        for between in (_places_between(rows), mean):
            yield _shortest(rows, between, "slerp")


def _fitted(rows: MergeRows, *, is_mean: bool) -> PerPiece:
    """Least squares in every place; of a mean, with a sum of 1 where there is more than one."""
    weights = np.zeros((len(rows.parts), len(rows.pieces)))
    for place in set(rows.places):
        chosen = [n for n, own in enumerate(rows.places) if own == place]
        parts = np.concatenate([rows.parts[:, rows.pieces[n]] for n in chosen], axis=1)
        wanted = np.concatenate([rows.wanted[rows.pieces[n]] for n in chosen])
        if is_mean and len(parts) > 1:
            spans = (parts[:-1] - parts[-1]).T
            first = np.linalg.lstsq(spans, wanted - parts[-1], rcond=1e-9)[0]
            fit = np.append(first, 1 - first.sum())
        else:
            fit = np.linalg.lstsq(parts.T, wanted, rcond=1e-9)[0]
        weights[:, chosen] = fit[:, None]
    return weights


def _shortest(rows: MergeRows, weights: PerPiece, method: Method) -> Reconstruction:
    """With the fewest digits that give the merge as well: as somebody would write them."""
    exact = _sum_of(rows, weights.round(7), method)
    is_alike = len(set(rows.places)) == 1
    for digits in (2, 3, 4):
        short = _rounded(weights, digits, method)
        found = _sum_of(rows, short, method)
        for parent in range(len(short)) if digits == 2 and is_alike else ():
            for change in (0.01, -0.01):
                other = short.copy()
                other[parent] += change
                if method != "task_arithmetic":
                    other[parent - 1] -= change
                changed = _sum_of(rows, other.round(2), method)
                found = min(found, changed, key=lambda one: one.error)
        if found.error <= 1.02 * exact.error + 1e-6:
            return found
    return exact


def _rounded(weights: PerPiece, digits: int, method: Method) -> PerPiece:
    """Sums of 1 stay so."""
    short = weights.round(digits)
    if method != "task_arithmetic" and len(short) > 1:
        total = weights.sum(0).round(digits)
        short[-1] = (total - short[:-1].sum(0)).round(digits)
    return short


def _sum_of(rows: MergeRows, weights: PerPiece, method: Method) -> Reconstruction:
    by_place = dict(zip(rows.places, map(tuple, weights.T.tolist()), strict=True))
    make: Make = {
        "linear": partial(_mean, weights=weights),
        "task_arithmetic": partial(combined, weights=weights, formula=TASK_ARITHMETIC),
        "slerp": partial(_on_circle, weights=weights),
    }[method]
    varying = by_place if len(by_place) > 1 else {}
    return evaluated(rows, make, method, weights.mean(1).tolist(), by_place=varying)


def _mean(rows: MergeRows, weights: PerPiece) -> Entries:
    """As mergekit's `linear.py`: in single precision, whatever is stored; the base has the rest."""
    own = rows.spread(np.vstack([weights, 1 - weights.sum(0)]))
    models = np.vstack([rows.parts, np.zeros_like(rows.base)[None]]) + rows.base
    dtype = torch.float64 if rows.arithmetic == torch.float64 else torch.float32
    result = torch.zeros(len(rows.base), dtype=dtype)
    for model, weight in zip(models, own, strict=True):
        result += torch.from_numpy(model).to(dtype) * torch.from_numpy(weight).to(dtype)
    return rows.kept_as(result.to(rows.arithmetic))


def _places_between(rows: MergeRows) -> PerPiece:
    """1 − t and t of SLERP in every place, from the weights of both models in each matrix."""
    sums, totals = defaultdict[Place, float](float), defaultdict[Place, float](float)
    for piece, place in zip(rows.pieces, rows.places, strict=True):
        a, b, angle = _arc(rows, piece)
        t = np.arctan2(b * np.sin(angle), a + b * np.cos(angle)) / angle
        apart = float(((rows.parts[0, piece] - rows.parts[1, piece]) ** 2).sum())
        sums[place] += apart * t
        totals[place] += apart
    t = np.array([sums[place] / max(totals[place], 1e-300) for place in rows.places])
    return np.stack([1 - t, t])


def _arc(rows: MergeRows, piece: slice) -> tuple[float, float, float]:
    """Of one matrix: the weights of two models in the merge, and the angle between both that these
    show, which is that of the rows within their standard error."""
    models = rows.parts[:, piece] + rows.base[piece]
    a, b = np.linalg.lstsq(models.T, rows.wanted[piece] + rows.base[piece], rcond=1e-14)[0]
    lengths = float(np.prod(np.linalg.norm(models, axis=1)))
    apart = 1 - float(models[0] @ models[1]) / max(lengths, 1e-300)
    within = SAMPLED * (2 / models.shape[1]) ** 0.5
    shown = 1 - (1 - a * a - b * b) / (2 * a * b) if a * b > 1e-3 else apart
    shown = np.clip(shown, max(apart * (1 - within), 1e-12), apart * (1 + within))
    return float(a), float(b), float(np.arccos(1 - shown))


def slerp_weights(t: float, cosine: float) -> tuple[float, float]:
    """What mergekit's SLERP multiplies both models by, whose weights have this cosine."""
    if abs(cosine) > SLERP_LINEAR:
        return 1 - t, t
    theta = float(np.arccos(cosine))
    return float(np.sin((1 - t) * theta) / np.sin(theta)), float(np.sin(t * theta) / np.sin(theta))


def _on_circle(rows: MergeRows, weights: PerPiece) -> Entries:
    """As mergekit 0.1.5's `slerp.py`."""
    made = np.empty_like(rows.wanted)
    for number, piece in enumerate(rows.pieces):
        models = rows.parts[:, piece] + rows.base[piece]
        both = slerp_weights(float(weights[1, number]), float(np.cos(_arc(rows, piece)[2])))
        made[piece] = np.array(both) @ models
    return rows.kept_as(torch.from_numpy(made).to(torch.float32).to(rows.arithmetic))


def _by_matrix(rows: MergeRows) -> Iterator[Reconstruction]:
    """A sum with weights of their own in every matrix, which no file has."""
    apart = replace(rows, places=[(n, False) for n in range(len(rows.pieces))])
    own = _fitted(apart, is_mean=False)
    # 0 of a parent that left a matrix unchanged
    used = np.stack([(rows.parts[:, piece] != 0).any(1) for piece in rows.pieces], axis=1)
    means = (own * used).sum(1) / np.maximum(used.sum(1), 1)
    make = partial(combined, weights=own, formula=TASK_ARITHMETIC)
    yield evaluated(rows, make, None, means.tolist())
