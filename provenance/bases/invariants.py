"""Which base a model's layers come from when they do not align with it entry by entry.

The model's rows respond to the tokens' embeddings as the base's do (`base_invariants.py`), in
whatever basis its residual stream is. A cosine between two responses has a null distribution that
is measured on the pair of models itself: on all blocks but the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from ...arrays import Bool, Float64, Int64
from ...indexer import SIGNIFICANT
from ...results import count
from .base_invariants import HEAD_KINDS, NEURONS, BaseInvariants, Matrix, ModelRows, unit

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

Places = Int64[np.ndarray, " pairs"]


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
    changes = [f"residual stream {residual}"] if residual else []
    evidence = compare_rows(model, base, *anchors)
    own, theirs, p = match_layers(evidence)
    found = evidence.at(own, theirs)
    layers = [(model.layers[o], base.layers[t]) for o, t in zip(own, theirs, strict=True)]
    if p < SIGNIFICANT and len(own) >= LAYER_SHARE * len(model.layers):
        changes += describe_inside(found)
    else:
        layers, changes = [], ["token embeddings of the base, layers not", *changes]
    return Transformation(
        p=p,
        cosine=float(np.median(found.cosines.max(axis=0))) if len(own) else 0.0,
        layers=tuple(layers),
        changes=tuple(changes),
    )


def find_anchors(model: ModelRows, base: BaseInvariants) -> tuple[Matrix, Matrix] | None:
    """The model's and the base's rows of the first anchors, all that the model's vocabulary holds;
    None where its embeddings are not the base's."""
    rows = base.rows[base.rows < model.tokens]
    if model.width != base.anchors.shape[1] or len(rows) < FEWEST_ANCHORS:
        return None
    ours, theirs = model.anchors(rows), base.anchors[: len(rows)].astype(np.float32)
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


@dataclass(frozen=True, eq=False)
class InvariantEvidence:
    """By (kinds of matrix, layers of the model, layers of the base): evidence −ln p of what is
    sure, cosines, whether parts have other numbers in the base; `compared`: which layers of the
    model were. `at` some pairs of layers: by (kinds of matrix, pairs)."""

    kinds: Sequence[str]
    evidence: Float64[np.ndarray, "kinds ..."]
    cosines: Float64[np.ndarray, "kinds ..."]
    moved: Bool[np.ndarray, "kinds ..."]
    compared: Bool[np.ndarray, "kinds layers"]

    def at(self, own: Places, theirs: Places) -> InvariantEvidence:
        tables = self.evidence, self.cosines, self.moved
        evidence, cosines, moved = (table[:, own, theirs] for table in tables)
        return InvariantEvidence(self.kinds, evidence, cosines, moved, self.compared[:, own])

    @property
    def shown(self) -> Bool[np.ndarray, "kinds ..."]:
        """Whether a matrix is the base's, and as close as the closest of its layer."""
        is_close = self.cosines >= CLOSE_COSINE * self.cosines.max(axis=0)
        return np.asarray((self.evidence > 0) & is_close)


def compare_rows(
    model: ModelRows, base: BaseInvariants, anchors: Matrix, base_anchors: Matrix
) -> InvariantEvidence:
    """Of every kind of matrix. Neurons in another order count only where attention is the base's
    too: rows that were shuffled within every matrix leave neurons, but no head."""
    whitening = AnchorWhitening(base_anchors)
    kinds = [kind for kind in base.responses if kind in model.blocks]
    tables = [_compare_kind(model, base, kind, anchors, whitening) for kind in kinds]
    found = InvariantEvidence(kinds, *map(np.stack, zip(*tables, strict=True)))
    is_head = np.array([kind != NEURONS for kind in kinds])
    shown, compared = found.shown[is_head], found.compared[is_head].any(axis=0)
    if is_head.any() and shown.any(axis=(0, 2)).sum() < LAYER_SHARE * compared.sum():
        uncertain = found.moved & ~is_head[:, None, None]
        found.evidence[uncertain] = found.cosines[uncertain] = 0.0
    return found


def _compare_kind(
    model: ModelRows, base: BaseInvariants, kind: str, anchors: Matrix, whitening: AnchorWhitening
) -> tuple[np.ndarray, ...]:
    """Some parts of each layer against all that are kept: the tables of `InvariantEvidence`."""
    stored = base.responses[kind][..., : len(anchors)]
    n_base, n_parts, n_rows = stored.shape[:3]
    theirs, size = whitening.apply(stored).reshape(n_base * n_parts, -1).T, whitening.size * n_rows
    ours = {}
    for place, layer in enumerate(model.layers):
        parts = _parts_to_read(model, kind, layer, n_parts)
        rows = model.responses(kind, layer, parts, n_rows, anchors)
        if rows is not None:
            ours[place] = parts, whitening.apply(rows).reshape(len(parts), -1) / n_rows
    null = [vectors[:HITS] @ theirs for _, vectors in ours.values()]
    width = null_width(np.concatenate(null), size) if null else 1.0
    evidence, cosines = np.zeros((2, len(model.layers), n_base))
    moved = np.zeros(evidence.shape, bool)
    for place, (parts, vectors) in ours.items():
        by_part = (vectors @ theirs).reshape(-1, n_base, n_parts)
        shown = -log_p(by_part, size, width, comparisons=n_parts * len(parts))
        sure = shown.max(axis=2) > np.log(n_base / LAYER_P)
        n_sure = np.maximum(sure.sum(axis=0), 1)
        evidence[place] = (shown.max(axis=2) * sure).sum(axis=0)
        cosines[place] = (by_part.max(axis=2) * sure).sum(axis=0) / n_sure
        is_other = shown.argmax(axis=2) != np.asarray(parts)[:, None]
        moved[place] = (is_other & sure).sum(axis=0) > n_sure / 2
    return evidence, cosines, moved, np.isin(np.arange(len(model.layers)), list(ours))


def _parts_to_read(model: ModelRows, kind: str, layer: int, n_kept: int) -> Sequence[int]:
    """A head of each layer: of values the last, else the first, so that an order of heads that
    keeps one in its place shows in the other. Of neurons the first."""
    n_parts = model.n_parts(kind, layer)
    if not n_kept or (kind != NEURONS and n_parts != n_kept):
        return ()
    if kind == NEURONS:
        return range(min(n_parts, -(-HITS * n_parts // n_kept)))
    return (n_parts - 1,) if kind == "v" else (0,)


def match_layers(found: InvariantEvidence) -> tuple[Places, Places, float]:
    """The layers of a model that are a base's, as places in both; and p that half of its layers
    agree so much, by Rüger's combination, which holds under any dependence of the layers."""
    n_kinds, n_layers, n_base = found.evidence.shape
    best = found.evidence.sum(axis=0).argmax(axis=1)
    strongest = found.evidence.max(axis=0)[np.arange(n_layers), best]
    logarithms = np.minimum(0.0, np.log(n_kinds * n_base) - strongest)
    own = np.flatnonzero(logarithms < np.log(LAYER_P))
    n_needed = -(-n_layers // 2)
    p = n_layers / n_needed * np.exp(np.sort(logarithms)[n_needed - 1])
    return own, best[own], float(min(1.0, p))


def describe_inside(found: InvariantEvidence) -> list[str]:
    """What was done inside layers, in sentences, by the evidence at the pairs of them."""
    shown, kinds = found.shown, np.array(found.kinds)
    is_head, is_ffn = np.isin(kinds, HEAD_KINDS), kinds == NEURONS
    attention, ffn = shown[is_head].any(axis=0), shown[is_ffn].any(axis=0)
    every = np.ones_like(ffn)

    def lacks(*of: str) -> Bool[np.ndarray, " pairs"]:
        """In which layers matrices of all these kinds were compared, and none is the base's."""
        chosen = np.isin(kinds, of)
        none = found.compared[chosen].all(axis=0) & ~shown[chosen].any(axis=0)
        return np.asarray(none & chosen.any())

    moved = shown & found.moved
    keys = "queries and keys transformed inside heads, or replaced,"
    sentences = (
        ("heads permuted", attention, moved[is_head].any(axis=0)),
        (keys, attention, lacks("q", "k")),
        ("values transformed inside heads", attention, lacks("v")),
        ("FFN neurons permuted", ffn, moved[is_ffn].any(axis=0)),
        ("attention not the base's", every, lacks("q", "k", "v")),
        ("FFN not the base's", every, lacks(NEURONS)),
    )
    return [
        f"{what} in {np.sum(so & among)} of {count(int(np.sum(among)), 'layer')}"
        for what, among, so in sentences
        if np.any(so & among)
    ]
