"""Which base a model's layers come from when they do not align with it entry by entry.

The model's rows respond to the tokens' embeddings as the base's do (`base_invariants.py`), in
whatever basis its residual stream is. A cosine between two responses has a null distribution that
is measured on the pair of models itself: on all blocks but the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from ...arrays import Float32, Float64, Int64
from .base_invariants import (
    BaseInvariants,
    gram_rows,
    hash_token,
    layer_forms,
    layer_gram,
    read_anchors,
    respond,
    spread,
    unit,
)
from .model_rows import HEAD_KINDS, Matrix, ModelRows

Residual = Literal["same", "permuted", "permuted with signs", "rotated", "unknown"]

SIGNIFICANT = 1e-6
"""p of a model below which its layers are the base's."""

LAYER_P = 1e-4
"""p of a layer below which it is the base's, after the number of comparisons."""

LAYER_SHARE = 0.5
"""Share of a model's layers that must be the base's: what is new in the rest is not explained."""

FEWEST_ANCHORS, FEW_ANCHORS = 16, 24
"""Anchors without which none are compared, and that tell whether rows have the same numbers."""

SAME_TOKENS, SAME_FEW_TOKENS = 0.5, 0.75
"""Agreement of Gram matrices from which embeddings are the base's: of other trainings on the same
texts 0.2 to 0.25, of fine-tunes above 0.9. Of a few anchors, chance makes more."""

ALIGNED = 0.5
"""Median cosine of embedding columns from which they are the base's columns."""

FEW_SIGNS = 0.02
"""Share of negated columns from which signs were flipped."""

SHRINKAGE = 1.0
"""Added to the eigenvalues of the anchors' Gram matrix, whose mean is 1, before responses are
whitened by it: with less, rounding in its smallest directions counts."""

FIRST_NEURONS, HITS = 8, 6
"""Neurons that are read of every layer; shared ones that are expected where they were permuted, and
how many are read follows from it."""

CONFIRMED_LAYERS = 2
"""Layers whose heads are read whole where q and k alone are not the base's."""

COMMON_FORMS = 4
"""Directions of the bilinear forms that all heads share, which show nothing of one."""

MOST_EVIDENCE = 90.0
"""−ln p that one kind of matrix can add to a layer."""

CLOSE_COSINE = 0.5
"""A kind of matrix whose cosine is this share of the layer's best, or more, is as it was; one that
was mixed inside its heads keeps less."""

CLOSE = 0.98
"""A layer of the base with this share of the best one's evidence may continue a run of layers."""


@dataclass(frozen=True, kw_only=True)
class Transformation:
    """What was done to a base. `layers`: (layer, layer of the base); `descends`: whether the layers
    are the base's; `changes`: plain sentences; `p`: that so much is shared by chance; `cosine`: the
    median over layers, between what the model and the base have in common."""

    descends: bool
    p: float
    cosine: float
    layers: tuple[tuple[int, int], ...]
    changes: tuple[str, ...]
    residual: Residual
    bytes_read: int


@dataclass(frozen=True, eq=False)
class Anchors:
    """The anchors that a model shares with a base: which, and the model's rows of them."""

    shared: Int64[np.ndarray, " n"]
    rows: Matrix


def find_transformation(model: ModelRows, base: BaseInvariants) -> Transformation | None:
    """What was done to the base to give this model; None where nothing of it is the base's."""
    if model.width != base.width:
        return None
    start = model.bytes_read
    anchors = find_anchors(model, base)
    residual = compare_residual(anchors, base) if anchors else "unknown"
    comparison = _Comparison(model, base)
    if anchors is not None:
        comparison.compare_responses(anchors)
        comparison.confirm_neurons()
    else:
        comparison.compare_grams()
    layers, p = comparison.result()
    descends = p < SIGNIFICANT and len(layers) >= LAYER_SHARE * len(model.layers)
    if residual == "unknown" and descends and anchors is not None:
        residual = "rotated"  # responses agree, so the embeddings do, in another basis
    if not descends and residual == "unknown":
        return None
    changes = [] if residual in ("same", "unknown") else [f"residual stream {residual}"]
    if not descends:
        changes.insert(0, "token embeddings of the base, layers not")
    else:
        changes += comparison.changes(layers)
        if residual == "unknown":
            changes.append("token embeddings are not the base's")
    return Transformation(
        descends=descends,
        p=p,
        cosine=comparison.cosine(layers),
        layers=tuple(sorted(layers.items())) if descends else (),
        changes=tuple(changes),
        residual=residual,
        bytes_read=model.bytes_read - start,
    )


def find_anchors(model: ModelRows, base: BaseInvariants) -> Anchors | None:
    """The anchors that the model has too: at the same rows, as a few of them tell, else at those of
    the same tokens; None where their embeddings are not the base's."""
    n_rows = model.tokens
    by_number = np.flatnonzero(base.rows < n_rows)
    few = by_number[spread(len(by_number), min(len(by_number), FEW_ANCHORS))]
    if _anchors_at(model, base, few, base.rows[few], SAME_FEW_TOKENS) is not None:
        anchors = _anchors_at(model, base, by_number, base.rows[by_number])
        if anchors is not None:
            return anchors
    if not base.tokens.any():
        return None
    rows = {hash_token(token): row for token, row in model.vocabulary.items()}
    hashes = base.tokens.tolist()
    by_token = [n for n, h in enumerate(hashes) if h and 0 <= rows.get(h, -1) < n_rows]
    found = np.array([rows[hashes[n]] for n in by_token], np.int64)
    return _anchors_at(model, base, np.array(by_token, np.int64), found)


def _anchors_at(
    model: ModelRows,
    base: BaseInvariants,
    shared: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " n"],
    least: float = SAME_TOKENS,
) -> Anchors | None:
    if len(shared) < FEWEST_ANCHORS:
        return None
    read = read_anchors(model, rows)
    agrees = _agreement(read, base.anchor_rows[shared]) >= least
    return Anchors(shared, read) if agrees else None


def _agreement(ours: Matrix, theirs: Matrix) -> float:
    """Correlation of two Gram matrices' upper triangles, without the base's largest directions,
    which models that were trained on like texts share."""
    first, second = (unit(rows - rows.mean(axis=0)) for rows in (ours, theirs))
    n = len(first)
    common = np.linalg.eigh((second @ second.T).astype(np.float64)).eigenvectors[:, -(n // 8) :]
    rest = np.eye(n) - common @ common.T
    pairs = np.triu_indices(n, 1)
    grams = [(rest @ (rows @ rows.T) @ rest)[pairs] for rows in (first, second)]
    left, right = (unit((gram - gram.mean()).astype(np.float32)) for gram in grams)
    return float(left @ right)


def compare_residual(anchors: Anchors, base: BaseInvariants) -> Residual:
    """How the model's residual stream lies to the base's, by the columns of shared anchors: linear
    assignment on |cos|. A rotation leaves no columns alike: unknown."""
    ours, theirs = (
        unit((rows - rows.mean(axis=0)).T)
        for rows in (anchors.rows, base.anchor_rows[anchors.shared])
    )
    if np.median((ours * theirs).sum(axis=1)) >= ALIGNED:
        return "same"
    cosines = ours @ theirs.T
    own, base_columns = linear_sum_assignment(-np.abs(cosines))
    assigned = cosines[own, base_columns]
    # among so many columns, the best of unrelated ones has a cosine of this size
    by_chance = np.sqrt(2 * np.log(len(ours)) / max(1, len(anchors.shared) - 1))
    if np.median(np.abs(assigned)) < max(ALIGNED, (1 + by_chance) / 2):
        return "unknown"
    return "permuted with signs" if np.mean(assigned < 0) >= FEW_SIGNS else "permuted"


@dataclass(frozen=True, eq=False)
class Whitening:
    """Responses to shared anchors as vectors with about as many independent entries as anchors."""

    lengths: Float32[np.ndarray, " n"]
    matrix: Float32[np.ndarray, "n n"]
    size: float

    @classmethod
    def of(cls, anchors: Matrix) -> Whitening:
        centred = anchors - anchors.mean(axis=0)
        gram = unit(centred) @ unit(centred).T
        values, vectors = np.linalg.eigh(gram.astype(np.float64))
        values = np.maximum(values, 0.0)
        matrix = (vectors / np.sqrt(values + SHRINKAGE)) @ vectors.T
        spectrum = values / (values + SHRINKAGE)
        size = spectrum.sum() ** 2 / max(float((spectrum**2).sum()), 1e-30)
        lengths = np.linalg.norm(centred, axis=1)
        lengths = np.maximum(lengths, max(1e-3 * lengths.mean(), 1e-30))
        return cls(lengths.astype(np.float32), matrix.astype(np.float32), float(size))

    def apply(self, responses: np.ndarray) -> np.ndarray:
        """Unit vectors along the last axis."""
        centred = (responses - responses.mean(axis=-1, keepdims=True)) / self.lengths
        return unit((centred - centred.mean(axis=-1, keepdims=True)) @ self.matrix)

    def apply_twice(self, forms: np.ndarray) -> np.ndarray:
        """The same on both sides of bilinear forms; flattened unit vectors."""
        sided = forms
        for _ in range(2):
            sided = (sided - sided.mean(axis=-1, keepdims=True)) / self.lengths
            sided = ((sided - sided.mean(axis=-1, keepdims=True)) @ self.matrix).swapaxes(-1, -2)
        return unit(sided.reshape(*forms.shape[:-2], -1))


def log_p(cosines: np.ndarray, size: float, *, comparisons: int) -> np.ndarray:
    """ln p of cosines between vectors of `size` independent entries, (model's blocks, base's), by
    Fisher's transform; the null's width is measured on all but each block's best."""
    bounded = np.clip(cosines, -0.99999, 0.99999)
    z = np.arctanh(bounded) * np.sqrt(max(size - 3.0, 1.0))
    rest = np.sort(np.abs(z), axis=1)[:, :-1]
    width = 1.4826 * float(np.median(rest)) if rest.size >= 8 else 1.0
    logarithms: Float64[np.ndarray, ...] = norm.logsf(z / max(width, 1.0)) + np.log(comparisons)
    bounded_p: Float64[np.ndarray, ...] = np.minimum(logarithms, 0.0)
    return bounded_p


@dataclass(eq=False)
class _Comparison:
    """Tables by kind, (layers of the model, layers of the base), NaN where nothing was compared:
    evidence −ln p, cosines, and whether the best head has another number in the base."""

    model: ModelRows
    base: BaseInvariants
    evidence: dict[str, Float64[np.ndarray, "layers base_layers"]] = field(default_factory=dict)
    cosines: dict[str, Float64[np.ndarray, "layers base_layers"]] = field(default_factory=dict)
    moved: dict[str, Float64[np.ndarray, "layers base_layers"]] = field(default_factory=dict)

    def compare_responses(self, anchors: Anchors) -> None:
        whitening = Whitening.of(self.base.anchor_rows[anchors.shared])
        for kind in self.base.heads:
            if kind in self.model.blocks:
                self._compare_heads(kind, anchors, whitening)
        if self.base.neuron_kind and self.base.neuron_kind == self.model.neurons:
            self._compare_neurons(anchors, whitening)
            self._look_for_neurons(anchors, whitening)
        self._compare_forms(anchors)

    def _compare_heads(self, kind: str, anchors: Anchors, whitening: Whitening) -> None:
        """A head of each layer against all heads of the base: of values the last, else the first,
        so that an order of heads that keeps one in its place shows in the other."""
        stored = self.base.responses[kind][..., anchors.shared]
        n_heads, n_rows = stored.shape[1:3]
        theirs = whitening.apply(stored.astype(np.float32))
        places, heads, ours = [], [], []
        for place, layer in enumerate(self.model.layers):
            block = self.model.blocks[kind].get(layer)
            if block is None or block.heads != n_heads:
                continue
            head = block.heads - 1 if kind in ("v", "o") else 0
            wanted = self.model.head_rows(kind, layer, head, n_rows)
            if len(wanted) == n_rows and self.model.fits(wanted):
                rows = self.model.read(wanted)
                ours.append(respond(self.model, kind, layer, rows, anchors.rows))
                places.append(place)
                heads.append(head)
        if not ours:
            return
        own = whitening.apply(np.stack(ours))
        cosines = np.einsum("crt,bhrt->cbh", own, theirs) / n_rows
        self._add_heads(kind, places, cosines, whitening.size * n_rows, np.array(heads))

    def _add_heads(
        self, kind: str, places: Sequence[int], cosines: np.ndarray, size: float, heads: np.ndarray
    ) -> None:
        """The best head's evidence of each layer of the base; `cosines`: (layers, base_layers,
        heads)."""
        p = log_p(cosines.reshape(len(cosines), -1), size, comparisons=cosines.shape[2])
        self._add(kind, places, -p.reshape(cosines.shape).min(axis=2), cosines.max(axis=2))
        self.moved[kind] = np.zeros_like(self.evidence[kind])
        self.moved[kind][places] = cosines.argmax(axis=2) != heads[:, None]

    def _add(
        self, kind: str, places: Sequence[int], evidence: np.ndarray, cosines: np.ndarray
    ) -> None:
        empty = np.full((len(self.model.layers), len(self.base.layers)), np.nan)
        self.evidence[kind], self.cosines[kind] = empty, empty.copy()
        self.evidence[kind][places] = np.minimum(evidence, MOST_EVIDENCE)
        self.cosines[kind][places] = cosines

    def _neuron_responses(
        self, layers: Sequence[int], n_rows: int, anchors: Anchors, whitening: Whitening
    ) -> tuple[list[int], np.ndarray]:
        """Places of the layers whose neurons could be read, and (layers, neurons, anchors)."""
        kind, places, ours = self.base.neuron_kind, [], []
        for place in layers:
            layer = self.model.layers[place]
            if layer not in self.model.blocks[kind]:
                continue
            wanted = self.model.neuron_rows(layer, n_rows)
            if len(wanted) == n_rows and self.model.fits(wanted):
                rows = self.model.read(wanted)
                ours.append(respond(self.model, kind, layer, rows, anchors.rows))
                places.append(place)
        return places, whitening.apply(np.stack(ours)) if ours else np.zeros((0, n_rows, 1))

    def _compare_neurons(self, anchors: Anchors, whitening: Whitening) -> None:
        """The first neurons of each layer, in their places."""
        stored = self.base.responses[self.base.neuron_kind][..., anchors.shared]
        n_rows = min(FIRST_NEURONS, stored.shape[1])
        everywhere = range(len(self.model.layers))
        places, ours = self._neuron_responses(everywhere, n_rows, anchors, whitening)
        if not places or not n_rows:
            return
        theirs = whitening.apply(stored[:, :n_rows].astype(np.float32))
        cosines = np.einsum("cnt,bnt->cb", ours, theirs) / n_rows
        evidence = -log_p(cosines, whitening.size * n_rows, comparisons=1)
        self._add("neurons", places, evidence, cosines)

    def _look_for_neurons(self, anchors: Anchors, whitening: Whitening) -> None:
        """More neurons, in any order, of layers whose first ones are not the base's."""
        stored = self.base.responses[self.base.neuron_kind][..., anchors.shared]
        n_base, kept, _ = stored.shape
        if not kept or "neurons" not in self.evidence:
            return
        missing = [p for p in range(len(self.model.layers)) if not self._has("neurons", p)]
        n_rows = min(self.base.neurons, -(-HITS * self.base.neurons // kept))
        places, ours = self._neuron_responses(
            _spread_order(missing), max(n_rows, FIRST_NEURONS), anchors, whitening
        )
        theirs = whitening.apply(stored.astype(np.float32)).reshape(n_base * kept, -1)
        evidence, cosines = np.zeros((2, len(places), n_base))
        for n, rows in enumerate(ours):
            cosine = rows @ theirs.T
            p = -log_p(cosine, whitening.size, comparisons=n_base * kept)
            best, sure = p.argmax(axis=1), p.max(axis=1) > -np.log(LAYER_P)
            np.add.at(evidence[n], best[sure] // kept, p.max(axis=1)[sure])
            np.maximum.at(cosines[n], best[sure] // kept, cosine.max(axis=1)[sure])
        self._add("permuted neurons", places, evidence, cosines)

    def _compare_forms(self, anchors: Anchors) -> None:
        """Heads whole, of layers where neither q nor k is the base's."""
        at = np.searchsorted(self.base.form_anchors, anchors.shared)
        at = np.minimum(at, len(self.base.form_anchors) - 1)
        usable = np.flatnonzero(self.base.form_anchors[at] == anchors.shared)
        if (
            len(usable) < 4
            or not self.base.forms.any()
            or "q" not in self.evidence
            or "k" not in self.evidence
        ):
            return
        inside = at[usable]
        stored = self.base.forms[:, :, inside][..., inside].astype(np.float32)
        whitening = Whitening.of(self.base.anchor_rows[anchors.shared[usable]])
        theirs = whitening.apply_twice(stored)
        unsure: list[int] = []
        confirming: list[int] = []
        for place in range(len(self.model.layers)):
            if not self._has("q", place) and not self._has("k", place):
                known = any(self._has(kind, place) for kind in self.evidence)
                (confirming if known else unsure).append(place)
        places, ours = [], []
        for place in [*_spread_order(unsure), *_spread_order(confirming)[:CONFIRMED_LAYERS]]:
            layer = self.model.layers[place]
            wanted = [
                row
                for kind in ("q", "k")
                if layer in self.model.blocks[kind]
                for row in self.model.head_rows(kind, layer, 0, self.model.width)
            ]
            if not self.model.fits(wanted):
                continue
            form = layer_forms(self.model, layer, [0], anchors.rows[usable])
            if form is not None:
                ours.append(whitening.apply_twice(form)[0])
                places.append(place)
        if places:
            own, theirs = _without_common(np.stack(ours), theirs)
            cosines = np.einsum("ct,bht->cbh", own, theirs)
            self._add_heads("forms", places, cosines, whitening.size**2, np.zeros(len(places)))

    def compare_grams(self) -> None:
        """Cosines between rows of several matrices, which need no embeddings."""
        theirs = self.base.grams.astype(np.float32)
        theirs = unit(theirs - theirs.mean(axis=1, keepdims=True))
        places, ours = [], []
        for place in _spread_order(range(len(self.model.layers))):
            layer = self.model.layers[place]
            wanted = gram_rows(self.model, layer)
            if wanted is not None and self.model.fits(chain.from_iterable(wanted.values())):
                gram = layer_gram(self.model, layer)
                ours.append(unit(gram - gram.mean()))
                places.append(place)
        if places and theirs.shape[1] == len(ours[0]):
            cosines = np.stack(ours) @ theirs.T
            evidence = -log_p(cosines, float(theirs.shape[1]), comparisons=1)
            self._add("grams", places, evidence, cosines)

    def confirm_neurons(self) -> None:
        """Drop what only neurons in another order show, unless attention is the base's too: rows
        that were shuffled within every matrix leave neurons, but no head."""
        kinds = [kind for kind in (*HEAD_KINDS, "forms") if kind in self.evidence]
        compared, shown = set(), set()
        for place in range(len(self.model.layers)):
            if any(self._has(kind, place) for kind in kinds):
                shown.add(place)
            if any(not np.isnan(self.evidence[kind][place]).all() for kind in kinds):
                compared.add(place)
        if "forms" in kinds:  # what decides where q, k and v alone do not
            whole = ~np.isnan(self.evidence["forms"]).all(axis=1)
            compared = shown | set(np.flatnonzero(whole).tolist())
        if len(shown) < LAYER_SHARE * len(compared):
            self.evidence.pop("permuted neurons", None)
            self.cosines.pop("permuted neurons", None)

    def _has(self, kind: str, place: int, base_place: int | None = None) -> bool:
        """Whether evidence of a kind shows a layer to be (that) one of the base's."""
        if kind not in self.evidence:
            return False
        row = self.evidence[kind][place]
        at = int(np.nan_to_num(row).argmax()) if base_place is None else base_place
        if not row[at] > -np.log(LAYER_P) + np.log(len(self.base.layers)):
            return False
        best = max(np.nan_to_num(table[place, at]) for table in self.cosines.values())
        return bool(self.cosines[kind][place, at] >= CLOSE_COSINE * best)

    def _places(self) -> dict[int, tuple[int, float]]:
        """By place of a layer that is the base's: the base's place, and ln p."""
        if not self.evidence:
            return {}
        tables = np.stack([np.nan_to_num(table) for table in self.evidence.values()])
        total, strongest = tables.sum(axis=0), tables.max(axis=0)
        comparisons = np.log(len(tables) * len(self.base.layers))
        result: dict[int, tuple[int, float]] = {}
        last = -1
        for place, row in enumerate(total):
            best = int(row.argmax())
            if last + 1 < len(row) and row[last + 1] >= CLOSE * row[best]:
                best = last + 1
            logarithm = min(0.0, comparisons - float(strongest[place, best]))
            result[place] = best, logarithm
            last = best if logarithm < np.log(LAYER_P) else -1
        return result

    def result(self) -> tuple[dict[int, int], float]:
        """The layer map by the layers' numbers, and p of the model: that half of its layers agree
        so much, by Rüger's combination, which holds under any dependence of the layers."""
        places = self._places()
        if not places:
            return {}, 1.0
        layers = {
            self.model.layers[place]: self.base.layers[best]
            for place, (best, logarithm) in places.items()
            if logarithm < np.log(LAYER_P)
        }
        n_needed = -(-len(places) // 2)
        needed = sorted(logarithm for _, logarithm in places.values())[n_needed - 1]
        return layers, float(min(1.0, len(places) / n_needed * np.exp(needed)))

    def _at(self, layers: Mapping[int, int]) -> list[tuple[int, int]]:
        return [
            (self.model.layers.index(own), self.base.layers.index(theirs))
            for own, theirs in sorted(layers.items())
        ]

    def cosine(self, layers: Mapping[int, int]) -> float:
        best = [
            max(np.nan_to_num(table[place]) for table in self.cosines.values())
            for place in self._at(layers)
        ]
        return float(np.median(best)) if best else 0.0

    def changes(self, layers: Mapping[int, int]) -> list[str]:
        """What was done inside layers, in sentences."""
        at = self._at(layers)
        attention = [p for p in at if any(self._has(k, *p) for k in (*HEAD_KINDS, "forms"))]
        ffn = [p for p in at if self._has("neurons", *p) or self._has("permuted neurons", *p)]
        # whole heads are read in few layers: where none of these is the base's, q, k, v count alone
        is_form = any(self._has("forms", *p) for p in at)
        lost = ("q", "k", "v", "forms") if is_form else ("q", "k", "v")
        lost_ffn = ("neurons", "permuted neurons")
        keys = _KEYS if is_form else f"{_KEYS}, or replaced,"
        sentences = (
            ("heads permuted", attention, self._moved),
            (keys, attention, partial(self._lacks, ("q", "k"))),
            ("values transformed inside heads", attention, partial(self._lacks, ("v",))),
            ("FFN neurons permuted", ffn, partial(self._has, "permuted neurons")),
            ("attention not the base's", self._known(lost, at), partial(self._lacks, lost)),
            ("FFN not the base's", self._known(lost_ffn, at), partial(self._lacks, lost_ffn)),
        )
        changes = []
        for what, compared, is_so in sentences:
            n_layers = sum(is_so(*p) for p in compared)
            those = "" if len(compared) == len(at) else " that could be compared"
            if n_layers:
                changes.append(f"{what} in {n_layers} of {len(compared)} layers{those}")
        return changes

    def _lacks(self, kinds: Sequence[str], place: int, base_place: int) -> bool:
        """Whether matrices of all these kinds were compared, and none is the base's."""
        have = any(self._has(kind, place, base_place) for kind in kinds)
        return not have and self._is_known(kinds, place, base_place)

    def _known(
        self, kinds: Sequence[str], places: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        return [place for place in places if self._is_known(kinds, *place)]

    def _is_known(self, kinds: Sequence[str], place: int, base_place: int) -> bool:
        """Whether matrices of all these kinds were compared, or one is the base's."""
        tables = [self.evidence[kind] for kind in kinds if kind in self.evidence]
        compared = [not np.isnan(table[place, base_place]) for table in tables]
        have = any(self._has(kind, place, base_place) for kind in kinds)
        return have or (bool(tables) and all(compared))

    def _moved(self, place: int, base_place: int) -> bool:
        """Whether a head that is recognised has another number than in the base."""
        return any(
            self._has(kind, place, base_place) and table[place, base_place]
            for kind, table in self.moved.items()
        )


_KEYS = "queries and keys transformed inside heads"


def _without_common(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors (…, n) without the directions that all of the base's heads share."""
    flat = theirs.reshape(-1, theirs.shape[-1])
    n_common = min(COMMON_FORMS, len(flat) // 8)
    common = np.linalg.svd(flat, full_matrices=False).Vh[:n_common]
    left, right = (unit(forms - (forms @ common.T) @ common) for forms in (ours, theirs))
    return left, right


def _spread_order(places: Sequence[int]) -> list[int]:
    """Places in an order whose beginning is spread over all of them, for when not all can be read:
    by the bits of their ranks in reverse."""
    bits = max(1, len(places) - 1).bit_length()
    ranks = sorted(range(len(places)), key=lambda rank: f"{rank:0{bits}b}"[::-1])
    return [places[rank] for rank in ranks]
