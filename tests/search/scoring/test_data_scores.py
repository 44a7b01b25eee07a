"""Scores of gradients with models, against the same computed pair by pair."""

import numpy as np
import pytest
from sketched import VECTORS, VectorMatrix, make_scores, make_vectors, names

from deltadex.search.trained_on import FEWEST_REFERENCES, DataScores
from deltadex.store import true_cosines

N, LATER = 40, 12
KINDS = ["adapter", "full", "full", "adapter"] * (N // 4)
NO_FULL = ["adapter", "another"] * (N // 2)


def _matrix(seed, n):
    return VectorMatrix(make_vectors(seed, n).astype(np.float32))


def _scales(models):
    return models.traits.centres, models.traits.spreads


def _cosines(left, right):
    return left.vectors.astype(float) @ right.vectors.astype(float).T


def _expected(family, gradients, models, references=None):
    """z of every gradient with every model: normalised on both sides, then among the cohort."""
    full = family.kinds.index("full") if "full" in family.kinds else 0
    cohort = family.unwhitened(family.strangers)
    z = np.zeros((len(gradients.features), len(models.features)))
    for row in range(len(gradients.features)):
        raw = []
        for others in (models, cohort):
            centres, spreads = (of[:, 0, full] for of in _scales(others))
            if references is not None:
                seen = _cosines(references, others.features)  # (references, models)
                n, variances = len(seen), seen.var(axis=0)
                centres = np.median(seen, axis=0)
                spreads = np.sqrt((n * variances + 4 * np.median(variances)) / (n + 4))
            cosines = _cosines(gradients.features, others.features)[row]
            own_centres, own_spreads = (
                of[row, 0, others.traits.kinds] for of in _scales(gradients)
            )
            own = (cosines - own_centres) / own_spreads
            raw.append((own + (cosines - centres) / spreads) / 2)
        low, middle = np.quantile(raw[1], [0.158655, 0.5])
        z[row] = (raw[0] - middle) / (middle - low)
    return z


@pytest.mark.parametrize("kinds", [KINDS, NO_FULL], ids=["both kinds", "no full one"])
@pytest.mark.parametrize("n_references", [0, FEWEST_REFERENCES - 1, FEWEST_REFERENCES, 25])
def test_scores_are_those_of_both_sides_and_the_lower_among_other_data(kinds, n_references):
    matrix, later = _matrix(0, N), _matrix(1, LATER)
    family = make_scores(names(N), kinds, VECTORS, matrix.take)
    models = family.unwhitened(family.prepare(later, kinds[:LATER], [-1] * LATER))
    references, asked = _matrix(2, n_references), _matrix(3, 3)
    both = VectorMatrix(np.concatenate([asked.vectors, references.vectors]))

    places = np.arange(3), 3 + np.arange(n_references)
    (pairs,) = DataScores(family, both).compare(models, [("classification", *places)])
    gradients = family.unwhitened(family.prepare(asked, ["full"] * 3, [-1] * 3))

    are_used = n_references >= FEWEST_REFERENCES
    expected = _expected(family, gradients, models)
    if are_used:
        among_data = _expected(family, gradients, models, references)
        assert (among_data < expected).any()
        assert (among_data > expected).any()
        expected = np.minimum(expected, among_data)
    assert pairs.z == pytest.approx(expected, abs=1e-6)
    plain = _cosines(gradients.features, later)
    assert pairs.cosines == pytest.approx(true_cosines(plain), abs=1e-5)
