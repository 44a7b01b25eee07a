"""Numbers of one stream, added up batch by batch, alone and beside its base's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.stats import spearmanr
from torch.utils.hooks import RemovableHandle

from ...arrays import Float32, Float64
from ...errors import StudyError
from ..network.hidden_states import Batch
from .components_report import Against, HeadShares, StackComponents
from .decomposition import (
    Decomposed,
    Rows,
    Stream,
    Track,
    importance,
    norm_ratios,
    relative_lengths,
    term_shifts,
    token_sums,
)
from .heads import HeadTally
from .linear_fit import LinearTally
from .local_shift import CallRecord, Heads, LocalShift

WORST_ERROR = 1e-4
"""Relative error of the sum above which a decomposition is refused."""

Measured = Float32[np.ndarray, "layers terms tokens"]


@dataclass(slots=True)
class StreamTally:
    """A stream's numbers of every token, batch by batch; 8 bytes a token, layer and term.

    Attributes:
        importance: Of each batch.
        error: Largest relative error of the sum of terms.
        labels: Of the layers.
    """

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
        """Add the numbers of the tokens of one pass of this model.

        Raises:
            StudyError: a hidden state holds NaN or infinity.
        """
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
        self._pass = []

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
            if heads is None or heads.own is None or heads.last is None
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
        """Hook the base for one pass, after the fine-tune's over the same batch."""
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
        """Add the changes of one pass of this base."""
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
        """The fine-tune's stream beside the base's."""
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
