"""The index of a family against brute force, and its file against what it holds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.store.derived.index import SearchIndex

DIM = 4


class _Family:
    """Vectors by key, as a catalog has them; a change of a vector comes with a new key."""

    def __init__(self, n, seed=0):
        self.rng = np.random.default_rng(seed)
        self.vectors, self.last_key = {}, 0
        self.add(n)

    def add(self, n):
        for vector in self.rng.integers(-1, 2, (n, DIM)).astype(np.float32) / 2:
            self.last_key += int(self.rng.integers(1, 4))
            self.vectors[self.last_key] = vector

    def remove(self, n):
        for key in self.rng.choice(list(self.vectors), n, replace=False):
            del self.vectors[int(key)]

    def fetch(self, keys):
        present = [key for key in keys.tolist() if key in self.vectors]
        rows = [self.vectors[key] for key in present]
        return np.array(present, np.int64), np.array(rows, np.float32).reshape(-1, DIM)

    @property
    def keys(self):
        return np.array(sorted(self.vectors), np.int64)

    def index(self, path, last=None):
        return SearchIndex.of(self.keys, DIM, self.fetch, path, last)

    def as_good(self, query, n, allowed):
        """Keys of the models whose score is not below the n-th best."""
        scores = {key: float(self.vectors[key] @ query) for key in allowed}
        least = sorted(scores.values(), reverse=True)[:n][-1:]
        return {key for key, score in scores.items() if least and score >= least[0]}


@settings(deadline=None)
@given(st.integers(0, 120), st.integers(1, 130), st.integers(0, 99), st.floats(0, 1))
def test_nearest_are_those_of_brute_force_with_every_tie(tmp_path_factory, n, k, seed, share):
    family = _Family(n, seed)
    index = family.index(tmp_path_factory.getbasetemp() / "none")
    query = family.rng.integers(-1, 2, DIM).astype(np.float32)  # scores are halves: ties are exact
    allowed = family.keys[family.rng.random(n) < share]

    assert set(index.nearest(query, k).tolist()) == family.as_good(query, k, family.keys.tolist())
    # one that it does not hold, as a model that was removed since
    found = index.nearest(query, k, np.append(allowed, 1_000))
    assert set(found.tolist()) == family.as_good(query, k, allowed.tolist())


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=4))
def test_an_index_that_is_caught_up_holds_what_a_new_one_does(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("i")
    family = _Family(20)
    last = family.index(folder / "a")
    for n_removed, n_added, is_known in changes:
        family.remove(min(n_removed, len(family.vectors)))
        family.add(n_added)
        last = family.index(folder / "a", last if is_known else None)

        assert np.array_equal(last.keys, family.keys)
        assert np.array_equal(last.vectors(family.keys), family.fetch(family.keys)[1])
        assert last.vectors(np.array([family.last_key + 1])) is None
