"""What deltadex computes from the exact family, and the golden files of it.

    python tests/machines/answers.py golden/NAME.npz

writes one for the processor that runs it; `python tests/machines/run.py --golden` does so for each
of the processors in `GOLDEN`. Make them anew when a recipe or a score changes on purpose.
"""

import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from deltadex.indexer import IndexOptions, index_family
from deltadex.search import StoredQuery, clusters, find_similar
from deltadex.search.labelled import LabelledModels, labelled_models
from deltadex.store import Catalog

sys.path.append(str(Path(__file__).parents[1]))

from exact_family import FORMS, integers, make_exact_family

Answers = dict[str, np.ndarray]

EVERY = 8
"""Of the numbers of a fingerprint one in so many is compared: golden files stay small."""

LARGE = (1_200, 96)
"""Models and numbers of the family that is clustered from a sample."""


def compute_answers():
    """Return fingerprints, scores, rankings and clusters, models in the order of their ids.

    `fingerprints` are of the first data set's models, one of each form; `rankings` hold the
    candidates' positions among all ids, nearest first.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        options = IndexOptions(
            base=str(make_exact_family(folder)),
            source=folder / "models",
            labels=folder / "labels.csv",
        )
        with Catalog.open(folder / "c.duckdb") as catalog:
            index_family(catalog, options)
            return _answers(catalog)


def _answers(catalog):
    [base] = catalog.bases()
    recipe = catalog.find_recipe(None, base)
    ids, vectors = catalog.family(base, recipe).by_id()
    family = labelled_models(catalog.family(base, recipe))
    assert ids == sorted(ids)
    assert list(family.ids) == ids
    place = {id: row for row, id in enumerate(ids)}
    queries = ids[:: len(FORMS) + 1]  # of each data set another form
    found = [find_similar(catalog, StoredQuery(id), k=len(ids)).neighbours for id in queries]
    return {
        "ids": np.array(ids),
        "fingerprints": vectors[: len(FORMS), ::EVERY],
        "scores": np.array(family.scores),
        "rankings": np.array([[place[n.model] for n in row] for row in found]),
        "ranked_scores": np.array([[n.score for n in row] for row in found]),
        "evidence": np.array([[[n.z, n.fdr] for n in row] for row in found]),
        "clusters": clusters.find_clusters(family, 3),
        "large_clusters": _large_clusters(),
    }


def _large_clusters():
    """Clusters of made points, of which half are sampled and some belong nowhere."""
    n_models, dim = LARGE
    points = integers("points", LARGE)
    points[: 5 * n_models // 6] += np.repeat(integers("centres", (20, dim)), 50, axis=0) * 11 / 16
    family = LabelledModels(
        base="base",
        ids=tuple(f"m{row:04}" for row in range(n_models)),
        vectors=points / np.sqrt((points**2).sum(axis=1, keepdims=True)),
        labels=(None,) * n_models,
        authors=(None,) * n_models,
        runs=(None,) * n_models,
    )
    with patch.object(clusters, "WHOLE_FAMILY", 500), patch.object(clusters, "SAMPLE", 600):
        return clusters.find_clusters(family, 9)


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **compute_answers())
