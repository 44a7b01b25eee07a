import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from deltadex.search.clusters import FINEST, NOISE, hdbscan


def points_around(n, *, seed, groups=5, spread=0.5, dim=4):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, dim))
    return centres[rng.integers(groups, size=n)] + spread * rng.normal(size=(n, dim))


def clustered(distances, min_size):
    core = np.sort(distances, axis=1)[:, min_size - 1]
    return hdbscan(lambda some: lambda rows: distances[np.ix_(rows, some)], core, min_size)


def same_clusters(one, other):
    return adjusted_rand_score(one, other) == 1.0 and np.array_equal(one == NOISE, other == NOISE)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000), grid=st.sampled_from([1e-6, 0.25, 0.5]), min_size=st.integers(2, 5)
)
def test_with_equal_edges_clusters_are_those_of_the_definition(seed, grid, min_size):
    points = np.round(points_around(30, seed=seed, dim=2) / grid) * grid
    distances = pairwise_distances(points)

    assert same_clusters(by_definition(distances, min_size), clustered(distances, min_size))


def by_definition(distances, min_size):
    """The paper's section 3 from the top down: edges are taken out of the whole graph, longest
    first, all of one length at once."""
    core = np.sort(distances, axis=1)[:, min_size - 1]
    reach = np.maximum(distances, np.maximum.outer(core, core))
    graph = np.maximum(np.round(np.maximum(reach, reach.T), 9), FINEST)
    labels = np.full(len(graph), NOISE)
    _, selected = most_stable(graph, np.arange(len(graph)), np.inf, min_size)
    if selected[0].size == len(graph):  # the root alone: copies are what is left
        _, parts = connected_components(graph == FINEST)
        spots = (np.flatnonzero(parts == part) for part in range(parts.max() + 1))
        selected = [spot for spot in spots if len(spot) >= min_size]
    for number, members in enumerate(selected):
        labels[members] = number
    return labels


def most_stable(graph, members, born, min_size):
    """Stability of the members' cluster, or of what is below it; and the clusters that have it."""
    stability, inside = 0.0, members
    for length in np.unique(graph[np.ix_(members, members)])[::-1]:
        _, parts = connected_components(graph[np.ix_(inside, inside)] < length)
        sizes = np.bincount(parts)
        large = np.flatnonzero(sizes >= min_size)
        is_whole = len(large) == 1
        stays = sizes[large[0]] if is_whole else 0
        stability += (len(inside) - stays) * (1 / length - 1 / born)
        if not is_whole:
            break
        inside = inside[parts == large[0]]
    below = [most_stable(graph, inside[parts == part], length, min_size) for part in large]
    beneath = sum(found for found, _ in below)
    if below and (beneath > stability * (1 + 1e-9) or np.isinf(born)):
        return beneath, [cluster for _, clusters in below for cluster in clusters]
    return stability, [members]


def test_points_closer_than_scores_are_known_are_one_spot():
    rng = np.random.default_rng(0)
    spots = np.repeat(points_around(12, seed=1, groups=12), 4, axis=0)
    points = spots + FINEST / 20 * rng.normal(size=spots.shape)

    exact = clustered(pairwise_distances(spots), 4)

    assert same_clusters(exact, clustered(pairwise_distances(points), 4))
