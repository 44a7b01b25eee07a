"""Purity against a second reading of its definition, in plain Python loops."""

import numpy as np
import pytest
from families import make_family, ranked
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.search import evaluation


def purity_by_definition(family, exclude=None, with_unlabelled=False):
    """{id: (siblings, candidates, purity, nn1, AP)}, one comparison at a time."""
    marks = {None: None, "author": family.authors, "run": family.runs}[exclude]
    answers = {}
    for q, label in enumerate(family.labels):
        if label is None:
            continue
        rivals = []
        for j in range(len(family.ids)):
            if j == q or (marks and marks[q] is not None and marks[q] == marks[j]):
                continue
            if family.labels[j] is None and not with_unlabelled:
                continue
            score = sum(
                float(a) * float(b)
                for a, b in zip(family.vectors[q], family.vectors[j], strict=True)
            )
            rivals.append((-round(score, 9), family.ids[j], family.labels[j] == label))
        rivals.sort()
        hits = [hit for _, _, hit in rivals]
        k = sum(hits)
        if k == 0:
            continue
        precisions = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
        answers[family.ids[q]] = (k, len(rivals), sum(hits[:k]) / k, hits[0], sum(precisions) / k)
    return answers


@st.composite
def families(draw):
    """Arguments of `make_family`: equal vectors, singletons, unlabelled, shared authors."""
    n = draw(st.integers(1, 14))
    few_values = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
    vectors = np.array(draw(st.lists(few_values, min_size=n, max_size=n)), dtype=np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    marks = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=n, max_size=n)
    return vectors, draw(marks), draw(marks), draw(marks)


@given(
    made=families(), exclude=st.sampled_from([None, "author", "run"]), with_unlabelled=st.booleans()
)
@settings(deadline=None)
def test_every_query_scores_as_the_definition_says(made, exclude, with_unlabelled):
    family = make_family(*made)
    expected = purity_by_definition(family, exclude, with_unlabelled)

    results = ranked(family, exclude, with_unlabelled=with_unlabelled)

    assert [result.model for result in results] == sorted(expected)
    for result in results:
        k, candidates, purity, nn1, average_precision = expected[result.model]
        assert (result.siblings, result.candidates, result.nn1) == (k, candidates, nn1)
        assert result.purity == pytest.approx(purity)
        assert result.average_precision == pytest.approx(average_precision)
        assert sum(label == result.dataset for label in result.retrieved) == round(purity * k)


@pytest.mark.parametrize("every_query", [40, 39], ids=["small", "large"])
def test_blocks_of_any_size_give_the_same_results(monkeypatch, every_query):
    rng = np.random.default_rng(0)
    family = make_family(rng.normal(size=(40, 9)), [f"d{i % 5}" for i in range(40)])
    whole = ranked(family)

    monkeypatch.setattr(evaluation, "EVERY_QUERY", every_query)
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", 8 * 100)
    monkeypatch.setattr(evaluation, "LARGE_BYTES", 8 * 40 * 7)

    assert ranked(family) == whole
