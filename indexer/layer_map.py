"""Which layer of a base each layer of a model is, by correlations of runs of their weights.

Runs become normal scores of their ranks, so that under chance a correlation has the standard
deviation 1/√(n − 1) whatever values the weights have: values alone prove nothing, only their order
along the run does. Correlations are pooled over the roles of a layer and scaled by what pairs that
cannot belong together show.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

import numpy as np

from ..arrays import Float64
from .weight_samples import MatrixSample, natural_key, row_pieces

SIGNIFICANT = 1e-6
"""A model descends from a base where p is below; docs/trace.md has the measured rate of errors."""

LAYER_SIGNIFICANT = 1e-4
"""The same for one layer, once its model descends from the base."""

LEAST_P = 1e-12
"""No tail of a null was seen beyond: a smaller p is given as this."""

SHARE_OF_LAYERS = 0.25
"""The share of a model's layers that must be the base's."""

CONTINUES = 3.0
"""What a layer that follows the last one's is worth, in standard deviations: it decides between
layers of a base that are alike."""

MOST_Z = 40.0
"""A role's correlation counts no more than this many standard deviations: that of a copy has no
end."""

_SHIFTS = (1 / 3, 1 / 2, 2 / 3)
_MEDIAN_SQUARE = 0.4549
"""Of a standard normal variable."""

Pair = tuple[MatrixSample, MatrixSample]
"""A sampled matrix of a model, and the base's that it is."""

Group = tuple[Sequence[MatrixSample], Sequence[MatrixSample]]
"""The matrices of one group: a model's, and the base's."""

Scores = Float64[np.ndarray, "matrices entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMap:
    """The layers of a model beside those of a base.

    Attributes:
        p: Of so many layers correlating so much, by chance.
        layers: (stack, layer of the model, layer of the base), for those that are one of the
            base's.
        unmatched: (stack, layer of the model) of the others.
        base_layers: The base's layers, by stack.
        pairs: The sampled matrices that belong together, the model's first.
        correlations: By group of the base, the lower quartile over layers of the correlation.
        by_name: Whether names told which matrices to compare; else their shapes.
    """

    p: float
    layers: tuple[tuple[str, int, int], ...]
    unmatched: tuple[tuple[str, int], ...]
    base_layers: Mapping[str, tuple[int, ...]]
    pairs: tuple[Pair, ...]
    correlations: Mapping[str, float]
    by_name: bool

    @property
    def is_significant(self) -> bool:
        return self.p <= SIGNIFICANT

    @property
    def is_identity(self) -> bool:
        """Whether every layer is that of the same number, and none is missing or new."""
        n_base = sum(map(len, self.base_layers.values()))
        same = all(child == base for _, child, base in self.layers)
        return same and not self.unmatched and len(self.layers) == n_base

    @property
    def distance(self) -> float:
        """|child − base| / |base| over the pairs, what is sampled of them."""
        return _distance(self.pairs)

    def nearest_layers(self) -> dict[tuple[str, int], int]:
        """By stack and layer of the base the layer of the model that is it; of several the nearest,
        then the first."""
        pairs: dict[tuple[str, int, int], list[Pair]] = defaultdict(list)
        for child, own in self.pairs:
            pairs[stack_of(own.group), child.layer, own.layer].append((child, own))
        order = sorted(self.layers, key=lambda place: (_distance(pairs[place]), place))
        nearest: dict[tuple[str, int], int] = {}
        for stack, layer, base_layer in order:
            nearest.setdefault((stack, base_layer), layer)
        return nearest


def _distance(pairs: Iterable[Pair]) -> float:
    """Over the entries that are numbers in both."""
    difference = total = 0.0
    for child, base in pairs:
        n = min(len(child.values), len(base.values))
        ours, theirs = (m.values[:n].astype(np.float64) for m in (child, base))
        is_number = np.isfinite(ours) & np.isfinite(theirs)
        difference += float(np.square(ours - theirs)[is_number].sum())
        total += float(np.square(theirs[is_number]).sum())
    return math.sqrt(difference / total) if total else math.inf


def find_layer_map(
    child: Sequence[MatrixSample], base: Sequence[MatrixSample], *, among: int = 1
) -> LayerMap | None:
    """How a model's layers are a base's; None where no matrix has the shape of one of the base's.
    `among`: bases that are tried, for p. First by names, then by shapes alone."""
    search = _LayerSearch(base, among)
    named = search.named_map(child)
    if named is not None and named.is_significant:
        return named
    renamed = search.renamed(child)
    if renamed is None:
        return named
    matched, p = renamed
    by_shape = search.named_map(matched)
    if by_shape is None or (named is not None and p >= named.p):
        return named
    return replace(by_shape, p=p, by_name=False)


@dataclass(frozen=True, slots=True)
class _LayerSearch:
    """Correlations of models' runs with a base's; the scores of each run are computed once."""

    base: Sequence[MatrixSample]
    among: int
    _scores: dict[tuple[int, int], Float64[np.ndarray, " entries"]] = field(default_factory=dict)

    def scores(self, samples: Sequence[MatrixSample], n: int) -> Scores:
        """A row each; samples must live as long as this does."""
        rows = []
        for sample in samples:
            key = id(sample.values), n
            if key not in self._scores:
                self._scores[key] = _normal_scores(sample, n)
            rows.append(self._scores[key])
        return np.stack(rows)

    def z(
        self, ours: Sequence[MatrixSample], theirs: Sequence[MatrixSample], shift: float = 0.0
    ) -> Float64[np.ndarray, "rows columns"]:
        """Fisher's z of the correlation of every pair of runs, in standard deviations under chance;
        `shift`: of a run against one that is turned by this share of its length."""
        n = min(len(m.values) for m in (*ours, *theirs))
        cosines = self.scores(ours, n) @ np.roll(self.scores(theirs, n), round(shift * n), 1).T
        z = np.arctanh(np.clip(cosines, -1 + 1e-12, 1 - 1e-12)) * math.sqrt(max(1, n - 3))
        clipped: Float64[np.ndarray, "rows columns"] = np.clip(z, -MOST_Z, MOST_Z)
        return clipped

    def named_map(self, child: Sequence[MatrixSample]) -> LayerMap | None:
        ours, theirs = _by_group(child), _by_group(self.base)
        groups: dict[str, Group] = {
            name: (own, theirs[name])
            for name, own in ours.items()
            if name in theirs and own[0].shape == theirs[name][0].shape
        }
        if not groups:
            return None
        scale = self._null_scale(groups.values())
        layers: list[tuple[str, int, int]] = []
        unmatched: list[tuple[str, int]] = []
        log_ps: list[float] = []
        base_layers = {}
        for stack, names in groupby(sorted(groups, key=stack_of), key=stack_of):
            in_stack = [groups[name] for name in names]
            rows = sorted({m.layer for own, _ in in_stack for m in own})
            columns = sorted({m.layer for _, other in in_stack for m in other})
            base_layers[stack] = tuple(columns)
            z = self._pooled(in_stack, rows, columns) / scale
            log_p = _log_p(z)
            log_ps += log_p.min(axis=1).tolist()
            path = _best_path(z)
            for row, place in enumerate(path):
                if log_p[row, place] <= math.log(LAYER_SIGNIFICANT):
                    layers.append((stack, rows[row], columns[place]))
                else:
                    unmatched.append((stack, rows[row]))
        pairs = tuple(_pairs(layers, groups))
        return LayerMap(
            p=_combined(log_ps, self.among),
            layers=tuple(layers),
            unmatched=tuple(unmatched),
            base_layers=base_layers,
            pairs=pairs,
            correlations=_correlations(pairs),
            by_name=True,
        )

    def renamed(self, child: Sequence[MatrixSample]) -> tuple[list[MatrixSample], float] | None:
        """The model's matrices under the groups of the base's that they lie along, layers numbered
        in the order of their names; and p."""
        shapes = {m.shape for m in self.base}
        candidates = sorted(
            (m for m in child if m.shape in shapes), key=lambda m: natural_key(m.tensor)
        )
        if not candidates:
            return None
        log_ps, matched = [], []
        numbers: dict[str, int] = defaultdict(int)
        for shape in sorted({m.shape for m in candidates}):
            ours = [m for m in candidates if m.shape == shape]
            theirs = [m for m in self.base if m.shape == shape]
            scale = self._null_scale([(ours, theirs)])
            z = self.z(ours, theirs) / scale
            log_p = _log_p(z)
            log_ps += log_p.min(axis=1).tolist()
            for row, matrix in enumerate(ours):
                place = int(np.argmax(z[row]))
                if log_p[row, place] <= math.log(LAYER_SIGNIFICANT):
                    group = theirs[place].group
                    matched.append(replace(matrix, group=group, layer=numbers[group]))
                    numbers[group] += 1
        return matched, _combined(log_ps, 2 * self.among)

    def _pooled(
        self, groups: Sequence[Group], rows: Sequence[int], columns: Sequence[int]
    ) -> Float64[np.ndarray, "rows columns"]:
        """z of every pair of layers: the sum over the roles that both have, over the root of their
        number."""
        total, count = np.zeros((2, len(rows), len(columns)))
        for ours, theirs in groups:
            at = np.ix_(
                [rows.index(m.layer) for m in ours], [columns.index(m.layer) for m in theirs]
            )
            total[at] += self.z(ours, theirs)
            count[at] += 1
        pooled: Float64[np.ndarray, "rows columns"] = total / np.sqrt(np.maximum(count, 1))
        return pooled

    def _null_scale(self, groups: Collection[Group]) -> float:
        """How many times wider than chance correlations are that mean nothing: those of runs at
        shifted places, and of different roles of equal shape; by their median square, at least
        1."""
        z = [self.z(ours, theirs, shift).ravel() for ours, theirs in groups for shift in _SHIFTS]
        for first, (ours, _) in enumerate(groups):
            for second, (_, theirs) in enumerate(groups):
                if first != second and ours[0].shape == theirs[0].shape:
                    z.append(self.z(ours, theirs).ravel())
        squares = np.square(np.concatenate(z))
        return max(1.0, math.sqrt(float(np.median(squares)) / _MEDIAN_SQUARE))


def _combined(log_ps: Sequence[float], among: int) -> float:
    """A p for "a quarter of these are no chance", under any dependence: Rüger 1978, n/r · p₍ᵣ₎."""
    rank = max(1, math.ceil(SHARE_OF_LAYERS * len(log_ps)))
    log_p = sorted(log_ps)[rank - 1] + math.log(len(log_ps) / rank) + math.log(max(1, among))
    return min(1.0, max(LEAST_P, math.exp(min(0.0, log_p))))


def _best_path(z: Float64[np.ndarray, "rows columns"]) -> list[int]:
    """For each row the column on the path with the largest sum, by dynamic programming: columns may
    repeat, be left out and go back, and the next column is worth `CONTINUES`."""
    total, came_from = z[0].copy(), []
    for row in z[1:]:
        best = int(np.argmax(total))
        follows = np.concatenate([[-np.inf], total[:-1] + CONTINUES])
        came = np.where(follows >= total[best], np.arange(len(total)) - 1, best)
        total = np.maximum(follows, total[best]) + row
        came_from.append(came)
    path = [int(np.argmax(total))]
    for came in reversed(came_from):
        path.append(int(came[path[-1]]))
    return path[::-1]


def _log_p(z: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows columns"]:
    """The logarithm of the p-value of z, the largest of its row; at most 0 (Bonferroni)."""
    # here and below: SciPy takes as long to import as ten small models to index
    from scipy.special import log_ndtr

    corrected = log_ndtr(-z) + math.log(z.shape[1])
    log_p: Float64[np.ndarray, "rows columns"] = np.minimum(0.0, corrected)
    return log_p


def _normal_scores(sample: MatrixSample, n: int) -> Float64[np.ndarray, " entries"]:
    """The ranks of a run's entries less their row's median, as normal scores of unit length; equal
    entries share theirs, and a constant run, or one with NaN, is zero."""
    if not np.isfinite(sample.values[:n]).all():
        return np.zeros(n)
    from scipy.special import ndtri
    from scipy.stats import rankdata

    values = np.concatenate([piece - np.median(piece) for piece in row_pieces(sample, n)])
    # from SciPy 1.18 on, ranks of float32 are float32
    ranks = rankdata(values.astype(np.float64))
    scores: Float64[np.ndarray, " entries"] = ndtri((ranks - 0.5) / n)
    norm = float(np.linalg.norm(scores))
    return scores / norm if norm > 1e-9 else np.zeros(n)


def _by_group(samples: Iterable[MatrixSample]) -> dict[str, list[MatrixSample]]:
    """By group, those of the group's most frequent shape, in order of layer."""
    groups: dict[str, list[MatrixSample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample)
    chosen = {}
    for group, members in sorted(groups.items()):
        shapes = [m.shape for m in members]
        usual = max(sorted(set(shapes)), key=shapes.count)
        chosen[group] = sorted((m for m in members if m.shape == usual), key=lambda m: m.layer)
    return chosen


def stack_of(group: str) -> str:
    """Stack of a group of known role; of others, whose names say nothing, all are one."""
    return group.partition(".")[0] if "N" not in group.split(".") else ""


def _pairs(layers: Iterable[tuple[str, int, int]], groups: Mapping[str, Group]) -> Iterator[Pair]:
    by_layer = {
        name: [{m.layer: m for m in matrices} for matrices in group]
        for name, group in groups.items()
    }
    for stack, child_layer, base_layer in layers:
        for name, (ours, theirs) in by_layer.items():
            child, base = ours.get(child_layer), theirs.get(base_layer)
            if stack_of(name) == stack and child is not None and base is not None:
                yield child, base


def _correlations(pairs: Iterable[Pair]) -> dict[str, float]:
    by_group: dict[str, list[float]] = defaultdict(list)
    for child, base in pairs:
        n = min(len(child.values), len(base.values))
        cosine = float(_normal_scores(child, n) @ _normal_scores(base, n))
        by_group[base.group].append(cosine)
    return {group: float(np.quantile(values, 0.25)) for group, values in sorted(by_group.items())}


def describe_layers(found: LayerMap) -> list[str]:
    """What was done to the layers as a whole; empty where each is its base's of the same number."""
    changes = []
    for stack, base_layers in found.base_layers.items():
        pairs = [(child, base) for name, child, base in found.layers if name == stack]
        new = [child for name, child in found.unmatched if name == stack]
        where = f"{stack} " if len(found.base_layers) > 1 else ""
        changes += [f"{where}{line}" for line in describe_stack(pairs, new, base_layers)]
    return changes


def describe_stack(
    pairs: Sequence[tuple[int, int]], new: Sequence[int], base_layers: Sequence[int]
) -> Iterable[str]:
    """The same of one stack, of (layer, layer of the base), and of layers that are `new`."""
    counts = Counter(base for _, base in pairs)
    replaced = _replaced(pairs, new, base_layers)
    if replaced:
        yield f"{name_layers(sorted(replaced.values()))} replaced, or not recognised"
    new = [layer for layer in new if layer not in replaced]
    gone = {*counts, *replaced.values()}
    if dropped := [layer for layer in base_layers if layer not in gone]:
        yield f"{name_layers(dropped)} dropped"
    if repeated := sorted(layer for layer, n in counts.items() if n > 1):
        yield f"{name_layers(repeated)} duplicated"
    steps = [second - first for first, second in pairwise(base for _, base in sorted(pairs))]
    if any(step < 0 for step in steps):
        if not repeated:
            yield "layers in another order"
        elif 2 * sum(step in (0, 1) for step in steps) < len(steps):
            yield "layers interleaved"
    if new:
        yield f"{name_layers(new)} of the model not from the base"


def _replaced(
    pairs: Sequence[tuple[int, int]], new: Sequence[int], base_layers: Sequence[int]
) -> dict[int, int]:
    """Layers of the model that are none of the base's, but stand where one is missing: after its
    neighbour before, or before its neighbour behind."""
    known, missing = dict(pairs), set(base_layers) - {base for _, base in pairs}
    replaced: dict[int, int] = {}
    for step in (1, -1):
        for layer in sorted(new, reverse=step < 0):
            before = known.get(layer - step, replaced.get(layer - step))
            if layer not in replaced and before is not None and before + step in missing:
                replaced[layer] = before + step
                missing.discard(before + step)
    return replaced


def name_layers(layers: Sequence[int]) -> str:
    """Layers in words: `layer 3`, `layers 4, 7`, `layers 8 to 15`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    spans = [f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(spans)}"
