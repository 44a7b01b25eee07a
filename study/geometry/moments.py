"""Moments of rows that come in batches; anisotropy, linearity and divergence by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.sparse.linalg import eigsh
from scipy.special import log_softmax

from ...arrays import Float, Float64
from ...results import JsonRecord

Rows = Float[np.ndarray, "rows dim"]
Matrix = Float[np.ndarray, "rows cols"]
Vector = Float64[np.ndarray, " dim"]
Square = Float64[np.ndarray, "dim dim"]
OfRows = Float64[np.ndarray, " rows"]


LARGE_SIDE = 1024
"""Above this side Lanczos takes a fifth of the time of a tridiagonalisation."""

SPREAD_ROUNDING = 1e-24
"""Share of the squares that rounding may leave of equal rows less their mean."""


class Moments:
    """Count, means and scatter Σ(x − x̄)(y − ȳ)ᵀ of rows x and of rows y that belong to them, in
    float64; y are x themselves where none are given.

    Every batch is centred by its own mean and added by Chan, Golub & LeVeque 1983, eq. 1.5, so
    that a mean far from the origin costs no digits. Peak: two dim² matrices.
    """

    def __init__(self, dim: int) -> None:
        self.n = 0
        self.mean: Vector = np.zeros(dim)
        self.mean_y: Vector = np.zeros(dim)
        self.scatter: Square = np.zeros((dim, dim))

    @classmethod
    def of(cls, x: Rows, y: Rows | None = None) -> Moments:
        moments = cls(x.shape[1])
        moments.update(x, y)
        return moments

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def varies(self) -> bool:
        """Whether more than rounding is left of the rows less their mean."""
        about_mean = float(np.trace(self.scatter))
        about_origin = about_mean + self.n * float(self.mean @ self.mean)
        return self.n > 1 and about_mean > SPREAD_ROUNDING * about_origin

    def update(self, x: Rows, y: Rows | None = None) -> None:
        if len(x):
            mean = mean_y = x.mean(axis=0, dtype=np.float64)
            centred = centred_y = x - mean
            if y is not None:
                mean_y = y.mean(axis=0, dtype=np.float64)
                centred_y = y - mean_y
            self.join(len(x), mean, mean_y, centred.T @ centred_y)

    def join(self, n: int, mean: Vector, mean_y: Vector, scatter: Square) -> None:
        total = self.n + n
        step, step_y = mean - self.mean, mean_y - self.mean_y
        self.scatter += scatter
        if self.n:
            self.scatter += np.outer(step, step_y * (self.n * n / total))
        self.mean = self.mean + step * (n / total)
        self.mean_y = self.mean_y + step_y * (n / total)
        self.n = total

    def covariance(self) -> Square:
        """Σ(x − x̄)(x − x̄)ᵀ / n."""
        covariance: Square = self.scatter / self.n
        return covariance

    def about_origin(self) -> Square:
        """Σ x xᵀ."""
        squares: Square = self.scatter.copy()
        squares += self.n * np.outer(self.mean, self.mean)
        return squares


def pooled(parts: Sequence[Moments]) -> Moments:
    whole = Moments(parts[0].dim)
    for part in parts:
        if part.n:
            whole.join(part.n, part.mean, part.mean_y, part.scatter)
    return whole


class StreamMoments:
    """Moments of every layer, and cross moments of every layer with the next, over batches.

    Peak: (2·layers − 1) dim² matrices, and a batch of two layers in float64.
    """

    def __init__(self, layers: int, dim: int) -> None:
        self.layers = [Moments(dim) for _ in range(layers)]
        self.crossed = [Moments(dim) for _ in range(layers - 1)]

    def update(self, hidden: Float[np.ndarray, "layers rows dim"]) -> None:
        for layer, rows in enumerate(hidden):
            self.layers[layer].update(rows)
            if layer:
                self.crossed[layer - 1].update(hidden[layer - 1], rows)


class RowSums:
    """Sums of rows' directions and squares, for their mean cosine and size."""

    def __init__(self, dim: int) -> None:
        self.n = 0
        self.n_nonzero = 0
        self.units: Vector = np.zeros(dim)
        self.squares = 0.0

    def update(self, rows: Rows) -> None:
        exact = rows.astype(np.float64)
        squares = np.einsum("ij,ij->i", exact, exact)
        nonzero = squares > 0
        self.n += len(rows)
        self.n_nonzero += int(nonzero.sum())
        self.units += (1.0 / np.sqrt(squares[nonzero])) @ exact[nonzero]
        self.squares += float(squares.sum())

    @property
    def mean_cosine(self) -> float | None:
        """Over all pairs of different rows that are not zero: (‖Σû‖² − n) / (n(n − 1))."""
        n = self.n_nonzero
        return (float(self.units @ self.units) - n) / (n * (n - 1)) if n > 1 else None

    @property
    def rms_coordinate(self) -> float:
        """√ of the mean square over rows and coordinates; 0 where there are no rows."""
        return float((self.squares / max(1, self.n * len(self.units))) ** 0.5)


def top_eigenpairs(
    matrix: Square, k: int
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, "dim k"]]:
    """The k largest eigenvalues of a symmetric matrix, ascending, and their vectors."""
    side = len(matrix)
    if side > LARGE_SIDE and 4 * k < side:
        start = np.random.default_rng(0).standard_normal((side,))
        values, vectors = eigsh(matrix, k=k, which="LA", tol=0, v0=start)
    else:
        values, vectors = eigh(matrix, subset_by_index=(side - k, side - 1))
    order = np.argsort(values)
    return values[order], vectors[:, order]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anisotropy(JsonRecord):
    """σ₁²/Σσᵢ² of a cloud of tokens, the share of its squares on its main direction; None for
    fewer than two rows, or equal ones.

    Attributes:
        rows: Rows that `centred` and `uncentred` are computed from.
        centred: σ₁²/Σσᵢ² of the column-centred matrix, 0…1.
        uncentred: The same of the matrix as it is; at least n‖x̄‖²/Σ‖x‖².
        mean_cosine: Mean over all pairs of different rows, −1…1, without zero rows.
        cosine_rows: Rows that `mean_cosine` is computed from.
    """

    rows: int
    centred: float | None
    uncentred: float | None
    mean_cosine: float | None
    cosine_rows: int


def anisotropy(moments: Moments, sums: RowSums) -> Anisotropy:
    """The anisotropy of rows that were summed. Peak: two dim² matrices."""
    return Anisotropy(
        rows=moments.n,
        centred=_share_of_gram(moments.scatter) if moments.varies else None,
        uncentred=_share_of_gram(moments.about_origin()) if moments.n > 1 else None,
        mean_cosine=sums.mean_cosine,
        cosine_rows=sums.n_nonzero,
    )


def _share_of_gram(gram: Square) -> float | None:
    total = float(np.trace(gram))
    return float(top_eigenpairs(gram, 1)[0][0]) / total if total > 0 else None


MANY_TOKENS = 10
"""Tokens for each dimension above which the score in the sample is near the held-out one."""

NO_DIRECTION = 1e-9
"""Share of the largest eigenvalue below which a direction counts as none: rounding of float32
states leaves 1e-13 or less."""

NEARLY_DEPENDENT = 1e-7
"""Share of a column's squares, beyond what columns before it give, below which the eigenvalues
decide which directions there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLinearity(JsonRecord):
    """The linearity of the step into one layer, from the layer before.

    Razzhigaev et al. 2024 (arXiv 2405.12250, eq. 1): with X̃ and Ỹ the token matrices of two
    consecutive layers, column-centred and divided by their Frobenius norm, the score is
    1 − min_A ‖X̃A − Ỹ‖². It is the share of Y's variance that a linear map of X gives (R²).

    Attributes:
        tokens: Tokens that the maps are fitted to.
        stream: Of the output of the layer, 0…1, as published: on the tokens of the fit.
        contribution: Of the layer's own contribution Y − X, 0…1, on the same tokens. With Â the
            best map to Y, Â − I is the best to Y − X, and the residuals are the same.
        held_out_stream, held_out_contribution: The same fitted to half of the texts and scored
            on the other half, both ways; below 0 where the map is worse than the mean. None
            where a half has no more tokens than dimensions.
        optimistic: There are fewer than ten tokens for each dimension: read the held-out scores.
        reason: Why there is no number; empty where there is one.
    """

    tokens: int
    stream: float | None = None
    contribution: float | None = None
    held_out_stream: float | None = None
    held_out_contribution: float | None = None
    optimistic: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LayerStep:
    """The moments of a layer's input and output, and between them, of some texts."""

    before: Moments
    after: Moments
    cross: Moments

    @classmethod
    def of(cls, before: Rows, after: Rows) -> LayerStep:
        return cls(Moments.of(before), Moments.of(after), Moments.of(before, after))


def layer_linearity(halves: Sequence[LayerStep]) -> LayerLinearity:
    """The scores of all tokens, and held-out ones where there are two halves of the texts."""
    whole = LayerStep(
        pooled([half.before for half in halves]),
        pooled([half.after for half in halves]),
        pooled([half.cross for half in halves]),
    )
    n, dim = whole.before.n, whole.before.dim
    if n <= dim + 1:
        return LayerLinearity(
            tokens=n, reason=f"too few: any {n} tokens in {dim} dimensions fit a linear map"
        )
    if not (whole.before.varies and whole.after.varies):
        return LayerLinearity(tokens=n, reason="all tokens are equal")
    stream, contribution = _scores(_map(whole), whole, whole)
    outside: list[tuple[float | None, float | None]] = []
    if len(halves) == 2 and min(half.before.n for half in halves) > dim + 1:
        for fitted, scored in (halves, (halves[1], halves[0])):
            if fitted.before.varies and scored.after.varies:
                outside.append(_scores(_map(fitted), fitted, scored))
    by_kind = list(zip(*outside, strict=True)) or [(), ()]
    known = [[score for score in scores if score is not None] for scores in by_kind]
    held_out = [float(np.mean(scores)) if scores else None for scores in known]
    return LayerLinearity(
        tokens=n,
        stream=stream,
        contribution=contribution,
        held_out_stream=held_out[0],
        held_out_contribution=held_out[1],
        optimistic=n < MANY_TOKENS * dim,
    )


def _map(step: LayerStep) -> Square:
    """A with the least ‖XA − Y‖² of the centred rows.

    Columns are scaled to length 1 first, so that one large coordinate costs the others no
    digits. Of columns that depend on each other, the smallest A: normalised states have one such
    direction, embeddings of few words many, and held-out words are not to be mapped by rounding.
    """
    lengths = np.sqrt(np.diag(step.before.scatter))
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    scaled = step.before.scatter * scale * scale[:, None]
    target = step.cross.scatter * scale[:, None]
    try:
        factor = cho_factor(scaled)
        independent = float(np.diag(factor[0]).min()) ** 2 > NEARLY_DEPENDENT
    except LinAlgError:
        independent = False
    if independent:
        solved = cho_solve(factor, target)
    else:
        values, vectors = eigh(scaled, driver="evd")
        kept = values > NO_DIRECTION * values[-1]
        inverse = np.divide(1.0, values, out=np.zeros(len(values)), where=kept)
        solved = (vectors * inverse) @ (vectors.T @ target)
    answer: Square = solved * scale[:, None]
    return answer


def _scores(fit: Square, fitted: LayerStep, scored: LayerStep) -> tuple[float | None, float | None]:
    """(of the output, of the contribution), 1 − residual/variance, each on the scored tokens.

    ‖Y − XA‖² = tr Syy − 2 tr(AᵀSxy) + tr(AᵀSxxA), and n times the square of what the means miss.
    """
    n = scored.after.n
    before, after, cross = scored.before.scatter, scored.after.scatter, scored.cross.scatter
    missed = (scored.after.mean - fitted.after.mean) - (
        scored.before.mean - fitted.before.mean
    ) @ fit
    residual = float(
        np.trace(after)
        - 2.0 * np.einsum("ij,ij->", fit, cross)
        + np.einsum("ij,ij->", fit, before @ fit)
        + n * float(missed @ missed)
    )
    total = float(np.trace(after))
    own = total - 2.0 * float(np.trace(cross)) + float(np.trace(before))
    # a layer that adds nothing has no contribution that could be linear
    moves = own > len(before) * float(np.finfo(np.float32).eps) ** 2 * total
    return 1.0 - residual / total, 1.0 - residual / own if moves else None


Divergent = Literal["softmax-mean", "gauss"]
DIVERGENCES: tuple[Divergent, ...] = get_args(Divergent)

AXES = 16
SHRINKAGE = 0.1

TOKENS_AN_AXIS = 100
"""Tokens of each side for every axis; with fewer, noise is most of the divergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence(JsonRecord):
    """The divergence of a group from the reference by one estimator, in nats.

    `softmax-mean` reads the mean vector of a sentence as the softmax of its coordinates, sentence
    by parallel sentence. For small vectors that is ½Var_j(a_j − b_j), a squared distance, which
    grows with the square of the scale: vectors are divided by the reference's root mean square
    coordinate first. `gauss` compares the clouds themselves and needs no parallel text.

    Attributes:
        to_reference: KL(group ‖ reference).
        from_reference: KL(reference ‖ group).
        jeffreys: The sum of both; of `gauss` only.
        floor: Jeffreys between two halves of the reference's texts; of `gauss` only. The same
            language at half the tokens differs by this much, so a value near it is no difference.
        sentences: Parallel sentences that were compared; of `softmax-mean` only.
        scale: Root mean square coordinate of the reference, by which vectors were divided; of
            `softmax-mean` only.
        tokens: Tokens of the group and of the reference; of `gauss` only.
        axes: Main axes of the pooled tokens that were compared; of `gauss` only.
        by_text: KL(group ‖ reference) of each parallel text by its id; of `softmax-mean` only.
        reason: Why there is no number; empty where there is one.
    """

    estimator: Divergent
    to_reference: float | None = None
    from_reference: float | None = None
    jeffreys: float | None = None
    floor: float | None = None
    sentences: int | None = None
    scale: float | None = None
    tokens: tuple[int, int] | None = None
    axes: int | None = None
    by_text: Mapping[str, float] = field(default_factory=dict, repr=False)
    reason: str = ""


def softmax_mean(
    group: Float[np.ndarray, "sentences dim"],
    reference: Float[np.ndarray, "sentences dim"],
    *,
    scale: float,
) -> tuple[Float64[np.ndarray, " sentences"], Float64[np.ndarray, " sentences"]]:
    """KL(group ‖ reference) and KL(reference ‖ group) between the softmaxes of parallel sentences'
    mean vectors, sentence by sentence."""
    ours, theirs = (
        log_softmax((rows / scale).astype(np.float64), axis=1) for rows in (group, reference)
    )
    gap = ours - theirs
    return (np.exp(ours) * gap).sum(axis=1), -(np.exp(theirs) * gap).sum(axis=1)


def gaussian_divergence(
    group: Moments,
    reference: Moments,
    *,
    floor: float | None = None,
    axes: int = AXES,
    shrinkage: float = SHRINKAGE,
) -> Divergence:
    """Between Gaussians of the two clouds, in the main axes of both pooled.

    ½[tr(Σ_B⁻¹Σ_A) + δᵀΣ_B⁻¹δ − k + ln|Σ_B|/|Σ_A|] with
    Σ ← (1 − shrinkage)·Σ + shrinkage·(tr Σ/k)·I.
    """
    axes = min(axes, group.dim)
    tokens = (group.n, reference.n)
    empty = Divergence(estimator="gauss", tokens=tokens, axes=axes)
    if min(tokens) < TOKENS_AN_AXIS * axes:
        few = f"{group.n} and {reference.n} tokens; {axes} axes need {TOKENS_AN_AXIS * axes} a side"
        return replace(empty, reason=few)
    both = _gaussian_both_ways(group, reference, axes, shrinkage)
    if both is None:
        return replace(empty, reason=f"the tokens fill fewer than {axes} axes")
    to, back = both
    return replace(empty, to_reference=to, from_reference=back, jeffreys=to + back, floor=floor)


def gaussian_floor(halves: Sequence[Moments], *, axes: int = AXES) -> float | None:
    """Jeffreys divergence between two halves of one group's texts.

    None where there are no two halves, or too few tokens for a comparison of the whole.
    """
    axes = min(axes, halves[0].dim)
    enough = sum(half.n for half in halves) >= TOKENS_AN_AXIS * axes
    if len(halves) != 2 or not enough or min(half.n for half in halves) <= axes:
        return None
    both = _gaussian_both_ways(halves[0], halves[1], axes)
    return None if both is None else sum(both)


def _gaussian_both_ways(
    a: Moments, b: Moments, axes: int, shrinkage: float = SHRINKAGE
) -> tuple[float, float] | None:
    """KL(a ‖ b), KL(b ‖ a) in the pooled main axes; None where a covariance has no volume."""
    both = pooled([a, b])
    values, vectors = top_eigenpairs(both.covariance(), axes)
    if values[0] <= values[-1] * np.finfo(np.float64).eps * both.dim:
        return None
    step = vectors.T @ (a.mean - b.mean)
    spread_a, spread_b = (vectors.T @ moments.covariance() @ vectors for moments in (a, b))
    for spread in (spread_a, spread_b):
        # towards a sphere of the same trace (Ledoit & Wolf 2004), by a fixed share
        sphere = float(np.trace(spread)) / axes * np.eye(axes)
        spread[:] = (1 - shrinkage) * spread + shrinkage * sphere
    if min(np.trace(spread_a), np.trace(spread_b)) <= 0.0:
        return None
    return _gaussian(spread_a, spread_b, step), _gaussian(spread_b, spread_a, step)


def _gaussian(
    spread_a: Float64[np.ndarray, "axes axes"],
    spread_b: Float64[np.ndarray, "axes axes"],
    step: Float64[np.ndarray, " axes"],
) -> float:
    factor = cho_factor(spread_b)
    trace = float(np.trace(cho_solve(factor, spread_a)))
    distance = float(step @ cho_solve(factor, step))
    volumes = float(np.linalg.slogdet(spread_b)[1] - np.linalg.slogdet(spread_a)[1])
    return 0.5 * (trace + distance - len(step) + volumes)
