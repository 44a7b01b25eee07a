"""Which base a model's layers come from when they do not align with it entry by entry.

The model's rows respond to the tokens' embeddings as the base's do (`base_invariants.py`), in
whatever basis its residual stream is. A cosine between two responses has a null distribution that
is measured on the pair of models itself: on all blocks but the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from ...arrays import Bool, Float64, Int64
from ...indexer import SIGNIFICANT
from ...results import count
from .base_invariants import BaseInvariants, read_anchors, respond, unit
from .model_rows import HEAD_KINDS, NEURONS, Matrix, ModelRows

LAYER_P = 1e-4
"""p of a layer below which it is the base's, after the number of comparisons."""

LAYER_SHARE = 0.5
"""Share of a model's layers that must be the base's: what is new in the rest is not explained."""

FEWEST_ANCHORS = 16
"""Anchors without which none are compared."""

SAME_TOKENS = 0.5
"""Agreement of Gram matrices from which embeddings are the base's: of other trainings on the same
texts 0.2 to 0.25, of fine-tunes above 0.9."""

ALIGNED = 0.5
"""Median cosine of embedding columns from which they are the base's columns."""

FEW_SIGNS = 0.02
"""Share of negated columns from which signs were flipped."""

SHRINKAGE = 1.0
"""Added to the eigenvalues of the anchors' Gram matrix, whose mean is 1, before responses are
whitened by it: with less, rounding in its smallest directions counts."""

HITS = 6
"""Of the neurons that are read of a layer, those that are among the kept ones, in any order."""

CLOSE_COSINE = 0.5
"""A kind of matrix whose cosine is this share of the layer's best, or more, is as it was; one that
was mixed inside its heads keeps less."""


@dataclass(frozen=True, kw_only=True)
class Transformation:
    """What was done to a base. `layers`: (layer, layer of the base), none where too few are the
    base's; `changes`: plain sentences; `p`: that so much is shared by chance; `cosine`: the median
    over layers, between what the model and the base have in common."""

    p: float
    cosine: float
    layers: tuple[tuple[int, int], ...]
    changes: tuple[str, ...]


def find_transformation(model: ModelRows, base: BaseInvariants) -> Transformation | None:
    """What was done to the base to give this model; None where not even its embeddings are the
    base's."""
    anchors = find_anchors(model, base)
    if anchors is None or not base.responses.keys() & model.blocks.keys():
        return None
    residual = compare_residual(*anchors)
    match = Match.of(compare_rows(model, base, *anchors))
    descends = match.p < SIGNIFICANT and len(match.own) >= LAYER_SHARE * len(model.layers)
    pairs = zip(match.own, match.theirs, strict=True) if descends else ()
    said = [] if descends else ["token embeddings of the base, layers not"]
    said += [f"residual stream {residual}"] if residual else []
    return Transformation(
        p=match.p,
        cosine=float(np.median(match.cosines)) if len(match.own) else 0.0,
        layers=tuple((model.layers[own], base.layers[theirs]) for own, theirs in pairs),
        changes=(*said, *(match.changes() if descends else ())),
    )


def find_anchors(model: ModelRows, base: BaseInvariants) -> tuple[Matrix, Matrix] | None:
    """The model's and the base's rows of the first anchors, all that the model's vocabulary holds;
    None where its embeddings are not the base's."""
    rows = base.rows[base.rows < model.tokens]
    if model.width != base.anchors.shape[1] or len(rows) < FEWEST_ANCHORS:
        return None
    ours, theirs = read_anchors(model, rows), base.anchors[: len(rows)].astype(np.float32)
    return (ours, theirs) if _agreement(ours, theirs) >= SAME_TOKENS else None


def _agreement(ours: Matrix, theirs: Matrix) -> float:
    """Correlation of two Gram matrices' upper triangles, without the base's largest directions,
    which models that were trained on like texts share."""
    first, second = (unit(rows - rows.mean(axis=0)) for rows in (ours, theirs))
    n = len(first)
    common = np.linalg.eigh((second @ second.T).astype(np.float64)).eigenvectors[:, -(n // 8) :]
    rest = np.eye(n) - common @ common.T
    pairs = np.triu_indices(n, 1)
    grams = [(rest @ (rows @ rows.T) @ rest)[pairs] for rows in (first, second)]
    with np.errstate(invalid="ignore"):  # equal rows have no correlation
        return float(np.nan_to_num(np.corrcoef(grams)[0, 1]))


def compare_residual(ours: Matrix, theirs: Matrix) -> str:
    """How the model's residual stream lies to the base's, "" where as it does, by the columns of
    shared anchors: linear assignment on |cos|. A rotation leaves no columns alike."""
    first, second = (unit((rows - rows.mean(axis=0)).T) for rows in (ours, theirs))
    if np.median((first * second).sum(axis=1)) >= ALIGNED:
        return ""
    cosines = first @ second.T
    assigned = cosines[linear_sum_assignment(-np.abs(cosines))]
    # among so many columns, the best of unrelated ones has a cosine of this size
    by_chance = np.sqrt(2 * np.log(len(first)) / (len(ours) - 1))
    if np.median(np.abs(assigned)) < max(ALIGNED, (1 + by_chance) / 2):
        return "rotated"
    return "permuted with signs" if np.mean(assigned < 0) >= FEW_SIGNS else "permuted"


class AnchorWhitening:
    """Responses to shared anchors as vectors with about as many independent entries as anchors:
    `size`."""

    def __init__(self, anchors: Matrix) -> None:
        centred = anchors - anchors.mean(axis=0)
        gram = unit(centred) @ unit(centred).T
        values = np.maximum(np.linalg.eigvalsh(gram.astype(np.float64)), 0.0)
        spectrum = values / (values + SHRINKAGE)
        self.size = float(spectrum.sum() ** 2 / max(float((spectrum**2).sum()), 1e-30))
        shrunk = gram + SHRINKAGE * np.eye(len(gram))
        self._matrix = np.linalg.inv(np.linalg.cholesky(shrunk)).T.astype(np.float32)
        lengths = np.linalg.norm(centred, axis=1)
        lengths = np.maximum(lengths, max(1e-3 * lengths.mean(), 1e-30))
        self._lengths = lengths.astype(np.float32)

    def apply(self, responses: np.ndarray) -> np.ndarray:
        """Unit vectors along the last axis."""
        centred = responses.astype(np.float32)
        centred = (centred - centred.mean(axis=-1, keepdims=True)) / self._lengths
        return unit((centred - centred.mean(axis=-1, keepdims=True)) @ self._matrix)


def null_width(cosines: np.ndarray, size: float) -> float:
    """Of Fisher's transform of the cosines of all but each block's best, at least as of chance."""
    rest = np.sort(np.abs(_fisher(cosines, size)), axis=1)[:, :-1]
    return max(1.0, 1.4826 * float(np.median(rest))) if rest.size >= 8 else 1.0


def log_p(cosines: np.ndarray, size: float, width: float, *, comparisons: int) -> np.ndarray:
    """ln p of cosines between vectors of `size` independent entries, where chance has a width."""
    logarithms = norm.logsf(_fisher(cosines, size) / width) + np.log(comparisons)
    return np.asarray(np.minimum(logarithms, 0.0))


def _fisher(cosines: np.ndarray, size: float) -> np.ndarray:
    return np.asarray(np.arctanh(np.clip(cosines, -0.99999, 0.99999)) * max(size - 3.0, 1.0) ** 0.5)


@dataclass(eq=False)
class InvariantEvidence:
    """Of one kind of matrix, by (layers of the model, layers of the base): evidence −ln p of what
    is sure, cosines, whether its parts have other numbers in the base; `compared`: which layers of
    the model were."""

    evidence: Float64[np.ndarray, "layers base_layers"]
    cosines: Float64[np.ndarray, "layers base_layers"]
    moved: Bool[np.ndarray, "layers base_layers"]
    compared: Bool[np.ndarray, " layers"]


def compare_rows(
    model: ModelRows, base: BaseInvariants, anchors: Matrix, base_anchors: Matrix
) -> dict[str, InvariantEvidence]:
    """By kind of matrix. Neurons in another order count only where attention is the base's too:
    rows that were shuffled within every matrix leave neurons, but no head."""
    whitening = AnchorWhitening(base_anchors)
    kinds = [kind for kind in base.responses if kind in model.blocks]
    tables = {kind: _compare_kind(model, base, kind, anchors, whitening) for kind in kinds}
    neurons, heads = tables.get(NEURONS), [tables[kind] for kind in kinds if kind != NEURONS]
    if neurons is not None and heads:
        closest = CLOSE_COSINE * np.max([table.cosines for table in tables.values()], axis=0)
        shown = [(table.evidence > 0) & (table.cosines >= closest) for table in heads]
        compared = np.any([table.compared for table in heads], axis=0)
        if np.any(shown, axis=(0, 2)).sum() < LAYER_SHARE * compared.sum():
            neurons.evidence[neurons.moved] = neurons.cosines[neurons.moved] = 0.0
    return tables


def _compare_kind(
    model: ModelRows, base: BaseInvariants, kind: str, anchors: Matrix, whitening: AnchorWhitening
) -> InvariantEvidence:
    """Some parts of each layer against all that are kept."""
    stored = base.responses[kind][..., : len(anchors)]
    n_parts, n_rows = stored.shape[1:3]
    ours = {}
    for place, layer in enumerate(model.layers):
        parts = _parts_to_read(model, kind, layer, n_parts)
        rows = respond(model, kind, layer, parts, n_rows, anchors)
        if rows is not None:
            ours[place] = parts, whitening.apply(rows).reshape(len(parts), -1) / n_rows
    theirs = whitening.apply(stored).reshape(*stored.shape[:2], -1)
    return _make_table(len(model.layers), ours, theirs, whitening.size * n_rows)


def _parts_to_read(model: ModelRows, kind: str, layer: int, n_kept: int) -> Sequence[int]:
    """A head of each layer: of values the last, else the first, so that an order of heads that
    keeps one in its place shows in the other. Of neurons the first."""
    block = model.blocks[kind].get(layer)
    if block is None or not n_kept or (kind != NEURONS and block.parts != n_kept):
        return ()
    if kind == NEURONS:
        return range(min(block.parts, -(-HITS * block.parts // n_kept)))
    return (block.parts - 1,) if kind == "v" else (0,)


def _make_table(
    n_layers: int,
    ours: Mapping[int, tuple[Sequence[int], np.ndarray]],
    theirs: np.ndarray,
    size: float,
) -> InvariantEvidence:
    """`ours`: by place the numbers of parts, and their vectors; `theirs`: (layers, parts, n)."""
    n_base, n_parts, n = theirs.shape
    flat, zeros = theirs.reshape(-1, n).T, np.zeros((n_layers, n_base))
    table = InvariantEvidence(zeros, zeros.copy(), zeros > 0, np.zeros(n_layers, bool))
    null = [vectors[:HITS] @ flat for _, vectors in ours.values()]
    width = null_width(np.concatenate(null), size) if null else 1.0
    for place, (numbers, vectors) in ours.items():
        cosines = (vectors @ flat).reshape(-1, n_base, n_parts)
        by_part = -log_p(cosines, size, width, comparisons=n_parts * len(numbers))
        sure = by_part.max(axis=2) > np.log(n_base / LAYER_P)
        n_sure = np.maximum(sure.sum(axis=0), 1)
        table.evidence[place] = (by_part.max(axis=2) * sure).sum(axis=0)
        table.cosines[place] = (cosines.max(axis=2) * sure).sum(axis=0) / n_sure
        is_other = by_part.argmax(axis=2) != np.asarray(numbers)[:, None]
        table.moved[place] = (is_other & sure).sum(axis=0) > n_sure / 2
        table.compared[place] = True
    return table


@dataclass(frozen=True, eq=False)
class Match:
    """The layers of a model that are a base's, as places in both; `p`: that half of its layers
    agree so much, by Rüger's combination, which holds under any dependence of the layers."""

    tables: Mapping[str, InvariantEvidence]
    own: Int64[np.ndarray, " n"]
    theirs: Int64[np.ndarray, " n"]
    p: float

    @classmethod
    def of(cls, tables: Mapping[str, InvariantEvidence]) -> Match:
        evidence = np.stack([table.evidence for table in tables.values()])
        best = evidence.sum(axis=0).argmax(axis=1)
        strongest = evidence.max(axis=0)[np.arange(len(best)), best]
        logarithms = np.minimum(0.0, np.log(len(evidence) * evidence.shape[2]) - strongest)
        own = np.flatnonzero(logarithms < np.log(LAYER_P))
        n_needed = -(-len(best) // 2)
        p = len(best) / n_needed * np.exp(np.sort(logarithms)[n_needed - 1])
        return cls(tables, own, best[own], float(min(1.0, p)))

    @cached_property
    def cosines(self) -> Float64[np.ndarray, " n"]:
        """Of each layer, the kind's that is closest."""
        cosines = [table.cosines[self.own, self.theirs] for table in self.tables.values()]
        return np.asarray(np.max(cosines, axis=0))

    def changes(self) -> list[str]:
        """What was done inside layers, in sentences."""
        attention, ffn = self._has(HEAD_KINDS), self._has((NEURONS,))
        every = np.ones(len(self.own), bool)
        keys = "queries and keys transformed inside heads, or replaced,"
        found = (
            ("heads permuted", attention, self._has(HEAD_KINDS, moved=True)),
            (keys, attention, self._lacks(("q", "k"))),
            ("values transformed inside heads", attention, self._lacks(("v",))),
            ("FFN neurons permuted", ffn, self._has((NEURONS,), moved=True)),
            ("attention not the base's", every, self._lacks(("q", "k", "v"))),
            ("FFN not the base's", every, self._lacks((NEURONS,))),
        )
        return [
            f"{what} in {np.sum(so & among)} of {count(int(np.sum(among)), 'layer')}"
            for what, among, so in found
            if np.any(so & among)
        ]

    def _has(self, kinds: Sequence[str], *, moved: bool = False) -> Bool[np.ndarray, " n"]:
        """In which layers a matrix of these kinds is the base's; `moved`: in another order."""
        result = np.zeros(len(self.own), bool)
        for table in (self.tables[kind] for kind in kinds if kind in self.tables):
            at = self.own, self.theirs
            close = table.cosines[at] >= CLOSE_COSINE * self.cosines
            result |= (table.evidence[at] > 0) & close & (table.moved[at] | (not moved))
        return result

    def _lacks(self, kinds: Sequence[str]) -> Bool[np.ndarray, " n"]:
        """In which layers matrices of all these kinds were compared, and none is the base's."""
        compared = [self.tables[k].compared[self.own] for k in kinds if k in self.tables]
        return np.asarray(np.all(compared, axis=0) & ~self._has(kinds) & bool(compared))
