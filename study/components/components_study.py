"""The components study: what hidden states are made of, and what a fine-tune changed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Unpack

import numpy as np
import torch
from scipy.stats import spearmanr
from torch.utils.hooks import RemovableHandle

from ...arrays import Float32, Float64
from ...errors import StudyError
from ...results import JsonRecord, count
from ..network.hidden_states import Batching, TextBatch, encoded, run_with_hooks
from ..network.model_loading import Network, twin
from ..texts import Text
from .decomposition import (
    Decomposed,
    Rows,
    Stream,
    TermTrack,
    counted_rows,
    importance,
    keeper,
    relative_lengths,
    streams_of,
    term_shifts,
    token_sums,
)
from .local_shift import ZERO, Call, LocalShift, local_terms, record_calls


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
    term_shift: Float64[np.ndarray, "layers terms"]
    term_shift_share: Float64[np.ndarray, "layers terms"]
    total_shift: Float64[np.ndarray, " layers"]
    local_terms: tuple[str, ...]
    local_shift: Float64[np.ndarray, "blocks local_terms"]
    local_embedding: float

    @property
    def most_edited(self) -> dict[str, Any] | None:
        """`layer` and `term` of the largest local shift."""
        shifts = self.local_shift
        if not shifts.size or shifts.max() <= ZERO:
            return None
        layer, term = np.unravel_index(int(shifts.argmax()), shifts.shape)
        return {"layer": int(layer), "term": self.local_terms[int(term)]}

    def to_json(self) -> dict[str, Any]:
        return JsonRecord.to_json(self) | {"most_edited": self.most_edited}


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
    importance: list[Measured] = field(default_factory=list)
    norm_ratio: list[Measured] = field(default_factory=list)
    error: float = 0.0
    labels: list[str] = field(default_factory=list)
    _pass: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def attach(
        self, rows: Rows, see: Callable[[Decomposed], None] | None = None
    ) -> Iterator[RemovableHandle]:
        """Hook the stream for one pass; `see` is called with each layer as it is computed."""
        self._pass, self.labels = [], []

        def emit(layer: Decomposed) -> None:
            self._measure(layer)
            if see is not None:
                see(layer)

        yield from TermTrack(self.stream.stack, self.stream.constants, emit, rows).attach()

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

    def report(self, against: Against | None) -> StackComponents:
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
        return StackComponents(
            name=stack.name,
            layers=tuple(self.labels),
            terms=stack.terms,
            absent=tuple(t for t, there in zip(stack.terms, present, strict=True) if not there),
            importance=shares.mean(axis=2),
            importance_sd=shares.std(axis=2),
            norm_ratio=ratios.mean(axis=2),
            error=self.error,
            against=against,
        )

    def _measure(self, layer: Decomposed) -> None:
        missed = (layer.terms.sum(0) - layer.hidden).norm() / layer.hidden.norm()
        finite = layer.hidden.isfinite().all()
        ratios = relative_lengths(layer.terms, layer.terms.sum(0))
        self._pass.append((importance(layer.terms), ratios, missed, finite))
        self.labels.append("final" if layer.normed else str(layer.layer))


@dataclass(slots=True)
class Comparison:
    """A stream of a fine-tune and that of its base, and the changes summed over tokens."""

    tuned: StreamTally
    base: StreamTally
    sums: dict[str, Float64[np.ndarray, "layers ..."]] = field(default_factory=dict)
    _local: LocalShift | None = None
    _shifts: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def attach(
        self, rows: Rows, calls: Sequence[Call], layers: list[Decomposed]
    ) -> Iterator[RemovableHandle]:
        tuned = iter(layers)
        self._shifts = []

        def see(theirs: Decomposed) -> None:
            mine = next(tuned)
            change = relative_lengths(mine.hidden - theirs.hidden, theirs.hidden)
            values = (*term_shifts(mine.terms, theirs.terms), change)
            self._shifts.append(tuple(map(token_sums, values)))

        yield from self.base.attach(rows, see)
        self._local = LocalShift(self.tuned.stream, self.base.stream, rows, calls)
        yield from self._local.attach()

    def end_pass(self, base: str) -> None:
        self.base.end_pass(base)
        assert self._local is not None
        shifts, shares, changes = map(torch.stack, zip(*self._shifts, strict=True))
        added = {"term_shift": shifts, "term_shift_share": shares, "total_shift": changes}
        added["local_shift"] = torch.stack(self._local.layers)
        added["local_embedding"] = self._local.embedding
        for name, values in added.items():
            self.sums[name] = self.sums.get(name, 0.0) + values.cpu().numpy()
        self._local, self._shifts = None, []

    def report(self, n_tokens: int) -> StackComponents:
        mine, theirs = (
            np.concatenate(tally.importance, axis=2) for tally in (self.tuned, self.base)
        )
        layers, terms, _ = mine.shape
        rhos = [_spearman(mine[i, j], theirs[i, j]) for i, j in np.ndindex(layers, terms)]
        means = {name: total / n_tokens for name, total in self.sums.items()}
        against = Against(
            correlation=np.array(rhos).reshape(layers, terms),
            local_terms=local_terms(self.base.stream.stack),
            local_embedding=float(means.pop("local_embedding")),
            **means,
        )
        return self.tuned.report(against)


def _spearman(a: Float32[np.ndarray, " tokens"], b: Float32[np.ndarray, " tokens"]) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def components_study(
    network: Network,
    texts: Sequence[Text],
    *,
    against: Network | None = None,
    watched: Callable[[Iterator[TextBatch]], Iterable[TextBatch]] = iter,
    **batching: Unpack[Batching],
) -> ComponentsReport:
    """Every stream of a network, term by term; `against` is its base, or another relative.

    Each model is run once over each batch; `watched` passes the batches on.

    Peak: all terms of all layers of the tokens of one batch, with `against`; else those of one
    layer. Per token, layer and term two float32 numbers, twice with `against`.

    Raises:
        StudyError: the terms do not add up, the models differ in shape or tokenisation, or no
            token is left.
    """
    tallies = [StreamTally(stream) for stream in streams_of(network)]
    comparisons: list[Comparison] = []
    other = against
    if against is not None:
        _require_alike(network, against, texts)
        other = against if against.model is not network.model else twin(against)
        comparisons = [
            Comparison(tally, StreamTally(stream))
            for tally, stream in zip(tallies, streams_of(other), strict=True)
        ]
    n_tokens = 0
    for batch in watched(encoded(network, texts, **batching)):
        n_tokens += int(batch.counted.sum())
        if not batch.counted.any():
            continue
        rows = counted_rows(batch)
        layers: list[list[Decomposed]] = [[] for _ in tallies]
        calls: list[list[Call]] = [[] for _ in tallies]
        hooks = [
            tally.attach(rows, keeper(kept) if comparisons else None)
            for tally, kept in zip(tallies, layers, strict=True)
        ]
        recorders = map(record_calls, network.stacks, calls) if comparisons else ()
        run_with_hooks(network, batch, chain(*hooks, *recorders))
        for tally in tallies:
            tally.end_pass(network.name)
        if other is not None:
            compared = zip(comparisons, calls, layers, strict=True)
            hooks = [c.attach(rows, own, mine) for c, own, mine in compared]
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
        or tuple(tally.report(None) for tally in tallies),
    )


def _require_alike(network: Network, against: Network, texts: Sequence[Text]) -> None:
    pair = (network, against)
    here, there = (f"{n.config.model_type}, {count(n.n_layers, 'layer')} of {n.dim}" for n in pair)
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
