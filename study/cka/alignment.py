"""Linear CKA of every pair of layers, biased and debiased, with its standard error.

Kornblith et al. 2019 (arXiv 1905.00414), eqs. 2 to 5: CKA = HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)).
The biased form has HSIC = |XᵀY|²_F of centred rows; it is near 1 for any two matrices of more
columns than rows. The debiased form has the unbiased HSIC of Song et al. 2012, eq. 5 (used for
CKA by Nguyen et al. 2021, eq. 3), whose mean is 0 for unrelated matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError
from .paired_states import PairedStates
from .squared_norms import Form, SquaredNorms, cheaper_form, squared_norms

MOST_BLOCKS = 20
FEWEST_BLOCKS = 5
"""With fewer texts there is no standard error."""

FEWEST_TOKENS = 10

LEAST_SPREAD = 1e-6
"""Of a layer's largest value; what varies less is rounding."""

States = Float32[np.ndarray, "layers rows dim"]
Squares = Float64[np.ndarray, "layers rows"]
Matrix = Float64[np.ndarray, "first_layers second_layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """CKA of each layer of the first network with each of the second; NaN of constant layers.

    Attributes:
        standard_error: Of the debiased form; NaN for a single block.
        n_blocks: Blocks of whole texts that are left out in turn for it.
    """

    biased: Matrix
    debiased: Matrix
    standard_error: Matrix
    n_blocks: int
    form: Form


def align(states: PairedStates, *, seed: int, form: Form | None = None) -> Alignment:
    """CKA from the sampled tokens; `form` as of `squared_norms`, whose answers are the same.

    The standard error is that of a jackknife over blocks of whole texts (Efron & Stein 1981),
    since tokens of one text are not independent.

    Raises:
        StudyError: too few tokens.
    """
    n = len(states.text)
    if n < FEWEST_TOKENS:
        raise StudyError(f"{n} tokens are too few; give texts of {FEWEST_TOKENS} tokens or more")
    block_of = _blocks(states.text, seed)
    order = np.argsort(block_of, kind="stable")
    edges = np.searchsorted(block_of[order], range(int(block_of.max()) + 2)).tolist()
    blocks = [slice(a, b) for a, b in pairwise(edges)]
    first, second = (_unit_rows(part[:, order]) for part in (states.first, states.second))
    form = form or cheaper_form(first.shape, second.shape)
    norms = squared_norms(first, second, blocks, form)
    subsets = [None, *(blocks if len(blocks) >= FEWEST_BLOCKS else ())]
    squares = [np.einsum("lnd,lnd->ln", x, x, dtype=np.float64) for x in (first, second)]
    forms = []
    for subset, left_out in enumerate(subsets):
        x = _Rows.of(first, squares[0], left_out)
        y = _Rows.of(second, squares[1], left_out)
        forms.append(_cka(x, y, norms, subset))
    biased, debiased = forms[0]
    left_out = np.stack([value for _, value in forms[1:]] or [np.full(debiased.shape, np.nan)])
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    b = len(left_out)
    return Alignment(
        biased=biased,
        debiased=debiased,
        standard_error=np.sqrt(spread * (b - 1) / b),
        n_blocks=len(subsets) - 1,
        form=form,
    )


def _cka(x: _Rows, y: _Rows, norms: SquaredNorms, subset: int) -> tuple[Matrix, Matrix]:
    """(biased, debiased) over the rows of a subset."""
    n = x.squares.shape[1]
    cross = norms.cross[subset] - _mean_term(x, y, n)
    of_x = norms.first[subset] - np.diagonal(_mean_term(x, x, n))
    of_y = norms.second[subset] - np.diagonal(_mean_term(y, y, n))
    return (
        _ratio(cross, of_x, of_y),
        _ratio(
            cross + _correction(x.squares @ y.squares.T, x.total, y.total, n),
            of_x + _correction((x.squares**2).sum(axis=1), x.total, None, n),
            of_y + _correction((y.squares**2).sum(axis=1), y.total, None, n),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows without a block, whose own mean is not 0: what their centring needs, by layer.

    Attributes:
        along: Of each row, its product with the sum of the rows that are left.
        shift: |that sum|².
        squares: |row − mean|² of each row.
    """

    along: Squares
    shift: Float64[np.ndarray, " layers"]
    squares: Squares

    @classmethod
    def of(cls, states: States, squares: Squares, left_out: slice | None) -> _Rows:
        if left_out is None:  # centred already
            return cls(np.zeros_like(squares), np.zeros(len(states)), squares)
        total = -states[:, left_out].sum(axis=1, dtype=np.float64)  # all rows add up to 0
        products = np.matmul(states, total.astype(np.float32)[:, :, None])[:, :, 0]
        rows = np.ones(squares.shape[1], dtype=bool)
        rows[left_out] = False
        along = products[:, rows].astype(np.float64)
        n = along.shape[1]
        shift = (total**2).sum(axis=1)
        return cls(along, shift, squares[:, rows] - 2 * along / n + (shift / n**2)[:, None])

    @property
    def total(self) -> Float64[np.ndarray, " layers"]:
        total: Float64[np.ndarray, " layers"] = self.squares.sum(axis=1)
        return total


def _mean_term(x: _Rows, y: _Rows, n: int) -> Matrix:
    """What |XᵀY|² loses by centring: with sums s and t, 2 sᵀXᵀYt / n − |s|²|t|² / n²."""
    lost: Matrix = 2 * (x.along @ y.along.T) / n - np.outer(x.shift, y.shift) / n**2
    return lost


def _correction(products: np.ndarray, x: np.ndarray, y: np.ndarray | None, n: int) -> np.ndarray:
    """n(n − 3) HSIC₁ − |XᵀY|², where products are Σ |x|²|y|² over rows."""
    squares = x**2 if y is None else np.outer(x, y)
    correction: np.ndarray = -products * n / (n - 2) + squares / ((n - 1) * (n - 2))
    return correction


def _ratio(cross: Matrix, of_x: np.ndarray, of_y: np.ndarray) -> Matrix:
    """cross / √(of_x of_y); NaN where a layer has no variance."""
    x, y = (np.where(values > 0, values, np.nan) for values in (of_x, of_y))
    cka: Matrix = cross / np.sqrt(np.outer(x, y))
    return cka


def _unit_rows(states: States) -> States:
    """Centred rows, divided by their root mean square length; rows of zeros where they are equal.

    CKA does not depend on the scale, float32 sums of fourth powers do.
    """
    unit = np.empty(states.shape, dtype=np.float32)
    for rows, into in zip(states, unit, strict=True):
        centred = rows - rows.mean(axis=0, dtype=np.float64)
        size = float(np.sqrt((centred**2).sum() / len(rows)))
        varies = size > LEAST_SPREAD * float(np.abs(rows).max())
        into[:] = centred / size if varies else 0.0
    return unit


def _blocks(text: Int64[np.ndarray, " tokens"], seed: int) -> Int64[np.ndarray, " tokens"]:
    """The block of each token: whole texts in random order, cut where tokens are about equal."""
    numbers, place, counts = np.unique(text, return_inverse=True, return_counts=True)
    n_blocks = min(MOST_BLOCKS, len(numbers))
    order = np.random.default_rng(seed).permutation(len(numbers))
    middle = np.cumsum(counts[order]) - counts[order] / 2
    of_text = np.empty(len(numbers), dtype=np.int64)
    of_text[order] = np.minimum((middle * n_blocks / len(text)).astype(np.int64), n_blocks - 1)
    _, dense = np.unique(of_text, return_inverse=True)  # a long text may leave a block empty
    return dense.astype(np.int64)[place]
