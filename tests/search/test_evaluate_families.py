import numpy as np
import pytest
from families import make_family, unit_rows
from sklearn.metrics import confusion_matrix, silhouette_score

from deltadex.errors import RequestError
from deltadex.search.evaluation import evaluate_families


def evaluate(*families, **options):
    return evaluate_families(families, **options)


def test_the_numbers_of_a_small_family_worked_by_hand():
    # a: three together. b: its two are apart, one by the a, one by the unlabelled.
    vectors = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0.8, 0.6, 0], [0, 0, 1], [0, 0, 1]])
    family = make_family(vectors, ["a", "a", "a", "b", "b", None])

    found = evaluate(family, with_unlabelled=True)

    assert (found["models"], found["labelled"], found["queries"], found["datasets"]) == (6, 5, 5, 2)
    assert found["micro"] == pytest.approx(3 / 5)
    assert found["macro"] == pytest.approx(1 / 2)
    assert found["chance"] == pytest.approx((3 * 2 / 5 + 2 * 1 / 5) / 5)
    assert found["lift"] == pytest.approx((0.6 - 0.32) / 0.68)
    assert found["nn1"] == pytest.approx(3 / 5)
    # b's siblings come fourth (before the unlabelled with its equal 0, by id) and fifth
    assert found["map"] == pytest.approx((3 + 1 / 4 + 1 / 5) / 5)
    assert found["taken_for"] == {
        "a": [{"dataset": "a", "n": 6}],
        "b": [{"dataset": None, "n": 1}, {"dataset": "a", "n": 1}],
    }
    assert found["confusion"] == {"datasets": ["a", "b"], "counts": [[3, 0, 0], [1, 0, 1]]}


def test_the_confusion_of_nearest_neighbours_and_the_silhouette_are_those_of_scikit_learn():
    vectors = unit_rows(np.random.default_rng(1).normal(size=(30, 4)))
    labels = [*["x", "y", "z"] * 8, *[None] * 5, "alone"]
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -2)
    nearest = [labels[row] or "~" for row in scores.argmax(axis=1)]
    names = ["alone", "x", "y", "z", "~"]

    found = evaluate(make_family(vectors, labels), with_unlabelled=True)

    assert found["confusion"]["datasets"] == names[:-1]
    expected = confusion_matrix(labels[:24], nearest[:24], labels=names)[:-1]
    assert np.array_equal(found["confusion"]["counts"], expected)
    rows = [row for row, label in enumerate(labels) if label]
    silhouette = silhouette_score(vectors[rows], [labels[row] for row in rows], metric="cosine")
    assert found["silhouette"] == pytest.approx(silhouette, abs=1e-6)


@pytest.mark.parametrize(
    ("labels", "exclude", "message"),
    [
        ([None, None], None, "no model of 2 has a dataset label.*--labels"),
        (["a", "b"], None, "no two share base and dataset"),
        (["a", "a"], "author", "--exclude author leaves no labelled model a sibling"),
    ],
)
def test_without_queries_the_refusal_says_what_would_work(labels, exclude, message):
    family = make_family(np.eye(2), labels, ["x", "x"])

    with pytest.raises(RequestError, match=message):
        evaluate(family, exclude=exclude)
