"""The components study: what hidden states are made of, and what a fine-tune did to that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from ...arrays import Float32, Float64
from ...errors import StudyError
from ..network.anatomy import Stack
from ..network.hidden_states import Batch, encoded
from ..network.model_loading import Network, twin
from ..texts import Text
from .decomposition import (
    Constants,
    Decomposed,
    branch_constants,
    decompose,
    importance,
    norm_ratios,
    relative_lengths,
    term_shifts,
)
from .local_shift import ZERO, LocalShift, local_shift

WORST_ERROR = 1e-4
"""Relative error of the sum at which a decomposition is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One stream of a fine-tune beside its base's.

    Attributes:
        correlation: Spearman's ρ of both models' importance over tokens; NaN where constant.
        shift: Mean |x' − x| / |e| of each term.
        share: Mean share of each term in the hidden state's move.
        local: Per block, for each of `local_terms`: mean change of the sub-layer's own output
            on the base's input, over the length of that input.
        embedding: The same of the embedding output.
    """

    correlation: Float64[np.ndarray, "layers terms"]
    shift: Float64[np.ndarray, "layers terms"]
    share: Float64[np.ndarray, "layers terms"]
    total_shift: Float64[np.ndarray, " layers"]
    local_terms: tuple[str, ...]
    local: Float64[np.ndarray, "blocks local_terms"]
    embedding: float

    @property
    def most_edited(self) -> tuple[int, str] | None:
        """(block from 1, term) whose local shift is largest; None where nothing changed."""
        if not self.local.size or self.local.max() <= ZERO:
            return None
        block, term = np.unravel_index(int(self.local.argmax()), self.local.shape)
        return int(block) + 1, self.local_terms[int(term)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackComponents:
    """One residual stream.

    Attributes:
        layers: `0` is the embedding output, `final` comes after the final norm.
        absent: Terms that are zero throughout, for there is nothing to make them.
        importance: Mean of μ = ⟨e, x⟩ / |e|² over tokens; sums to 1 over terms.
        norm_ratio: Mean |x| / |e|.
        error: Largest relative error of the sum of terms, over layers.
    """

    name: str
    layers: tuple[str, ...]
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    importance: Float64[np.ndarray, "layers terms"]
    importance_sd: Float64[np.ndarray, "layers terms"]
    norm_ratio: Float64[np.ndarray, "layers terms"]
    error: float
    against: Against | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsReport:
    """Every stream of one model, over one set of texts."""

    model: str
    against: str | None
    n_texts: int
    n_tokens: int
    keep_special: bool
    stacks: tuple[StackComponents, ...]

    def to_json(self) -> dict[str, Any]:
        """The documented keys, ready for json.dumps."""
        return {
            "model": self.model,
            "against": self.against,
            "texts": self.n_texts,
            "tokens": self.n_tokens,
            "special_tokens": self.keep_special,
            "stacks": {stack.name: _stack_json(stack) for stack in self.stacks},
        }


@dataclass(slots=True)
class _Gathered:
    """One stream's per-token numbers, batch by batch; 4 bytes a token, layer and term."""

    importance: list[Float32[np.ndarray, "layers terms tokens"]] = field(default_factory=list)
    norm_ratio: list[Float32[np.ndarray, "layers terms tokens"]] = field(default_factory=list)
    error: float = 0.0
    labels: tuple[str, ...] = ()

    def add(self, layers: Sequence[Decomposed], kept: torch.Tensor) -> None:
        terms = [one.terms[:, kept] for one in layers]
        for one, part in zip(layers, terms, strict=True):
            hidden = one.hidden[kept]
            if not hidden.isfinite().all():
                raise StudyError(
                    f"layer {one.layer} holds NaN or infinity: check the model's weights"
                )
            self.error = max(self.error, float((part.sum(0) - hidden).norm() / hidden.norm()))
        self.importance.append(_stacked([importance(part) for part in terms]))
        self.norm_ratio.append(_stacked([norm_ratios(part) for part in terms]))
        self.labels = tuple("final" if one.normed else str(one.layer) for one in layers)


@dataclass(slots=True)
class _Side:
    """A model's stream, ready to be decomposed."""

    network: Network
    stack: Stack
    constants: Constants
    gathered: _Gathered = field(default_factory=_Gathered)

    @property
    def parts(self) -> tuple[Network, Stack, Constants]:
        return self.network, self.stack, self.constants

    def decompose(self, batch: Batch, kept: torch.Tensor) -> list[Decomposed]:
        layers = decompose(self.network, self.stack, batch, self.constants)
        self.gathered.add(layers, kept)
        return layers


@dataclass(slots=True)
class _Moves:
    """What a fine-tune did to one stream, summed over tokens."""

    shift: Float64[np.ndarray, "layers terms"] | float = 0.0
    share: Float64[np.ndarray, "layers terms"] | float = 0.0
    total: Float64[np.ndarray, " layers"] | float = 0.0
    local: Float64[np.ndarray, "blocks local_terms"] | float = 0.0
    embedding: float = 0.0
    names: tuple[str, ...] = ()

    def add(self, tuned: list[Decomposed], base: list[Decomposed], kept: torch.Tensor) -> None:
        pairs = [
            term_shifts(a.terms[:, kept], b.terms[:, kept])
            for a, b in zip(tuned, base, strict=True)
        ]
        self.shift = self.shift + _summed([distance for distance, _ in pairs])
        self.share = self.share + _summed([share for _, share in pairs])
        moved = [
            relative_lengths((a.hidden - b.hidden)[kept], b.hidden[kept])[None]
            for a, b in zip(tuned, base, strict=True)
        ]
        self.total = self.total + _summed(moved)[:, 0]

    def add_local(self, shift: LocalShift) -> None:
        self.local = self.local + shift.layers.cpu().numpy()
        self.embedding += shift.embedding
        self.names = shift.names


def components_study(
    network: Network,
    texts: Sequence[Text],
    *,
    against: Network | None = None,
    batch_size: int = 16,
    max_tokens: int = 128,
    keep_special: bool = False,
    keep_first: bool = False,
    watched: Callable[[Iterator[Batch]], Iterable[Batch]] = iter,
) -> ComponentsReport:
    """Every stream of a network, term by term; `against` is its base, or another relative.

    `watched` is handed the batches and gives them back, a progress bar for one.

    Peak: all terms of all layers of one batch, twice with `against`; per token, layer and term
    two float32 numbers.

    Raises:
        StudyError: the terms do not add up, the models differ in shape or tokenisation, or no
            token is left.
    """
    if against is not None:
        _require_alike(network, against, texts)
        against = against if against.model is not network.model else twin(against)
    sides = [_Side(network, s, branch_constants(network, s)) for s in network.stacks]
    others = (
        [_Side(against, s, branch_constants(against, s)) for s in against.stacks]
        if against is not None
        else []
    )
    moves = [_Moves() for _ in others]
    n_tokens = 0
    batches = encoded(
        network,
        texts,
        batch_size=batch_size,
        max_tokens=max_tokens,
        keep_special=keep_special,
        keep_first=keep_first,
    )
    for batch in watched(batches):
        n_tokens += int(batch.kept.sum())
        if not batch.kept.any():
            continue
        kept = torch.from_numpy(batch.kept).to(network.device)
        mine = [side.decompose(batch, kept) for side in sides]
        for side, other, layers, moved in zip(sides, others, mine, moves, strict=False):
            moved.add(layers, other.decompose(batch, kept), kept)
            moved.add_local(local_shift(side.parts, other.parts, batch))
    if not n_tokens:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    return ComponentsReport(
        model=network.name,
        against=against.name if against is not None else None,
        n_texts=len(texts),
        n_tokens=n_tokens,
        keep_special=keep_special,
        stacks=tuple(
            _report(side, _against(side, others[place], moves[place], n_tokens) if others else None)
            for place, side in enumerate(sides)
        ),
    )


def _require_alike(network: Network, against: Network, texts: Sequence[Text]) -> None:
    """Refuse two networks whose layers or tokens cannot be laid side by side."""
    here, there = (
        f"{one.config.model_type}, {one.n_layers} layers of {one.dim}" for one in (network, against)
    )
    mine, theirs = (
        [(stack.terms, len(stack.blocks)) for stack in one.stacks] for one in (network, against)
    )
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


def _report(side: _Side, against: Against | None) -> StackComponents:
    gathered = side.gathered
    if not gathered.error <= WORST_ERROR:
        raise StudyError(
            f"{side.network.name}: the terms of its {side.stack.name} miss the hidden state by "
            f"{gathered.error:.1e}: it computes in a way deltadex does not know"
        )
    shares = np.concatenate(gathered.importance, axis=2).astype(np.float64)
    ratios = np.concatenate(gathered.norm_ratio, axis=2).astype(np.float64)
    present = ratios.max(axis=(0, 2)) > 0
    return StackComponents(
        name=side.stack.name,
        layers=gathered.labels,
        terms=side.stack.terms,
        absent=tuple(t for t, there in zip(side.stack.terms, present, strict=True) if not there),
        importance=shares.mean(axis=2),
        importance_sd=shares.std(axis=2),
        norm_ratio=ratios.mean(axis=2),
        error=gathered.error,
        against=against,
    )


def _against(side: _Side, other: _Side, moved: _Moves, n_tokens: int) -> Against:
    mine = np.concatenate(side.gathered.importance, axis=2)
    theirs = np.concatenate(other.gathered.importance, axis=2)
    return Against(
        correlation=np.array(
            [
                [_spearman(a, b) for a, b in zip(x, y, strict=True)]
                for x, y in zip(mine, theirs, strict=True)
            ]
        ),
        shift=np.asarray(moved.shift) / n_tokens,
        share=np.asarray(moved.share) / n_tokens,
        total_shift=np.asarray(moved.total) / n_tokens,
        local_terms=moved.names,
        local=np.asarray(moved.local) / n_tokens,
        embedding=moved.embedding / n_tokens,
    )


def _spearman(a: Float32[np.ndarray, " tokens"], b: Float32[np.ndarray, " tokens"]) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _stacked(layers: Sequence[torch.Tensor]) -> Float32[np.ndarray, "layers terms tokens"]:
    found: Float32[np.ndarray, "layers terms tokens"] = torch.stack(list(layers)).cpu().numpy()
    return found


def _summed(layers: Sequence[torch.Tensor]) -> Float64[np.ndarray, "layers terms"]:
    found: Float64[np.ndarray, "layers terms"] = (
        torch.stack([layer.double().sum(dim=-1) for layer in layers]).cpu().numpy()
    )
    return found


def _stack_json(stack: StackComponents) -> dict[str, Any]:
    document: dict[str, Any] = {
        "layers": list(stack.layers),
        "terms": list(stack.terms),
        "absent": list(stack.absent),
        "importance": _rows(stack.importance),
        "importance_sd": _rows(stack.importance_sd),
        "norm_ratio": _rows(stack.norm_ratio),
        "error": stack.error,
    }
    if stack.against is not None:
        against = stack.against
        edited = against.most_edited
        document |= {
            "correlation": _rows(against.correlation),
            "correlation_method": "spearman",
            "term_shift": _rows(against.shift),
            "term_shift_share": _rows(against.share),
            "total_shift": _rows(against.total_shift),
            "local_terms": list(against.local_terms),
            "local_shift": _rows(against.local),
            "local_embedding": against.embedding,
            "most_edited": None if edited is None else {"layer": edited[0], "term": edited[1]},
        }
    return document


def _rows(values: Float64[np.ndarray, ...]) -> Any:
    """Nested lists; None for NaN, which JSON lacks."""
    if values.ndim:
        return [_rows(row) for row in values]
    return None if np.isnan(values) else float(values)
