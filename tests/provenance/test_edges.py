import numpy as np
import pytest

from deltadex.provenance.lineage.descent import Updates
from deltadex.provenance.lineage.edges import BASE, infer_edges
from deltadex.provenance.lineage.lineage import read_times

LAYERS = 6


def direction(rng):
    """A random update of unit length: (layers, 1024)."""
    vector = rng.normal(size=(LAYERS, 1024))
    return vector / np.linalg.norm(vector)


def updates_of(vectors):
    """An `Updates` of vectors (layers, 1024), a slot a layer."""
    stack = np.array(vectors, dtype=np.float32)
    squares = (stack.astype(np.float64) ** 2).sum(2)
    return Updates(
        stack.sum(1),
        stack.reshape(len(stack), LAYERS, -1, 256).sum(2),
        squares,
        np.zeros(len(stack)),
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


def parents_of(vectors, times=None, rank=None):
    n_models = len(vectors)
    edges = infer_edges(
        updates_of(vectors),
        np.full(n_models, np.nan) if times is None else np.array(times, dtype=np.float64),
        np.arange(n_models) if rank is None else np.array(rank),
    )
    return {row: [edge for edge in edges if edge.child == row] for row in range(n_models)}


def first_parents(found):
    return [found[row][0].parent for row in sorted(found)]


@pytest.mark.parametrize("seed", range(3))
def test_independent_steps_give_their_tree_back(seed):
    vectors, parents = grown_tree(seed)

    right = np.mean(np.array(first_parents(parents_of(vectors))) == parents)

    assert right >= 0.85


def test_children_of_the_base_that_share_data_are_no_parents_of_each_other():
    rng = np.random.default_rng(1)
    data = [direction(rng) for _ in range(3)]
    vectors = [
        rng.uniform(0.7, 1.4) * (0.7 * data[row % 3] + 0.7 * direction(rng)) for row in range(15)
    ]

    named = [parent for parent in first_parents(parents_of(vectors)) if parent != BASE]

    assert len(named) <= 4


def test_copies_hang_at_the_first_by_rank_and_a_model_of_one_at_the_base():
    rng = np.random.default_rng(2)
    model, other = direction(rng), direction(rng)

    found = parents_of([model, other, model, model], times=[3, 1, 2, 4], rank=[1, 3, 0, 2])
    alone = parents_of([model])

    kinds = [found[row][0].kind for row in range(4)]
    assert kinds == ["duplicate", "fine-tune", "fine-tune", "duplicate"]
    assert found[0][0].parent == found[3][0].parent == 2
    assert (alone[0][0].parent, len(alone)) == (BASE, 1)


def test_a_copy_without_a_time_may_be_the_original():
    model = direction(np.random.default_rng(3))

    assert parents_of([model, model])[1][0].probability == 0.5


def test_a_linear_merge_has_its_parents_and_weights_and_is_none_of_theirs():
    rng = np.random.default_rng(5)
    parents = [direction(rng) for _ in range(6)]
    merge = 0.5 * parents[0] + 0.3 * parents[2] + 0.2 * parents[4]
    tuned = merge + 0.4 * direction(rng)

    found = parents_of([*parents, merge, tuned])

    weights = {edge.parent: edge.weight for edge in found[6]}
    assert {edge.kind for edge in found[6]} == {"merge"}
    assert weights == pytest.approx({0: 0.5, 2: 0.3, 4: 0.2}, abs=1e-3)
    assert found[7][0].parent == 6
    assert all(found[row][0].parent == BASE for row in range(6))


def test_a_later_time_decides_what_the_weights_leave_open():
    rng = np.random.default_rng(7)
    model = direction(rng)
    child = model + 0.2 * direction(rng) - 0.02 * model  # as long as its parent
    day = 86_400.0

    def probability(times):
        edge = parents_of([model, child], times=times)[1][0]
        return edge.probability if edge.parent == 0 else 0.0

    assert probability([0, day]) > probability([day, 0])


def test_times_in_the_future_and_no_times_at_all_are_unknown():
    texts = ["2024-05-01T00:00:00+00:00", "2999-01-01", None, "yesterday", "2024-05-01T00:00:00"]

    times, n_future = read_times(texts)

    assert np.isnan(times[1:4]).all()
    assert (times[0], n_future) == (times[4], 1)
