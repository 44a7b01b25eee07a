"""A family's clusters: dense groups, their names, how they agree with its labels.

Distance is the chord √(2 − 2·score) between two models as points of the unit sphere, with the
scores that find-similar and eval show; nothing is read from a map. HDBSCAN (Campello, Moulavi,
Sander 2013) is our own: equal mutual reachability distances are the rule here, and the paper
removes equal edges together (section 3, step 4.2.1). Libraries, scikit-learn among them, remove
them one by one in the order of an unstable sort, which the processor and the input decide.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from math import log
from typing import Any

import numpy as np

from ..arrays import Float64, Int64
from ..records import ModelRecord
from ..store import Catalog
from .evaluation import family_silhouette, mean_silhouette
from .family_scores import TIE_DECIMALS, Codes, Rows, bounded
from .labelled import WHOLE_FAMILY, LabelledModels, read_family
from .layout import COMPONENTS, sample_places
from .responses import WordNames
from .suggestions import UNKNOWN_SHARE, ModelSample, suggest_datasets
from .trained_on import compare_kept, kept_data_sets

Points = Float64[np.ndarray, "points axes"]
Labels = Int64[np.ndarray, " points"]
ToAll = Float64[np.ndarray, "rows points"]

NOISE = -1

SAME_SCORE = 1e-4
"""Scores closer than this are equal: so well processors agree (docs/reliability.md)."""

FINEST = math.sqrt(2 * SAME_SCORE)
"""Smallest chord that differs from 0."""

SAME_DISTANCE = 1e-9
"""Distances closer than this share of themselves are equal."""

BLOCK = 64
"""Rows of distances that are computed at a time: they stay in the processor's cache."""

Distances = Callable[[Rows], Callable[[Rows], ToAll]]
"""Given some points, gives what computes the distances of others to them, by rows."""

Edge = tuple[float, int, int]


@dataclass(slots=True)
class _Cluster:
    """A node of the condensed tree, of `size` points where it is largest; born at 1/distance, and
    with mass: Σ of 1/distance at which its points leave it or are handed to a child."""

    children: Sequence[int]
    size: int = 0
    mass: float = 0.0
    born: float = 0.0
    parent: int | None = None

    @property
    def stability(self) -> float:
        """Excess of mass (the paper's equation 3)."""
        return self.mass - self.size * self.born


def hdbscan(distances: Distances, core: Float64[np.ndarray, " points"], min_size: int) -> Labels:
    """Each point's cluster, 0 … n − 1, by excess of mass, or `NOISE`; the root is no cluster.

    Where nothing else is one, points that lie together within `FINEST` are: copies of one model.
    `core` is each point's distance to the last of its `min_size` nearest, the point itself counted.
    Time grows with the square of the points.
    """
    tree, n_points = sorted(_spanning_tree(distances, core)), len(core)
    clusters, first_cluster = _condense(tree, n_points, min_size)
    if len(clusters) == 1:
        _, copies = _condense([edge for edge in tree if edge[0] == FINEST], n_points, min_size)
        return copies
    return np.asarray(np.array(_select(clusters), dtype=np.int64)[first_cluster])


def _spanning_tree(distances: Distances, core: Float64[np.ndarray, " points"]) -> Iterator[Edge]:
    """The edges of a minimum spanning tree of mutual reachability (Prim 1957).

    Of the points that were outside when they were last counted, those that have come in since have
    an infinite core: nothing is near them. They are counted again once they are an eighth.
    """
    point, outside = 0, np.arange(len(core))
    nearest = np.full(len(core), np.inf)
    towards = np.zeros(len(core), dtype=np.int64)
    place, n_counted = 0, 0
    reached, to_outside = core.copy(), distances(outside)
    for n_inside in range(1, len(core)):
        nearest[place] = reached[place] = np.inf
        if 8 * (n_inside - n_counted) > len(outside):
            stays = np.isfinite(reached)
            outside, nearest, towards = outside[stays], nearest[stays], towards[stays]
            reached, to_outside, n_counted = reached[stays], distances(outside), n_inside
        reach = to_outside(np.array([point]))[0]
        np.maximum(reach, reached, out=reach)
        np.maximum(reach, core[point], out=reach)
        nearer = np.flatnonzero(reach < nearest)
        nearest[nearer], towards[nearer] = reach[nearer], point
        place = int(nearest.argmin())
        point, before = int(outside[place]), int(towards[place])
        yield max(float(nearest[place]), FINEST), before, point


def _condense(tree: Sequence[Edge], n_points: int, min_size: int) -> tuple[list[_Cluster], Labels]:
    """The condensed tree, children first, and the cluster that each point joins first, or `NOISE`;
    whatever the edges of one length connect is connected at once."""
    from scipy.cluster.hierarchy import DisjointSet

    clusters: list[_Cluster] = []
    first_cluster = np.full(n_points, NOISE, dtype=np.int64)
    # the cluster that a set of connected points is; of those that are none all points are loose
    sets, cluster_of = DisjointSet(range(n_points)), dict[int, int]()
    for distance, edges in _by_distance(tree):
        roots = dict.fromkeys(sets[point] for _, *ends in edges for point in ends)
        loose = {root: sets.subset(root) for root in roots if root not in cluster_of}
        for _, left, right in edges:
            sets.merge(left, right)
        joined: dict[int, list[int]] = {}
        for root in roots:
            joined.setdefault(sets[root], []).append(root)
        for whole, parts in joined.items():
            points = [point for part in parts for point in loose.get(part, ())]
            children = [cluster_of.pop(part) for part in parts if part in cluster_of]
            size = len(points) + sum(clusters[child].size for child in children)
            if size >= min_size:
                number = _grown(children, size, 1 / distance, clusters)
                cluster_of[whole] = first_cluster[points] = number
    return clusters, first_cluster


def _by_distance(tree: Sequence[Edge]) -> Iterator[tuple[float, list[Edge]]]:
    group: list[Edge] = []
    for edge in tree:
        if group and edge[0] > group[0][0] * (1 + SAME_DISTANCE):
            yield group[0][0], group
            group = []
        group.append(edge)
    if group:
        yield group[0][0], group


def _grown(children: Sequence[int], size: int, density: float, clusters: list[_Cluster]) -> int:
    """The one child, which takes loose points in, or a new cluster of two or none, appended."""
    number = children[0] if len(children) == 1 else len(clusters)
    if len(children) != 1:
        clusters.append(_Cluster(children=children))
        for child in children:
            clusters[child].parent, clusters[child].born = number, density
    cluster = clusters[number]
    cluster.mass += (size - cluster.size) * density
    cluster.size = size
    return number


def _select(clusters: Sequence[_Cluster]) -> list[int]:
    """Each condensed cluster's label, or `NOISE` (the paper's algorithm 3): it is selected, with
    all that is below it, unless what is below is more stable."""
    best = [0.0] * len(clusters)
    selected = [False] * len(clusters)
    for number, cluster in enumerate(clusters):
        below = sum(best[child] for child in cluster.children)
        best[number] = max(cluster.stability, below)
        is_stable = cluster.stability >= below * (1 - SAME_DISTANCE)
        selected[number] = is_stable and cluster.parent is not None
    labels = [NOISE] * len(clusters)
    fresh = count()
    for number in reversed(range(len(clusters))):
        parent = clusters[number].parent
        if parent is not None and labels[parent] != NOISE:
            labels[number] = labels[parent]
        elif selected[number]:
            labels[number] = next(fresh)
    return labels


SAMPLE = 20_000
"""Models that HDBSCAN sees of a larger family: its time grows with their square."""

STRAYS = 0.05
"""Share of a cluster's own members whose distance from the others says nothing about it."""

CONFIDENCE = 0.95
"""With which a joining point is no farther from its cluster than the last of those."""


def find_clusters(family: LabelledModels, min_size: int) -> Codes:
    """A cluster's number for every model, or `NOISE`: the largest is 0, then by first id.

    Above `WHOLE_FAMILY` models distances are those of the family's main axes; above `SAMPLE`, that
    many picked by their ids are clustered, and another one joins its nearest one's cluster where it
    is as near as the cluster's members are to each other.
    """
    every = np.arange(len(family.ids))
    if len(every) < 2 * min_size:
        return np.full(len(every), NOISE, dtype=np.int64)
    if len(every) <= WHOLE_FAMILY:
        scores = family.unrounded_between(every, every)
        # exactly symmetric, and 0 on the diagonal
        chords = np.sqrt(np.maximum(2.0 - (scores + scores.T), 0.0))
        np.fill_diagonal(chords, 0.0)
        core = np.partition(chords, min_size - 1, axis=1)[:, min_size - 1]
        numbers = hdbscan(lambda some: lambda rows: chords[np.ix_(rows, some)], core, min_size)
    else:
        numbers = _in_principal_axes(family, min_size)
    return _by_size(numbers)


def _in_principal_axes(family: LabelledModels, min_size: int) -> Codes:
    """Clusters in few dimensions and from a sample of the models."""
    from sklearn.neighbors import NearestNeighbors

    assert family.axes is not None
    points, places = family.axes.points.astype(np.float64), sample_places(family.ids, SAMPLE)
    # strangers have little of any axis: left short, they would lie close together
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    smallest = max(2, round(min_size * len(places) / len(points)))
    sampled = points[places]
    nearest = NearestNeighbors(n_neighbors=smallest, algorithm="brute").fit(sampled)
    core = nearest.kneighbors(sampled)[0][:, -1]
    numbers = hdbscan(_chords_among(sampled), core, smallest)
    codes = np.full(len(points), NOISE, dtype=np.int64)
    codes[places] = numbers
    rest = np.setdiff1d(np.arange(len(points)), places)
    codes[rest] = _join(points[rest], sampled, numbers)
    return codes


def _chords_among(points: Points) -> Distances:
    def chords_to(some: Rows) -> Callable[[Rows], ToAll]:
        others = np.ascontiguousarray(points[some].T)

        def chords(rows: Rows) -> ToAll:
            squares = points[rows] @ others
            np.subtract(2.0, np.multiply(squares, 2.0, out=squares), out=squares)
            np.maximum(squares, 0.0, out=squares)
            squares[rows[:, None] == some] = 0.0
            return np.asarray(np.sqrt(squares, out=squares))

        return chords

    return chords_to


def _join(
    points: Points,
    sample: Float64[np.ndarray, "sample axes"],
    numbers: Int64[np.ndarray, " sample"],
) -> Labels:
    """The cluster of each point's nearest of the sample, where it is near enough."""
    codes = np.full(len(points), NOISE, dtype=np.int64)
    least = np.array(
        [_joining_cosine(sample[numbers == code]) for code in range(numbers.max() + 1)]
    )
    if not len(least):
        return codes
    for start in range(0, len(points), BLOCK):
        cosines = points[start : start + BLOCK] @ sample.T
        code = numbers[cosines.argmax(axis=1)]
        near = (code != NOISE) & (cosines.max(axis=1) >= least[code] - SAME_SCORE)
        codes[start : start + BLOCK][near] = code[near]
    return codes


def _joining_cosine(members: Points) -> float:
    """The cosine with its nearest member from which a point joins their cluster; one member more or
    less moves it by one rank among the members.

    An upper bound of the quantile `STRAYS` with `CONFIDENCE`, or the largest value: an order
    statistic, whatever the distribution (David, Nagaraja 2003, section 7.1).
    """
    from scipy.stats import binom

    nearest = np.empty(len(members))
    for start in range(0, len(members), BLOCK):
        cosines = members[start : start + BLOCK] @ members.T
        own = np.arange(len(cosines))
        cosines[own, start + own] = -1.0
        nearest[start : start + BLOCK] = cosines.max(axis=1)
    return float(np.sort(nearest)[int(binom.ppf(CONFIDENCE, len(nearest), STRAYS))])


def _by_size(numbers: Codes) -> Codes:
    """The same clusters, numbered by size, then by their first model."""
    values, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    ranked = sorted(
        (-count, place, value)
        for value, place, count in zip(values, first, counts, strict=True)
        if value != NOISE
    )
    codes = np.full(len(numbers), NOISE, dtype=np.int64)
    for code, (_, _, value) in enumerate(ranked):
        codes[numbers == value] = code
    return codes


TERMS_SHOWN = 5

COMMON = 0.5
_TERM = re.compile(r"[a-z][a-z0-9+]{2,}")


def _terms(*texts: str) -> frozenset[str]:
    return frozenset(_TERM.findall(" ".join(texts).lower().replace("_", " ")))


_UNINFORMATIVE = _terms(
    "adapter base causal checkpoint cls data fine finetuned finetuning full lora",
    "model models output peft results saved seq tuned tuning",
)
"""Terms of how models are made and stored, whatever they were trained on."""


def terms_of(record: ModelRecord) -> frozenset[str]:
    """Terms of a model's id, task and raw label, without those of its base's name."""
    terms = _terms(record.id, record.task or "", record.dataset_raw or "") - _UNINFORMATIVE
    of_base = _terms(record.base)
    return frozenset(t for t in terms if not any(other.startswith(t) for other in of_base))


def name_clusters(
    clusters: Sequence[Sequence[str]],
    records: Mapping[str, ModelRecord],
    words_of: Callable[[Sequence[str]], Sequence[str]],
) -> list[dict[str, Any]]:
    """The documents of clusters of models by their ids: a name, no two of which are alike; the
    models' datasets and authors with their numbers, most frequent first; words that models answer
    to together, as `words_of` gives them; terms of most of their names and of few other models'."""
    terms_by_model = {id: terms_of(record) for id, record in records.items()}
    frequency = Counter(term for terms in terms_by_model.values() for term in terms)
    named: list[dict[str, Any]] = []
    for members in clusters:
        datasets = _count(records[id].dataset for id in members)
        authors = _count(records[id].author for id in members)
        inside = Counter(term for id in members for term in terms_by_model[id])
        terms = _distinctive(inside, frequency, len(members), len(records))
        words = list(words_of(members))
        named.append(
            {
                "cluster": len(named),
                "name": _name(datasets, words, terms, authors, len(members)),
                "size": len(members),
                "datasets": [{"dataset": name, "models": n} for name, n in datasets],
                "authors": [{"author": name, "models": n} for name, n in authors],
                "words": words,
                "terms": terms,
                "models": members,
            }
        )
    _tell_names_apart(named)
    return named


def _count(values: Iterable[str | None]) -> tuple[tuple[str, int], ...]:
    counts = Counter(value for value in values if value is not None)
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _distinctive(
    inside: Mapping[str, int], frequency: Mapping[str, int], size: int, n_models: int
) -> list[str]:
    """Terms of at least half the members by tf·idf: their share here × log(1 / their share)."""
    weights = {
        term: n / size * log(n_models / frequency[term])
        for term, n in inside.items()
        if n >= max(2, COMMON * size) and n / size > frequency[term] / n_models
    }
    ranked = sorted(weights, key=lambda term: (-weights[term], term))
    return ranked[:TERMS_SHOWN]


def _name(
    datasets: Sequence[tuple[str, int]],
    words: Sequence[str],
    terms: Sequence[str],
    authors: Sequence[tuple[str, int]],
    size: int,
) -> str:
    """The dataset of most labelled members, or the two that together are; and so on."""
    labelled = sum(n for _, n in datasets)
    for wanted in (1, 2):
        top = datasets[:wanted]
        if len(top) == wanted and sum(n for _, n in top) > COMMON * labelled:
            return " + ".join(name for name, _ in top)
    of_data, of_names = ", ".join(words), " ".join(terms[:2])
    if of_data or of_names:
        return (of_names or of_data) if datasets else (of_data or of_names)
    if authors and authors[0][1] > COMMON * size:
        return f"by {authors[0][0]}"
    return "mixed" if datasets else "unnamed"


def _tell_names_apart(named: Sequence[dict[str, Any]]) -> None:
    """Names that differ: by a term of their own, else by a number."""
    counts = Counter(cluster["name"] for cluster in named)
    taken = {name for name, n in counts.items() if n == 1}
    for cluster in named:
        name = cluster["name"]
        if counts[name] > 1:
            own = [term for term in cluster["terms"] if term not in name.lower()]
            choices = [*(f"{name} · {term}" for term in own), name]
            choices += [f"{name} {number}" for number in range(2, len(named) + len(taken) + 2)]
            cluster["name"] = next(choice for choice in choices if choice not in taken)
            taken.add(cluster["name"])


def cluster_family(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    min_size: int | None = None,
    suggest: bool = True,
    unknown_share: float = UNKNOWN_SHARE,
) -> dict[str, Any]:
    """The document of the clusters of the catalog's family, or of the one of `base`, of at least
    `min_size` models, 2 or more, which by default grows with the family; the largest first.

    `unknown_share` of the unlabelled models at most have a dataset that no labelled model has.
    `noise` are models of no cluster; `hints` are suggestions whose evidence is too weak for one;
    `abstained` counts unlabelled models without a suggestion; `notes` are deviations from the usual
    method, in sentences. Those of suggestions are there only where they are requested.

    Raises EmptyCatalog, UnknownRecipe, and RequestError for several families and no `base`.
    """
    view, family, records = read_family(
        catalog, recipe, base, several="clusters are those of one family"
    )
    kept = kept_data_sets(catalog, view) if suggest else []
    # outside the snapshot: a large family takes minutes
    n_models = len(family.ids)
    # 3 of 100 models, 16 of 4,000
    smallest = min_size or max(3, round(math.sqrt(n_models) / 4))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(find_clusters, family, smallest)
        # here, as locks of the catalog are this thread's
        sample = ModelSample.of(family) if suggest or family.scores is None else None
    codes = found.result()
    members = [_members(family, codes, code) for code in range(codes.max(initial=NOISE) + 1)]
    names = WordNames.of(catalog, view)
    document: dict[str, Any] = {
        "base": family.base,
        "recipe": view.recipe.name,
        "models": n_models,
        "min_size": smallest,
        "clusters": name_clusters(members, {id: records[id] for id in family.ids}, names.of_group),
        "noise": _members(family, codes, NOISE),
        **measure_agreement(family, codes, sample),
        "notes": _notes(n_models, smallest),
    }
    if suggest:
        unlabelled = view.rows([family.ids[row] for row in family.unlabelled_rows.tolist()])
        beside = compare_kept(view, kept, unlabelled)
        listed, calibration = suggest_datasets(family, unknown_share, beside, sample)
        words = names.of_models([one["model"] for one in listed])
        told = [one | {"words": words.get(one["model"], [])} for one in listed]
        suggestions = [one for one in told if not one["hint"]]
        document |= {
            "suggestions": suggestions,
            "hints": [one for one in told if one["hint"]],
            "abstained": len(family.unlabelled_rows) - len(suggestions),
            "calibration": calibration,
        }
    return document


def _members(family: LabelledModels, codes: Codes, code: int) -> list[str]:
    return [family.ids[row] for row in np.flatnonzero(codes == code).tolist()]


def _notes(n_models: int, min_size: int) -> list[str]:
    notes = []
    if n_models < 2 * min_size:
        notes.append(f"too few models for clusters of {min_size} ({n_models}): all count as noise")
    if n_models > WHOLE_FAMILY:
        notes.append(f"clustered in {COMPONENTS} principal axes of the pooled vectors")
    if n_models > SAMPLE:
        notes.append(f"{SAMPLE} models were clustered; the others joined their nearest's cluster")
    return notes


def measure_agreement(
    family: LabelledModels, codes: Codes, sample: ModelSample | None = None
) -> dict[str, object]:
    """The document of clusters' agreement with datasets, over the labelled models; None where it is
    not defined. A model of no cluster counts as a cluster of its own.

    ari: adjusted Rand index (Hubert, Arabie 1985). nmi: mutual information over the mean of the two
    entropies, 0…1, not corrected for chance. silhouette: means by 1 − score, −1…1, of the datasets
    and, over the models that are in one, of the clusters; of a family without every pair's score,
    over a sample.
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    rows = [row for row, label in enumerate(family.labels) if label is not None]
    ari = nmi = None
    if len(rows) > 1:
        labels = [family.labels[row] for row in rows]
        alone = codes.max(initial=NOISE) + 1 + np.arange(len(codes))
        groups = np.where(codes == NOISE, alone, codes)[rows]
        ari = float(adjusted_rand_score(labels, groups))
        nmi = float(normalized_mutual_info_score(labels, groups))
    in_clusters = [None if code == NOISE else str(code) for code in codes.tolist()]
    silhouette = {}
    for name, marks in (("labels", family.labels), ("clusters", in_clusters)):
        if sample is None or family.scores is not None:
            silhouette[name] = family_silhouette(family, marks)
        else:
            of_sample = np.round(bounded(sample.pairs.z), TIE_DECIMALS)
            silhouette[name] = mean_silhouette(of_sample, [marks[row] for row in sample.rows])
    return {"ari": ari, "nmi": nmi, "silhouette": silhouette}
