"""Updates of made-up models: random vectors, and the sketches that `LinearPool` would keep."""

import numpy as np

from deltadex.provenance.lineage.descent import Updates

LAYERS = 6


def direction(rng):
    """A random update of unit length: (layers, 1024)."""
    vector = rng.normal(size=(LAYERS, 1024))
    return vector / np.linalg.norm(vector)


def updates_of(vectors, rounding=None):
    """An `Updates` of vectors (layers, 1024), a slot a layer; `rounding` is |rounding|²."""
    stack = np.array(vectors, dtype=np.float32)
    squares = (stack.astype(np.float64) ** 2).sum(2)
    return Updates(
        stack.sum(1),
        stack.reshape(len(stack), LAYERS, -1, 256).sum(2),
        squares,
        np.zeros(len(stack)) if rounding is None else np.array(rounding, dtype=np.float64),
        np.sqrt(squares),
    )


def grown_tree(seed, n_models=24):
    """Vectors in order of time, and the row of each one's parent; −1 is the base."""
    rng = np.random.default_rng(seed)
    vectors, parents = [], []
    for row in range(n_models):
        parent = int(rng.integers(row)) if row > 3 else -1
        step = rng.uniform(0.4, 1.0) * direction(rng)
        vectors.append(step if parent < 0 else vectors[parent] + step)
        parents.append(parent)
    return vectors, parents
