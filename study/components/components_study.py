"""The components study: what hidden states are made of, and what a fine-tune changed in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Unpack

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn
from torch.utils.hooks import RemovableHandle

from ...arrays import Float32, Float64
from ...errors import StudyError
from ...results import JsonRecord
from ..network.anatomy import Stack
from ..network.hidden_states import Batch, Batching, encoded, first_tensor, run_with_hooks
from ..network.model_loading import Network, twin
from ..texts import Text
from .decomposition import (
    Decomposed,
    HeadTally,
    Rows,
    Stream,
    Track,
    attention_heads,
    counted_rows,
    importance,
    keeper,
    norm_ratios,
    relative_lengths,
    select_rows,
    streams_of,
    term_shifts,
    token_sums,
)
from .local_shift import ZERO, CallRecord, Heads, LocalShift

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
    """Least squares without a penalty, by layer: R² on held-out tokens, the mean over coordinates,
    as if each were z-scored; and on the tokens of the fit, as in the published figure."""

    outcome: str
    predictor: str
    r2: Float64[np.ndarray, " layers"]
    r2_train: Float64[np.ndarray, " layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFits(JsonRecord):
    """The fits of a stream, for layers 1 to the last; none with too few tokens."""

    train_tokens: int
    held_out_tokens: int
    needed_tokens: int
    fits: tuple[LinearFit, ...]

    @property
    def too_few(self) -> bool:
        return min(self.train_tokens, TOKENS_PER_DIM * self.held_out_tokens) < self.needed_tokens

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | {"too_few_tokens": self.too_few}


def held_out_texts(texts: Sequence[Text]) -> frozenset[int]:
    """The places of the texts that are held out, whatever their order, with all equal ones."""
    digests = [hashlib.sha256(text.text.encode()).digest() for text in texts]
    unique = sorted(set(digests))
    held = set(unique[: round(HELD_OUT * len(unique))])
    return frozenset(place for place, digest in enumerate(digests) if digest in held)


class PairMoments:
    """Count, means and sums of squares and products of pairs (x, y), in float64; batches are
    centred and added by Chan, Golub & LeVeque 1983, eq. 1.5."""

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
        if layer.layer and not layer.normed:
            term = layer.terms[self.stack.terms.index("feed_forward")]
            self._add(0, layer.layer, layer.terms.sum(dim=0) - term, term)

    def report(self) -> LinearFits:
        train, held = self.n_tokens
        needed = TOKENS_PER_DIM * self.dim
        fits = LinearFits(train_tokens=train, held_out_tokens=held, needed_tokens=needed, fits=())
        if fits.too_few:
            return fits
        layers, made = sorted({layer for _, layer, _ in self._moments}), []
        for fit, (y, x) in enumerate(FITS):
            pairs = ((self._moments[fit, n, False], self._moments[fit, n, True]) for n in layers)
            r2, r2_train = np.array([fit_and_score(*sides) for sides in pairs]).T
            made.append(LinearFit(outcome=y, predictor=x, r2=r2, r2_train=r2_train))
        return replace(fits, fits=tuple(made))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Against(JsonRecord):
    """A stream of a fine-tune compared with its base's.

    Attributes:
        correlation: Spearman's ρ of both models' importance over tokens; NaN where constant.
        term_shift: Mean |x' − x| / |e| of each term.
        term_shift_share: Mean share of each term in the change of the hidden state.
        local_shift: By block and `local_terms`: mean change of the sub-layer's own output on the
            base's input, relative to that input.
        local_embedding: The same of the embedding output.
    """

    correlation: Float64[np.ndarray, "layers terms"]
    correlation_method: str
    term_shift: Float64[np.ndarray, "layers terms"]
    term_shift_share: Float64[np.ndarray, "layers terms"]
    total_shift: Float64[np.ndarray, " layers"]
    local_terms: tuple[str, ...]
    local_shift: Float64[np.ndarray, "blocks local_terms"]
    local_embedding: float

    @property
    def most_edited(self) -> dict[str, Any] | None:
        return most_edited({"local_shift": self.local_shift, "local_terms": self.local_terms})

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | {"most_edited": self.most_edited}


def most_edited(stack: Mapping[str, Any]) -> dict[str, Any] | None:
    """`layer` and `term` of the largest local shift in a document; stored ones of earlier versions
    count layers from 1 there."""
    shifts = np.array(stack["local_shift"], dtype=np.float64)
    if not shifts.size or shifts.max() <= ZERO:
        return None
    layer, term = np.unravel_index(int(shifts.argmax()), shifts.shape)
    return {"layer": int(layer), "term": stack["local_terms"][int(term)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShares(JsonRecord):
    """Means of μ of each head's part of attention, in the output of its own block and in the last
    hidden state, and with a base the local shift of its own output."""

    importance: Float64[np.ndarray, "blocks heads"]
    importance_last: Float64[np.ndarray, "blocks heads"]
    local_shift: Float64[np.ndarray, "blocks heads"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackComponents(JsonRecord):
    """One residual stream.

    Attributes:
        layers: `0` is the embedding output, `final` follows the final norm.
        absent: Terms that are zero everywhere, as no module makes them.
        importance: Mean of μ = ⟨e, x⟩ / |e|² over tokens; sums to 1 over terms.
        norm_ratio: Mean |x| / |e|.
        error: Largest relative error of the sum of terms, over layers.
    """

    name: str = field(repr=False)
    layers: tuple[str, ...]
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    importance: Float64[np.ndarray, "layers terms"]
    importance_sd: Float64[np.ndarray, "layers terms"]
    norm_ratio: Float64[np.ndarray, "layers terms"]
    error: float
    heads: HeadShares | None = None
    linear: LinearFits | None = None
    against: Against | None = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | (self.against.to_json() if self.against else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsReport(JsonRecord):
    """Every stream of one model, over one set of texts."""

    model: str
    against: str | None
    n_texts: int = field(metadata={"key": "texts"})
    n_tokens: int = field(metadata={"key": "tokens"})
    keep_special: bool = field(metadata={"key": "special_tokens"})
    stacks: tuple[StackComponents, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        stacks = {stack.name: stack.to_json() for stack in self.stacks}
        return JsonRecord.to_json(self) | {"stacks": stacks}


WORST_ERROR = 1e-4
"""Relative error of the sum above which a decomposition is refused."""

Measured = Float32[np.ndarray, "layers terms tokens"]


@dataclass(slots=True)
class StreamTally:
    """A stream's numbers of every token, batch by batch; 8 bytes a token, layer and term."""

    stream: Stream
    heads: HeadTally | None = None
    linear: LinearTally | None = None
    importance: list[Measured] = field(default_factory=list)
    norm_ratio: list[Measured] = field(default_factory=list)
    error: float = 0.0
    labels: list[str] = field(default_factory=list)
    _pass: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def attach(
        self, batch: Batch, rows: Rows, see: Callable[[Decomposed], None] | None = None
    ) -> Iterator[RemovableHandle]:
        """Hook the stream for one pass; `see` is called with each layer as it is computed."""
        self._pass, self.labels = [], []
        readers = [self._measure, *([see] if see else [])]
        if self.heads is not None:
            yield from self.heads.attach(rows)
            readers.append(self.heads.see)
        if self.linear is not None:
            yield from self.linear.attach(batch, rows)
            readers.append(self.linear.see)

        def emit(layer: Decomposed) -> None:
            for read in readers:
                read(layer)

        scaled = None if self.heads is None else self.heads.rescale
        yield from Track(self.stream.stack, self.stream.constants, emit, rows, scaled).attach()

    def end_pass(self, model: str) -> None:
        shares, ratios, errors, finite = map(torch.stack, zip(*self._pass, strict=True))
        if not finite.all():
            first = self.labels[int(finite.cpu().numpy().argmin())]
            raise StudyError(
                f"{model}: hidden state {first} holds NaN or infinity: check the model's weights"
            )
        self.error = max(self.error, float(errors.max()))
        self.importance.append(shares.cpu().numpy())
        self.norm_ratio.append(ratios.cpu().numpy())
        if self.heads is not None:
            self.heads.end_pass()

    def report(
        self,
        n_tokens: int,
        against: Against | None,
        by_head: Float64[np.ndarray, "blocks heads"] | None,
    ) -> StackComponents:
        """The means over tokens; refused where the terms do not add up."""
        stack = self.stream.stack
        if not self.error <= WORST_ERROR:
            raise StudyError(
                f"{self.stream.network.name}: the terms of its {stack.name} differ from the hidden "
                f"state by {self.error:.1e}: deltadex does not know how this network computes it"
            )
        shares = np.concatenate(self.importance, axis=2).astype(np.float64)
        ratios = np.concatenate(self.norm_ratio, axis=2).astype(np.float64)
        present = ratios.max(axis=(0, 2)) > 0
        heads = self.heads
        return StackComponents(
            name=stack.name,
            layers=tuple(self.labels),
            terms=stack.terms,
            absent=tuple(t for t, there in zip(stack.terms, present, strict=True) if not there),
            importance=shares.mean(axis=2),
            importance_sd=shares.std(axis=2),
            norm_ratio=ratios.mean(axis=2),
            error=self.error,
            heads=None
            if heads is None
            else HeadShares(
                importance=heads.own.numpy() / n_tokens,
                importance_last=heads.last.numpy() / n_tokens,
                local_shift=by_head,
            ),
            linear=None if self.linear is None else self.linear.report(),
            against=against,
        )

    def _measure(self, layer: Decomposed) -> None:
        missed = (layer.terms.sum(0) - layer.hidden).norm() / layer.hidden.norm()
        finite = layer.hidden.isfinite().all()
        self._pass.append((importance(layer.terms), norm_ratios(layer.terms), missed, finite))
        self.labels.append("final" if layer.normed else str(layer.layer))


@dataclass(slots=True)
class Comparison:
    """A stream of a fine-tune and that of its base, and the changes summed over tokens."""

    tuned: StreamTally
    base: StreamTally
    base_heads: Heads | None = None
    sums: dict[str, Float64[np.ndarray, "layers ..."]] = field(default_factory=dict)
    embedding: float = 0.0
    local_terms: tuple[str, ...] = ()
    _local: LocalShift | None = None
    _shifts: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def attach(
        self, batch: Batch, rows: Rows, record: CallRecord, layers: list[Decomposed]
    ) -> Iterator[RemovableHandle]:
        tuned = iter(layers)
        self._shifts = []

        def see(theirs: Decomposed) -> None:
            mine = next(tuned)
            change = relative_lengths(mine.hidden - theirs.hidden, theirs.hidden)
            values = (*term_shifts(mine.terms, theirs.terms), change)
            self._shifts.append(tuple(map(token_sums, values)))

        yield from self.base.attach(batch, rows, see)
        both = None
        if self.tuned.heads is not None and self.base_heads is not None:
            both = self.tuned.heads.heads, self.base_heads
        self._local = LocalShift(self.tuned.stream, self.base.stream, rows, record, both)
        yield from self._local.attach()

    def end_pass(self, base: str) -> None:
        self.base.end_pass(base)
        assert self._local is not None
        shifts, shares, changes = map(torch.stack, zip(*self._shifts, strict=True))
        added = {"term_shift": shifts, "term_shift_share": shares, "total_shift": changes}
        added["local_shift"] = torch.stack(self._local.layers)
        if self._local.by_head:
            added["by_head"] = torch.stack(self._local.by_head)
        for name, values in added.items():
            self.sums[name] = self.sums.get(name, 0.0) + values.cpu().numpy()
        self.embedding += self._local.embedding
        self.local_terms = self._local.names
        self._local, self._shifts = None, []

    def report(self, n_tokens: int) -> StackComponents:
        mine, theirs = (
            np.concatenate(tally.importance, axis=2) for tally in (self.tuned, self.base)
        )
        layers, terms, _ = mine.shape
        rhos = [_spearman(mine[i, j], theirs[i, j]) for i, j in np.ndindex(layers, terms)]
        means = {name: total / n_tokens for name, total in self.sums.items()}
        by_head = means.pop("by_head", None)
        against = Against(
            correlation=np.array(rhos).reshape(layers, terms),
            correlation_method="spearman",
            local_terms=self.local_terms,
            local_embedding=self.embedding / n_tokens,
            **means,
        )
        return self.tuned.report(n_tokens, against, by_head)


def _spearman(a: Float32[np.ndarray, " tokens"], b: Float32[np.ndarray, " tokens"]) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def components_study(
    network: Network,
    texts: Sequence[Text],
    *,
    against: Network | None = None,
    heads: bool = False,
    linear: bool = False,
    watched: Callable[[Iterator[Batch]], Iterable[Batch]] = iter,
    **batching: Unpack[Batching],
) -> ComponentsReport:
    """Every stream of a network, term by term; `against` is its base, or another relative.

    Each model is run once over each batch; `watched` passes the batches on. On request attention
    is split by head, and the feed-forward term fitted by a linear map.

    Peak: all terms of all layers of the tokens of one batch, with `against`; else those of one
    layer. Per token, layer and term two float32 numbers, twice with `against`. With
    `linear` 8 float64 matrices of dim² a layer.

    Raises:
        StudyError: the terms do not add up, the models differ in shape or tokenisation, or no
            token is left.
    """
    held_out = held_out_texts(texts) if linear else frozenset()
    tallies = [
        StreamTally(
            stream,
            HeadTally(attention_heads(network, stream.stack)) if heads else None,
            LinearTally(stream.stack, network.dim, held_out) if linear else None,
        )
        for stream in streams_of(network)
    ]
    comparisons: list[Comparison] = []
    other = against
    if against is not None:
        _require_alike(network, against, texts)
        other = against if against.model is not network.model else twin(against)
        comparisons = [
            Comparison(
                tally,
                StreamTally(stream),
                attention_heads(other, stream.stack) if heads else None,
            )
            for tally, stream in zip(tallies, streams_of(other), strict=True)
        ]
    n_tokens = 0
    for batch in watched(encoded(network, texts, **batching)):
        n_tokens += int(batch.counted.sum())
        if not batch.counted.any():
            continue
        rows = counted_rows(batch)
        layers: list[list[Decomposed]] = [[] for _ in tallies]
        records = [CallRecord(stack) for stack in network.stacks]
        hooks = [
            tally.attach(batch, rows, keeper(kept) if comparisons else None)
            for tally, kept in zip(tallies, layers, strict=True)
        ]
        recorders = [record.attach() for record in records] if comparisons else []
        run_with_hooks(network, batch, chain(*hooks, *recorders))
        for tally in tallies:
            tally.end_pass(network.name)
        if other is not None:
            compared = zip(comparisons, records, layers, strict=True)
            hooks = [c.attach(batch, rows, record, mine) for c, record, mine in compared]
            run_with_hooks(other, batch, chain(*hooks))
            for comparison in comparisons:
                comparison.end_pass(other.name)
    if not n_tokens:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    return ComponentsReport(
        model=network.name,
        against=None if against is None else against.name,
        n_texts=len(texts),
        n_tokens=n_tokens,
        keep_special=batching.get("keep_special", False),
        stacks=tuple(comparison.report(n_tokens) for comparison in comparisons)
        or tuple(tally.report(n_tokens, None, None) for tally in tallies),
    )


def _require_alike(network: Network, against: Network, texts: Sequence[Text]) -> None:
    pair = (network, against)
    here, there = (f"{n.config.model_type}, {n.n_layers} layers of {n.dim}" for n in pair)
    mine, theirs = ([(stack.terms, len(stack.blocks)) for stack in n.stacks] for n in pair)
    if here != there or mine != theirs:
        raise StudyError(
            f"{network.name} ({here}) and {against.name} ({there}) are not built alike"
        )
    if network.tokenizer is not None and against.tokenizer is not None:
        for text in texts[:8]:
            if network.tokenizer(text.text).input_ids != against.tokenizer(text.text).input_ids:
                raise StudyError(
                    f"{network.name} and {against.name} cut text {text.id!r} into other tokens: "
                    "they cannot be compared token by token"
                )
