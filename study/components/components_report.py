"""The components study: what hidden states are made of, and what a fine-tune changed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Unpack

import numpy as np
import torch
from scipy.stats import spearmanr

from ...arrays import Float32, Float64
from ...errors import StudyError
from ..network.hidden_states import Batch, Batching, encoded
from ..network.model_loading import Network, twin
from ..report_json import JsonRecord
from ..texts import Text
from .decomposition import (
    Decomposed,
    Stream,
    decompose,
    importance,
    norm_ratios,
    relative_lengths,
    term_shifts,
)
from .local_shift import ZERO, local_shift

WORST_ERROR = 1e-4
"""Relative error of the sum above which a decomposition is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against(JsonRecord):
    """A stream of a fine-tune compared with its base's.

    Attributes:
        correlation: Spearman's ρ of both models' importance over tokens; NaN where constant.
        term_shift: Mean |x' − x| / |e| of each term.
        term_shift_share: Mean share of each term in the change of the hidden state.
        total_shift: Mean relative change of the hidden state.
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
    def most_edited(self) -> tuple[int, str] | None:
        """(block from 1, term) with the largest local shift; None where nothing changed."""
        if not self.local_shift.size or self.local_shift.max() <= ZERO:
            return None
        block, term = np.unravel_index(int(self.local_shift.argmax()), self.local_shift.shape)
        return int(block) + 1, self.local_terms[int(term)]

    def to_json(self) -> dict[str, Any]:
        """The fields and the most edited term."""
        edited = self.most_edited
        shown = None if edited is None else {"layer": edited[0], "term": edited[1]}
        return JsonRecord.to_json(self) | {"most_edited": shown}


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
        """The fields; those of the comparison beside them."""
        compared = {} if self.against is None else self.against.to_json()
        return JsonRecord.to_json(self) | compared


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
        """The fields, and the streams by name."""
        stacks = {stack.name: stack.to_json() for stack in self.stacks}
        return JsonRecord.to_json(self) | {"stacks": stacks}


@dataclass(slots=True)
class _StreamTally:
    """A stream's numbers of every token, batch by batch; 4 bytes a token, layer and term."""

    stream: Stream
    importance: list[Float32[np.ndarray, "layers terms tokens"]] = field(default_factory=list)
    norm_ratio: list[Float32[np.ndarray, "layers terms tokens"]] = field(default_factory=list)
    error: float = 0.0
    labels: tuple[str, ...] = ()

    def add(self, batch: Batch, counted: torch.Tensor) -> list[Decomposed]:
        """Decompose a batch, and add the numbers of the tokens that count."""
        stream = self.stream
        layers = decompose(stream.network, stream.stack, batch, stream.constants)
        terms = [layer.terms[:, counted] for layer in layers]
        for layer, part in zip(layers, terms, strict=True):
            hidden = layer.hidden[counted]
            if not hidden.isfinite().all():
                raise StudyError(
                    f"layer {layer.layer} holds NaN or infinity: check the model's weights"
                )
            self.error = max(self.error, float((part.sum(0) - hidden).norm() / hidden.norm()))
        self.importance.append(torch.stack([importance(part) for part in terms]).cpu().numpy())
        self.norm_ratio.append(torch.stack([norm_ratios(part) for part in terms]).cpu().numpy())
        self.labels = tuple("final" if layer.normed else str(layer.layer) for layer in layers)
        return layers

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
            layers=self.labels,
            terms=stack.terms,
            absent=tuple(t for t, there in zip(stack.terms, present, strict=True) if not there),
            importance=shares.mean(axis=2),
            importance_sd=shares.std(axis=2),
            norm_ratio=ratios.mean(axis=2),
            error=self.error,
            against=against,
        )


@dataclass(slots=True)
class _Comparison:
    """A stream of a fine-tune and that of its base, and the changes summed over tokens."""

    tuned: _StreamTally
    base: _StreamTally
    sums: dict[str, Float64[np.ndarray, "layers ..."]] = field(default_factory=dict)
    embedding: float = 0.0
    local_terms: tuple[str, ...] = ()

    def add(self, batch: Batch, tuned: Sequence[Decomposed], counted: torch.Tensor) -> None:
        pairs = list(zip(tuned, self.base.add(batch, counted), strict=True))
        shifts = [term_shifts(a.terms[:, counted], b.terms[:, counted]) for a, b in pairs]
        distances, shares = zip(*shifts, strict=True)
        changes = [
            relative_lengths((a.hidden - b.hidden)[counted], b.hidden[counted]) for a, b in pairs
        ]
        local = local_shift(self.tuned.stream, self.base.stream, batch)
        for name, added in {
            "term_shift": _token_sums(distances),
            "term_shift_share": _token_sums(shares),
            "total_shift": _token_sums(changes),
            "local_shift": local.layers,
        }.items():
            self.sums[name] = self.sums.get(name, 0.0) + added.cpu().numpy()
        self.embedding += local.embedding
        self.local_terms = local.names

    def report(self, n_tokens: int) -> Against:
        mine, theirs = (
            np.concatenate(tally.importance, axis=2) for tally in (self.tuned, self.base)
        )
        layers, terms, _ = mine.shape
        rhos = [_spearman(mine[i, j], theirs[i, j]) for i, j in np.ndindex(layers, terms)]
        return Against(
            correlation=np.array(rhos).reshape(layers, terms),
            correlation_method="spearman",
            local_terms=self.local_terms,
            local_embedding=self.embedding / n_tokens,
            **{name: total / n_tokens for name, total in self.sums.items()},
        )


def components_study(
    network: Network,
    texts: Sequence[Text],
    *,
    against: Network | None = None,
    watched: Callable[[Iterator[Batch]], Iterable[Batch]] = iter,
    **batching: Unpack[Batching],
) -> ComponentsReport:
    """Every stream of a network, term by term; `against` is its base, or another relative.

    `watched` is called with the batches and returns them, with a progress bar for example.

    Peak: all terms of all layers of one batch, twice with `against`; per token, layer and term
    two float32 numbers.

    Raises:
        StudyError: the terms do not add up, the models differ in shape or tokenisation, or no
            token is left.
    """
    tallies = [_StreamTally(Stream.of(network, stack)) for stack in network.stacks]
    comparisons: list[_Comparison] = []
    if against is not None:
        _require_alike(network, against, texts)
        other = against if against.model is not network.model else twin(against)
        comparisons = [
            _Comparison(tally, _StreamTally(Stream.of(other, stack)))
            for tally, stack in zip(tallies, other.stacks, strict=True)
        ]
    n_tokens = 0
    for batch in watched(encoded(network, texts, **batching)):
        n_tokens += int(batch.counted.sum())
        if not batch.counted.any():
            continue
        counted = torch.from_numpy(batch.counted).to(network.device)
        decomposed = [tally.add(batch, counted) for tally in tallies]
        for comparison, layers in zip(comparisons, decomposed, strict=False):
            comparison.add(batch, layers, counted)
    if not n_tokens:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    compared = [comparison.report(n_tokens) for comparison in comparisons]
    return ComponentsReport(
        model=network.name,
        against=None if against is None else against.name,
        n_texts=len(texts),
        n_tokens=n_tokens,
        keep_special=batching.get("keep_special", False),
        stacks=tuple(map(_StreamTally.report, tallies, compared or repeat(None))),
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


def _spearman(a: Float32[np.ndarray, " tokens"], b: Float32[np.ndarray, " tokens"]) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _token_sums(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([layer.double().sum(dim=-1) for layer in layers])
