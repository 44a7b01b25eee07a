"""A search of a family's vectors alone: what the index gives, scored exactly."""

import numpy as np


def search(catalog, base, recipe, queries, k, allowed=None, n_candidates=1):
    """Per query the `k` best (id, score); ties by id."""
    view = catalog.family(base, recipe)
    rows = None if allowed is None else view.rows(sorted(allowed))
    answers = []
    for query in queries:
        found = view.candidates(query, max(k, n_candidates), rows)
        vectors = view.vectors(view.keys[found]).astype(np.float64)
        scores = vectors @ query.astype(np.float64)
        pairs = [(view.ids[row], float(s)) for row, s in zip(found.tolist(), scores, strict=True)]
        answers.append(sorted(pairs, key=lambda pair: (-round(pair[1], 9), pair[0]))[:k])
    return answers
