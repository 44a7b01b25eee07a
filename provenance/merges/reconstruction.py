"""Proof of a merge by reconstruction: a config file's numbers, evaluated as mergekit does.

What is compared is what a file would give: every hypothesis ends in the numbers that a file has,
and these are put through mergekit's formulas in the file's arithmetic and storage type, on a few
rows of every matrix (`file_on_rows.py`). Numbers of sums follow by least squares, those of SLERP
from the place between two models; `sparse_rows.py` has TIES and DARE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from ...arrays import Float64
from ...indexer import Key
from . import file_on_rows
from .merge_formulas import TASK_ARITHMETIC, Method, slerp_weights
from .sparse_rows import sparse

PerPlace = Float64[np.ndarray, "parents places"]

SAMPLED = 10.0
"""Standard errors by which what rows show of a whole matrix may be off."""

MOST_DECODED = 5
"""Parents up to which all sets of them are tried."""


def reconstruct(
    base: file_on_rows.Matrices,
    merged: file_on_rows.Matrices,
    parents: Sequence[file_on_rows.Matrices],
    guess: Sequence[float],
    *,
    places: Mapping[Key, file_on_rows.Place] | None = None,
) -> file_on_rows.Reconstruction | None:
    """The recipe that explains most of the rows; None where nothing can be decided by them.

    Args:
        base, merged, parents: The same rows by slot and part, as they are stored.
        guess: The weights that sketches gave.
        places: Where a config file may give weights of their own.
    """
    stored = next(iter(merged.values())).dtype
    best: file_on_rows.Reconstruction | None = None
    for arithmetic in dict.fromkeys((stored, torch.float32)):
        if torch.finfo(arithmetic).eps < torch.finfo(stored).eps < 1e-6:
            continue
        rows = file_on_rows.MergeRows.of(base, merged, parents, arithmetic, places)
        if rows is None:
            return None
        found = _best(rows, np.array(guess))
        if best is None or _order(found) < _order(best):
            best = found
        if best.error > file_on_rows.MOST_SEARCHED or (
            best.is_reproduced and 10 * best.error < best.rounding
        ):
            break
    return best


def _order(found: file_on_rows.Reconstruction) -> tuple[bool, bool, int, float]:
    """What explains it comes first, of that what a file has; then what is nearest, up to a tenth of
    a rounding."""
    return (
        not found.explains,
        found.explains and found.method is None,
        round(found.error / (0.1 * found.rounding + 0.1 * file_on_rows.LEAST_ERROR)),
        -round(found.share, 3),
    )


def _best(
    rows: file_on_rows.MergeRows, guess: file_on_rows.PerParent
) -> file_on_rows.Reconstruction:
    """The first kind of recipe that explains the rows; else that which comes nearest."""
    names = sorted(set(rows.places))
    place_of = np.array([names.index(place) for place in rows.places])
    kinds: list[Callable[[], list[file_on_rows.Reconstruction]]] = [
        lambda: list(_sums(rows, np.zeros(len(rows.pieces), dtype=np.int64))),
        lambda: list(_sums(rows, place_of)) if len(names) > 1 else [],
        lambda: list(sparse(rows, guess)) if 1 < len(rows.parts) <= MOST_DECODED else [],
        lambda: [_by_matrix(rows)],
    ]
    found: list[file_on_rows.Reconstruction] = []
    for kind in kinds:
        found += kind()
        best = min(found, key=_order)
        if best.explains:
            return best
    # sums by matrix and decoded entries have more freedom than any file
    return min((f for f in found if f.method is not None), key=_order)


def _sums(
    rows: file_on_rows.MergeRows, place_of: np.ndarray
) -> Iterator[file_on_rows.Reconstruction]:
    """Sums and SLERP with weights of their own in every place (`place_of`: of each matrix)."""
    free = _fitted(rows, place_of, is_mean=False)
    mean = _fitted(rows, place_of, is_mean=True)
    if (mean > -1e-3).all() and (mean.sum(0) < 1 + 1e-3).all():
        yield _shortest(rows, mean, place_of, "linear")
    yield _shortest(rows, free, place_of, "task_arithmetic")
    if len(rows.parts) == 2:
        for between in (_places_between(rows, place_of), mean):
            yield _shortest(rows, between, place_of, "slerp")


def _fitted(rows: file_on_rows.MergeRows, place_of: np.ndarray, *, is_mean: bool) -> PerPlace:
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
    rows: file_on_rows.MergeRows, weights: PerPlace, place_of: np.ndarray, method: Method
) -> file_on_rows.Reconstruction:
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


def _rounded(weights: PerPlace, digits: int, method: Method) -> PerPlace:
    """Sums of 1 stay so."""
    short = weights.round(digits)
    if method != "task_arithmetic" and len(short) > 1:
        total = weights.sum(0).round(digits)
        short[-1] = (total - short[:-1].sum(0)).round(digits)
    return short


def _sum_of(
    rows: file_on_rows.MergeRows, weights: PerPlace, place_of: np.ndarray, method: Method
) -> file_on_rows.Reconstruction:
    own = weights[:, place_of]
    by_place = {}
    if weights.shape[1] > 1:
        names = sorted(set(rows.places))
        by_place = {name: tuple(weights[:, n].tolist()) for n, name in enumerate(names)}
    make: file_on_rows.Make = {
        "linear": partial(_mean, weights=own),
        "task_arithmetic": partial(file_on_rows.combined, weights=own, formula=TASK_ARITHMETIC),
        "slerp": partial(_on_circle, weights=own),
    }[method]
    used = own.mean(1).tolist()
    return file_on_rows.evaluated(rows, make, method, used, by_place=by_place)


def _mean(rows: file_on_rows.MergeRows, weights: file_on_rows.PerPiece) -> file_on_rows.Entries:
    """As mergekit's `linear.py`: in single precision, whatever is stored; the base has the rest."""
    own = rows.spread(np.vstack([weights, 1 - weights.sum(0)]))
    models = np.vstack([rows.parts, np.zeros_like(rows.base)[None]]) + rows.base
    dtype = torch.float64 if rows.arithmetic == torch.float64 else torch.float32
    result = torch.zeros(len(rows.base), dtype=dtype)
    for model, weight in zip(models, own, strict=True):
        result += torch.from_numpy(model).to(dtype) * torch.from_numpy(weight).to(dtype)
    return rows.kept_as(result.to(rows.arithmetic))


def _places_between(rows: file_on_rows.MergeRows, place_of: np.ndarray) -> PerPlace:
    """1 − t and t of SLERP in every place, from the weights of both models in each matrix."""
    sums, totals = np.zeros((2, int(place_of.max()) + 1))
    for piece, place in zip(rows.pieces, place_of, strict=True):
        a, b, angle = _arc(rows, piece)
        t = np.arctan2(b * np.sin(angle), a + b * np.cos(angle)) / angle
        apart = float(((rows.parts[0, piece] - rows.parts[1, piece]) ** 2).sum())
        sums[place] += apart * t
        totals[place] += apart
    t = sums / np.maximum(totals, 1e-300)
    return np.stack([1 - t, t])


def _arc(rows: file_on_rows.MergeRows, piece: slice) -> tuple[float, float, float]:
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


def _on_circle(
    rows: file_on_rows.MergeRows, weights: file_on_rows.PerPiece
) -> file_on_rows.Entries:
    """As mergekit's `slerp.py`."""
    made = np.empty_like(rows.wanted)
    for number, piece in enumerate(rows.pieces):
        models = rows.parts[:, piece] + rows.base[piece]
        both = slerp_weights(float(weights[1, number]), float(np.cos(_arc(rows, piece)[2])))
        made[piece] = np.array(both) @ models
    return rows.kept_as(torch.from_numpy(made).to(torch.float32).to(rows.arithmetic))


def _by_matrix(rows: file_on_rows.MergeRows) -> file_on_rows.Reconstruction:
    """A sum with weights of their own in every matrix, which no file has."""
    own = _fitted(rows, np.arange(len(rows.pieces)), is_mean=False)
    # 0 of a parent that left a matrix unchanged
    used = np.stack([(rows.parts[:, piece] != 0).any(1) for piece in rows.pieces], axis=1)
    means = (own * used).sum(1) / np.maximum(used.sum(1), 1)
    make = partial(file_on_rows.combined, weights=own, formula=TASK_ARITHMETIC)
    return file_on_rows.evaluated(rows, make, None, means.tolist())
