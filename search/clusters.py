"""A family's clusters: their names, how they agree with its labels, and what they suggest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log

import numpy as np

from ..arrays import Int64
from ..errors import RequestError
from ..records import DataSet, ModelRecord
from ..store import Catalog, FamilyView
from .density import AXES, NOISE, SAMPLE, default_min_size, find_clusters
from .evaluation import MOST_MODELS, silhouettes
from .family_scores import id_digest
from .labelled import WHOLE_FAMILY, LabelledModels, read_family
from .suggestions import UNKNOWN_SHARE, Suggestion, SuggestionCalibration, suggest_datasets
from .trained_on import compare_kept, kept_data_sets

TERMS_SHOWN = 5

COMMON = 0.5
"""Share of a cluster's models that a term, or of its labelled models a dataset, must cover."""

_TERM = re.compile(r"[a-z][a-z0-9+]{2,}")


def _terms(*texts: str) -> frozenset[str]:
    return frozenset(_TERM.findall(" ".join(texts).lower().replace("_", " ")))


_UNINFORMATIVE = _terms(
    "adapter base causal checkpoint cls data fine finetuned finetuning full lora",
    "model models output peft results saved seq tuned tuning",
)
"""Terms of how models are made and stored, whatever they were trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """A cluster's name and its sources, most frequent first.

    Attributes:
        datasets: Of its labelled models, and how many have each.
        authors: Likewise.
        words: Terms of most of its models' names and of few other models'.
    """

    name: str
    datasets: tuple[tuple[str, int], ...]
    authors: tuple[tuple[str, int], ...]
    words: tuple[str, ...]


def terms_of(record: ModelRecord) -> frozenset[str]:
    """Terms of a model's id, task and raw label, without those of its base's name."""
    terms = _terms(record.id, record.task or "", record.dataset_raw or "") - _UNINFORMATIVE
    of_base = _terms(record.base)
    return frozenset(t for t in terms if not any(other.startswith(t) for other in of_base))


def name_clusters(
    clusters: Sequence[Sequence[str]], records: Mapping[str, ModelRecord]
) -> list[Naming]:
    """A name for each cluster of models by their ids; no two are alike."""
    terms_by_model = {id: terms_of(record) for id, record in records.items()}
    frequency = Counter(term for terms in terms_by_model.values() for term in terms)
    namings = []
    for members in clusters:
        datasets = _count(records[id].dataset for id in members)
        authors = _count(records[id].author for id in members)
        inside = Counter(term for id in members for term in terms_by_model[id])
        terms = _distinctive(inside, frequency, len(members), len(records))
        name = _name(datasets, terms, authors, len(members))
        namings.append(Naming(name=name, datasets=datasets, authors=authors, words=terms))
    return _with_unique_names(namings)


def _count(values: Iterable[str | None]) -> tuple[tuple[str, int], ...]:
    counts = Counter(value for value in values if value is not None)
    return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _distinctive(
    inside: Mapping[str, int], frequency: Mapping[str, int], size: int, n_models: int
) -> tuple[str, ...]:
    """Terms of at least half the members by tf·idf: their share here × log(1 / their share)."""
    weights = {
        term: n / size * log(n_models / frequency[term])
        for term, n in inside.items()
        if n >= max(2, COMMON * size) and n / size > frequency[term] / n_models
    }
    ranked = sorted(weights, key=lambda term: (-weights[term], term))
    return tuple(ranked[:TERMS_SHOWN])


def _name(
    datasets: Sequence[tuple[str, int]],
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
    if terms:
        return " ".join(terms[:2])
    if authors and authors[0][1] > COMMON * size:
        return f"by {authors[0][0]}"
    return "mixed" if datasets else "unnamed"


def _with_unique_names(namings: Sequence[Naming]) -> list[Naming]:
    """The same with names that differ: by a term of their own, else by a number."""
    counts = Counter(naming.name for naming in namings)
    taken = {name for name, n in counts.items() if n == 1}
    unique = []
    for naming in namings:
        name = naming.name
        if counts[name] > 1:
            own = [term for term in naming.words if term not in name.lower()]
            choices = [*(f"{name} · {term}" for term in own), name]
            choices += [f"{name} {number}" for number in range(2, len(namings) + len(taken) + 2)]
            name = next(choice for choice in choices if choice not in taken)
            taken.add(name)
        unique.append(replace(naming, name=name))
    return unique


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Some models of a family that lie close together, by id."""

    number: int
    naming: Naming
    models: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "cluster": self.number,
            "name": self.naming.name,
            "size": len(self.models),
            "datasets": [{"dataset": name, "models": n} for name, n in self.naming.datasets],
            "authors": [{"author": name, "models": n} for name, n in self.naming.authors],
            "words": list(self.naming.words),
            "models": list(self.models),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of clusters with datasets, over the labelled models; None where it is not defined.

    A model of no cluster counts as a cluster of its own.

    Attributes:
        ari: Adjusted Rand index (Hubert, Arabie 1985): 0 for chance, 1 for the same groups.
        nmi: Mutual information over the mean of the two entropies, 0…1; not corrected for
            chance, and high for many small groups.
        of_datasets: Mean silhouette of the datasets, by 1 − score, −1…1.
        of_clusters: Of the clusters, over the models that are in one.
    """

    ari: float | None
    nmi: float | None
    of_datasets: float | None
    of_clusters: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The clusters of one family under one recipe.

    Attributes:
        models: All that were clustered.
        clusters: The largest first.
        noise: Models of no cluster, by id.
        suggestions: For unlabelled models, by id; None where they were not requested.
        hints: Likewise, for models whose evidence is too weak for a suggestion.
        abstained: Unlabelled models without a suggestion.
        notes: Deviations from the usual method, in sentences.
    """

    base: str
    recipe: str
    min_size: int
    models: int
    clusters: tuple[Cluster, ...]
    noise: tuple[str, ...]
    agreement: Agreement
    suggestions: tuple[Suggestion, ...] | None
    hints: tuple[Suggestion, ...]
    abstained: int
    calibration: SuggestionCalibration | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The documented keys; those of suggestions only where they were requested."""
        document: dict[str, object] = {
            "base": self.base,
            "recipe": self.recipe,
            "models": self.models,
            "min_size": self.min_size,
            "clusters": [cluster.to_json() for cluster in self.clusters],
            "noise": list(self.noise),
            "ari": self.agreement.ari,
            "nmi": self.agreement.nmi,
            "silhouette": {
                "labels": self.agreement.of_datasets,
                "clusters": self.agreement.of_clusters,
            },
            "notes": list(self.notes),
        }
        if self.suggestions is not None and self.calibration is not None:
            document["suggestions"] = [asdict(suggestion) for suggestion in self.suggestions]
            document["hints"] = [asdict(hint) for hint in self.hints]
            document["abstained"] = self.abstained
            document["calibration"] = self.calibration.to_json()
        return document


def cluster_family(
    catalog: Catalog,
    *,
    recipe: str | None = None,
    base: str | None = None,
    min_size: int | None = None,
    suggest: bool = True,
    unknown_share: float = UNKNOWN_SHARE,
) -> ClusterReport:
    """The clusters of the catalog's family, or of the one of `base`.

    Args:
        min_size: Fewest models of a cluster, at least 2; by default it grows with the family.
        unknown_share: Share of the unlabelled models whose dataset no labelled model has, at most.

    Raises:
        EmptyCatalog, UnknownRecipe: As named.
        RequestError: Several families and no `base`, or a number out of its range.
    """
    if not 0 <= unknown_share <= 1:
        raise RequestError(f"the share of unknown datasets is from 0 to 1, not {unknown_share}")
    if min_size is not None and min_size < 2:
        raise RequestError(f"a cluster has at least 2 models, not {min_size}")
    view, models, records = read_family(
        catalog, recipe, base, several="clusters are those of one family"
    )
    # outside the snapshot: a large family takes minutes
    return cluster(
        view,
        models,
        records,
        min_size=min_size,
        suggest=suggest,
        unknown_share=unknown_share,
        kept=kept_data_sets(catalog, view) if suggest else (),
    )


def cluster(
    view: FamilyView,
    family: LabelledModels,
    records: Mapping[str, ModelRecord],
    *,
    min_size: int | None = None,
    suggest: bool = True,
    unknown_share: float = UNKNOWN_SHARE,
    kept: Sequence[DataSet] = (),
) -> ClusterReport:
    """The clusters of a view's models.

    Args:
        family: The same models with their labels and scores, as `labelled_models` reads them.
        records: By id.
        kept: The family's kept data sets.
    """
    n_models = len(family.ids)
    smallest = min_size or default_min_size(n_models)
    codes = find_clusters(family, smallest)
    listed, calibration = _suggest(view, family, unknown_share, kept) if suggest else ([], None)
    suggestions = tuple(one for one in listed if not one.hint)
    n_unlabelled = sum(label is None for label in family.labels)
    return ClusterReport(
        base=family.base,
        recipe=view.recipe.name,
        min_size=smallest,
        models=n_models,
        clusters=_clusters(family, codes, {id: records[id] for id in family.ids}),
        noise=_members(family, codes, NOISE),
        agreement=measure_agreement(family, codes),
        suggestions=suggestions if suggest else None,
        hints=tuple(one for one in listed if one.hint),
        abstained=n_unlabelled - len(suggestions),
        calibration=calibration,
        notes=tuple(_notes(n_models, smallest)),
    )


def _suggest(
    view: FamilyView, family: LabelledModels, unknown_share: float, kept: Sequence[DataSet]
) -> tuple[list[Suggestion], SuggestionCalibration]:
    ids = [family.ids[row] for row in family.unlabelled_rows.tolist()]
    return suggest_datasets(family, unknown_share, compare_kept(view, kept, view.rows(ids)))


def _clusters(
    family: LabelledModels, codes: Int64[np.ndarray, " models"], records: Mapping[str, ModelRecord]
) -> tuple[Cluster, ...]:
    members = [_members(family, codes, code) for code in range(codes.max(initial=NOISE) + 1)]
    namings = name_clusters(members, records)
    return tuple(
        Cluster(number=number, naming=naming, models=models)
        for number, (naming, models) in enumerate(zip(namings, members, strict=True))
    )


def _members(
    family: LabelledModels, codes: Int64[np.ndarray, " models"], code: int
) -> tuple[str, ...]:
    return tuple(sorted(family.ids[row] for row in np.flatnonzero(codes == code).tolist()))


def _notes(n_models: int, min_size: int) -> list[str]:
    notes = []
    if n_models < 2 * min_size:
        notes.append(
            f"{n_models} models are too few for clusters of {min_size}: all count as noise"
        )
    if n_models > WHOLE_FAMILY:
        notes.append(f"clustered in {AXES} principal axes of the pooled vectors")
    if n_models > SAMPLE:
        notes.append(f"{SAMPLE} models were clustered; the others joined their nearest's cluster")
    return notes


def measure_agreement(family: LabelledModels, codes: Int64[np.ndarray, " models"]) -> Agreement:
    """The agreement of clusters with the family's labels."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    rows = [row for row, label in enumerate(family.labels) if label is not None]
    ari = nmi = None
    if len(rows) > 1:
        labels = [family.labels[row] for row in rows]
        alone = codes.max(initial=NOISE) + 1 + np.arange(len(codes))
        groups = np.where(codes == NOISE, alone, codes)[rows]
        ari = float(adjusted_rand_score(labels, groups))
        nmi = float(normalized_mutual_info_score(labels, groups))
    return Agreement(
        ari=ari,
        nmi=nmi,
        of_datasets=_silhouette(family, family.labels),
        of_clusters=_silhouette(family, [None if c == NOISE else str(c) for c in codes.tolist()]),
    )


def _silhouette(family: LabelledModels, groups: Sequence[str | None]) -> float | None:
    """Mean silhouette (Rousseeuw 1987) over grouped models; one that is alone counts 0.

    Over `MOST_MODELS` of them, picked by their ids, where there are more.
    """
    rows = sorted(
        (row for row, group in enumerate(groups) if group is not None),
        key=lambda row: id_digest(family.ids[row]),
    )[:MOST_MODELS]
    chosen = np.array(sorted(rows, key=family.ids.__getitem__), dtype=np.int64)
    names = [str(groups[row]) for row in chosen.tolist()]
    if not 2 <= len(set(names)) < len(names):
        return None
    return float(np.mean(silhouettes(family.scores_between(chosen, chosen), names)))
