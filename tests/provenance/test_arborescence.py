import networkx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltadex.provenance.lineage.edges import best_arborescence


@st.composite
def graphs(draw):
    """Nodes with an edge from the root each, and any others among them."""
    n_nodes = draw(st.integers(1, 8))
    node, weight = st.integers(0, n_nodes - 1), st.integers(-5, 5)
    inner = draw(st.lists(st.tuples(node, node, weight), max_size=30))
    from_root = [(n_nodes, head, draw(weight)) for head in range(n_nodes)]
    return n_nodes, [*from_root, *(edge for edge in inner if edge[0] != edge[1])]


@given(graphs())
def test_the_tree_weighs_what_networkx_finds(graph):
    n_nodes, edges = graph
    tails, heads, weights = (np.array(column) for column in zip(*edges, strict=True))
    reference = networkx.DiGraph()
    for tail, head, weight in edges:
        before = reference.get_edge_data(tail, head, {"weight": weight})["weight"]
        reference.add_edge(tail, head, weight=max(weight, before))

    best = best_arborescence(tails, heads, weights.astype(np.float64), n_nodes)

    expected = networkx.maximum_spanning_arborescence(reference)
    assert heads[best].tolist() == list(range(n_nodes))
    tree = networkx.DiGraph(zip(tails[best].tolist(), heads[best].tolist(), strict=True))
    assert networkx.is_arborescence(tree)
    assert weights[best].sum() == expected.size(weight="weight")
