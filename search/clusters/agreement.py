"""How far clusters and datasets agree, and how well either separates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Int64
from ..evaluate import MOST_MODELS, silhouettes
from ..labelled import LabelledModels, id_digest
from .hierarchy import NOISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of clusters with datasets, over the labelled models; None where it is not defined.

    A model of no cluster counts as a cluster of its own: it was put together with nobody.

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
