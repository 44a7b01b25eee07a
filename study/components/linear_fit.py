"""How much of the feed-forward term a linear map gives: least squares and R² on held-out texts.

Mickus, Paperno, Constant 2022 (arXiv 2206.03529), figure 2, regress the output of a feed-forward
sub-layer on its input, z-scored by coordinate, and score the tokens of the fit. Here a fifth of
the texts is held out. The sums X'X and X'Y are added up batch by batch, so that no token is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...arrays import Float32, Float64
from ..network.anatomy import Stack
from ..network.hidden_states import Batch, first_tensor
from ..report_json import JsonRecord
from ..texts import Text
from .decomposition import Decomposed, Rows, select_rows

HELD_OUT = 0.2
"""Share of the texts that a fit does not see."""

TOKENS_PER_DIM = 10
"""Training tokens that a fit needs for each coordinate: with fewer, R² on held-out tokens is low
because of the noise of the fit, by (1 − R²) · dim / (tokens − dim)."""

SINGLE = float(np.finfo(np.float32).eps) ** 2

FITS = (("feed-forward term", "sum of the other terms"), ("feed-forward output", "its input"))
"""(outcome, predictor) of each fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit(JsonRecord):
    """Least squares without a penalty, by layer.

    Attributes:
        r2: On held-out tokens: the mean over coordinates, as if each were z-scored.
        r2_train: On the tokens of the fit, as in the published figure.
    """

    outcome: str
    predictor: str
    r2: Float64[np.ndarray, " layers"]
    r2_train: Float64[np.ndarray, " layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFits(JsonRecord):
    """The fits of a stream, for layers 1 to the last.

    Attributes:
        fits: None with too few tokens.
    """

    train_tokens: int
    held_out_tokens: int
    needed_tokens: int
    fits: tuple[LinearFit, ...]

    @property
    def too_few(self) -> bool:
        """Whether there are too few tokens for a fit."""
        return min(self.train_tokens, TOKENS_PER_DIM * self.held_out_tokens) < self.needed_tokens

    def to_json(self) -> dict[str, Any]:
        """The fields, and whether there are too few tokens."""
        return JsonRecord.to_json(self) | {"too_few_tokens": self.too_few}


def held_out_texts(texts: Sequence[Text]) -> frozenset[int]:
    """The places of the texts that are held out.

    Their order does not matter, and equal texts are on one side.
    """
    digests = [hashlib.sha256(text.text.encode()).digest() for text in texts]
    unique = sorted(set(digests))
    held = set(unique[: round(HELD_OUT * len(unique))])
    return frozenset(place for place, digest in enumerate(digests) if digest in held)


class PairMoments:
    """Count, means and sums of squares and products of pairs (x, y), in float64.

    Batches are centred and added by Chan, Golub & LeVeque 1983, eq. 1.5. Memory: 2 dim² numbers
    where x and y have one width.
    """

    __slots__ = ("mean_x", "mean_y", "n", "xx", "xy", "yy")

    def __init__(self) -> None:
        self.n = 0
        self.mean_x = self.mean_y = self.xx = self.xy = self.yy = torch.zeros(())

    def add(
        self, x: Float32[torch.Tensor, "tokens dim"], y: Float32[torch.Tensor, "tokens outputs"]
    ) -> None:
        """Add a batch; on the CPU where the device has no float64 (MPS)."""
        if not len(x):
            return
        x, y = (part.cpu() if part.device.type == "mps" else part for part in (x, y))
        exact_x, exact_y = x.double(), y.double()
        mean_x, mean_y = exact_x.mean(dim=0), exact_y.mean(dim=0)
        exact_x, exact_y = exact_x - mean_x, exact_y - mean_y
        total = self.n + len(x)
        step_x, step_y = mean_x - self.mean_x, mean_y - self.mean_y
        weight = self.n * len(x) / total
        self.xx = self.xx + exact_x.T @ exact_x + weight * torch.outer(step_x, step_x)
        self.xy = self.xy + exact_x.T @ exact_y + weight * torch.outer(step_x, step_y)
        self.yy = self.yy + exact_y.square().sum(dim=0) + weight * step_y.square()
        self.mean_x = self.mean_x + step_x * (len(x) / total)
        self.mean_y = self.mean_y + step_y * (len(x) / total)
        self.n = total


def fit_and_score(train: PairMoments, test: PairMoments) -> tuple[float, float]:
    """R² on the test pairs and on those of the fit; the mean over coordinates of y that vary.

    Directions of x whose variance is float32 rounding have no weight: behind a layer norm one
    always is.
    """
    size = train.xx.diagonal().sqrt()
    size = torch.where(size > 0, size, 1.0)
    values, vectors = torch.linalg.eigh(train.xx / torch.outer(size, size))
    inverse = torch.where(values > len(size) * SINGLE * values[-1], 1.0 / values, 0.0)
    weights = vectors @ (inverse[:, None] * (vectors.T @ (train.xy / size[:, None])))
    weights = weights / size[:, None]
    return _score(weights, train, test), _score(weights, train, train)


def _score(weights: torch.Tensor, train: PairMoments, pairs: PairMoments) -> float:
    missed = (pairs.mean_y - train.mean_y) - (pairs.mean_x - train.mean_x) @ weights
    errors = (
        pairs.yy
        - 2.0 * (weights * pairs.xy).sum(dim=0)
        + (weights * (pairs.xx @ weights)).sum(dim=0)
        + pairs.n * missed.square()
    )
    varies = pairs.yy > 0
    return float((1.0 - errors[varies] / pairs.yy[varies]).mean())


@dataclass(slots=True)
class LinearTally:
    """The moments of every fit of a stream: two for each of two fits and each layer."""

    stack: Stack
    dim: int
    held_out: frozenset[int]
    n_tokens: list[int] = field(default_factory=lambda: [0, 0])
    _moments: dict[tuple[int, int, bool], PairMoments] = field(default_factory=dict)
    _sides: tuple[torch.Tensor, ...] = ()
    _rows: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    _given: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    _calls: int = 0

    def attach(self, batch: Batch, rows: Rows) -> Iterator[RemovableHandle]:
        """Hook every feed-forward for one pass."""
        self._rows, self._calls = rows, 0
        texts = np.flatnonzero(batch.counted) // batch.counted.shape[1] + batch.first
        held = np.isin(texts, list(self.held_out))
        self._sides = tuple(torch.from_numpy(np.flatnonzero(s)).to(rows) for s in (~held, held))
        self.n_tokens = [n + len(s) for n, s in zip(self.n_tokens, self._sides, strict=True)]
        for sublayer in chain.from_iterable(self.stack.sublayers):
            if sublayer.term == "feed_forward":
                yield sublayer.reads.register_forward_pre_hook(self._before, with_kwargs=True)
                yield sublayer.branch.register_forward_hook(self._after)

    def see(self, layer: Decomposed) -> None:
        """Add the terms of one layer."""
        if layer.layer and not layer.normed:
            term = layer.terms[self.stack.terms.index("feed_forward")]
            self._add(0, layer.layer, layer.terms.sum(dim=0) - term, term)

    def report(self) -> LinearFits:
        """R² of every layer, where there are tokens enough."""
        train, held = self.n_tokens
        fits = LinearFits(
            train_tokens=train,
            held_out_tokens=held,
            needed_tokens=TOKENS_PER_DIM * self.dim,
            fits=(),
        )
        if fits.too_few:
            return fits
        scores = map(self._scores, range(len(FITS)))
        return replace(
            fits,
            fits=tuple(
                LinearFit(outcome=y, predictor=x, r2=by_layer[:, 0], r2_train=by_layer[:, 1])
                for (y, x), by_layer in zip(FITS, scores, strict=True)
            ),
        )

    def _scores(self, fit: int) -> Float64[np.ndarray, "layers sides"]:
        layers = sorted({layer for _, layer, _ in self._moments})
        pairs = ([self._moments[fit, layer, side] for side in (False, True)] for layer in layers)
        return np.array([fit_and_score(*sides) for sides in pairs])

    def _before(
        self, _: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]
    ) -> None:
        self._given = args[0] if args else next(iter(kwargs.values()))

    def _after(self, _: nn.Module, __: object, output: object) -> None:
        self._calls += 1
        pair = (select_rows(states, self._rows) for states in (self._given, first_tensor(output)))
        self._add(1, self._calls, *pair)

    def _add(self, fit: int, layer: int, x: torch.Tensor, y: torch.Tensor) -> None:
        for held, side in enumerate(self._sides):
            moments = self._moments.setdefault((fit, layer, bool(held)), PairMoments())
            moments.add(x.index_select(0, side), y.index_select(0, side))
