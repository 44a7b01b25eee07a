"""Sense votes by hand, and against plain loops."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.ablation import ablation_report
from deltadex.study.ablation.measures import word_sense_knn
from deltadex.study.ablation.subsets import Items, Split, term_subsets

NAMES = ("input", "attention", "feed_forward", "bias")


def make_terms(vectors):
    """All of a vector in the attention term."""
    vectors = np.asarray(vectors, dtype=np.float32)
    terms = np.zeros((4, *vectors.shape), dtype=np.float32)
    terms[1] = vectors
    return terms


def angles(*degrees):
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def make_split(n_train, n):
    return Split(np.arange(n_train), np.arange(0), np.arange(n_train, n))


def vote(terms, lemma, sense, *, k=5, split=None, text=None):
    text = np.arange(len(lemma)) if text is None else text
    items = Items(terms=terms, names=NAMES, labels=sense, lemmas=lemma, text=text, split=split)
    return word_sense_knn(items, k=k)


def votes(predictions, label="h"):
    row = [subset.label for subset in term_subsets(NAMES)].index(label)
    return predictions.predicted[0, row].tolist()


def predict(degrees, senses, k=5):
    """The sense of the last word, at 0 degrees, from the others by their angle to it."""
    everything = [*senses, "a"]
    split = make_split(len(senses), len(everything))
    terms = make_terms(angles(*degrees, 0))
    found = vote(terms, ["bank"] * len(everything), everything, split=split, k=k)
    return list(dict.fromkeys(everything))[votes(found)[0]]


def test_the_majority_of_five_wins_against_the_nearest():
    assert predict([1, 10, 20, 30, 40, 50], "abbbaa") == "b"


def test_a_tie_goes_to_the_nearest_of_the_tied():
    assert predict([1, 10, 20, 30, 40], "cbaab") == "b"
    assert predict([1, 10, 20, 30, 40], "cabba") == "a"


def test_equal_angles_count_in_the_order_of_the_training_part():
    assert predict([10, -10], "ab", k=1) == "a"
    assert predict([-10, 10], "ba", k=1) == "b"


def test_fewer_than_k_neighbours_all_vote():
    assert predict([10, 20, 30], "abb") == "b"


def test_length_does_not_matter_and_a_zero_vector_asks_in_order():
    terms = make_terms(angles(5, 60, 0))
    terms[1, 0] *= 1000

    found = vote(terms, ["w"] * 3, ["a", "b", "a"], split=make_split(2, 3), k=1)

    assert votes(found) == [0]
    assert votes(found, "i") == [0]


def test_neighbours_of_another_lemma_do_not_vote():
    lemma = ["bank", "bank", "bar", "bar", "bank", "bar"]
    sense = ["1", "2", "1", "2", "2", "2"]
    terms = make_terms(angles(0, 90, 41, 200, 50, 10))

    found = vote(terms, lemma, sense, split=make_split(4, 6), k=1)

    assert votes(found) == [1, 2]
    assert found.targets.tolist() == [1, 3]


def test_one_sense_lemmas_are_dropped_and_unseen_ones_wrong():
    lemma = ["bank", "bank", "cat", "bar", "bar", "cat", "bank"]
    sense = ["1", "2", "1", "1", "2", "1", "1"]
    terms = make_terms(angles(0, 90, 0, 0, 90, 0, 5))

    found = vote(terms, lemma, sense, split=make_split(3, 7), k=1)
    report = ablation_report(found)

    assert found.settings["monosemous_words_dropped"] == 2
    assert found.settings["lemmas"] == 2
    assert votes(found) == [-1, -1, 0]
    assert (report.n_items, report.n_unknown, report.scores[2].value) == (3, 2, 1 / 3)


@given(data=st.data(), k=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_votes_are_those_of_plain_loops(data, k):
    n = data.draw(st.integers(6, 20))
    cells = st.lists(st.integers(-2, 2), min_size=2, max_size=2)
    vectors = np.array(data.draw(st.lists(cells, min_size=n, max_size=n)), dtype=float)
    lemma = [
        "w",
        "w",
        "w",
        *data.draw(st.lists(st.sampled_from("wv"), min_size=n - 3, max_size=n - 3)),
    ]
    sense = [
        "a",
        "b",
        "a",
        *data.draw(st.lists(st.sampled_from("abc"), min_size=n - 3, max_size=n - 3)),
    ]
    split = Split(np.arange(2, n), np.arange(0), np.arange(2))
    if "w" not in lemma[2:]:
        return

    found = vote(make_terms(vectors), lemma, sense, split=split, k=k)

    codes = {pair: i for i, pair in enumerate(dict.fromkeys(zip(lemma, sense, strict=True)))}
    for item, voted in enumerate(votes(found)):
        ranked = []
        for other in range(2, n):
            if lemma[other] == lemma[item]:
                length = np.linalg.norm(vectors[item]) * np.linalg.norm(vectors[other])
                cosine = float(vectors[item] @ vectors[other]) / length if length else 0.0
                ranked.append((-round(cosine, 9), other))
        near = [codes[lemma[o], sense[o]] for _, o in sorted(ranked)[:k]]
        most = max(Counter(near).values())
        assert voted == next(code for code in near if near.count(code) == most)


def test_the_term_that_knows_the_sense_is_found():
    rng = np.random.default_rng(0)
    n = 400
    sense = rng.integers(2, size=n)
    lemma = rng.integers(10, size=n)
    terms = rng.normal(size=(4, n, 8)).astype(np.float32)
    terms[2] = rng.normal(scale=0.1, size=(n, 8)) + 60 * np.eye(2, 8)[sense]

    report = ablation_report(vote(terms, [*map(str, lemma)], [*map(str, sense)]))

    for score in report.scores:
        if "feed_forward" in score.terms:
            assert score.value == 1.0
        else:
            assert score.low < 0.55
    assert report.settings["split"]["validation"] == 0


def test_a_text_is_never_in_both_parts():
    text = np.repeat(np.arange(20), 5)
    rng = np.random.default_rng(0)
    sense = [str(s) for s in rng.integers(2, size=100)]

    terms = rng.normal(size=(4, 100, 3)).astype(np.float32)
    found = vote(terms, ["w"] * 100, sense, text=text)

    assert len(found.targets) == 20
    assert len(np.unique(found.text)) == 4


def test_data_without_a_second_sense_are_refused():
    with pytest.raises(StudyError, match="none of 2 lemmas has two senses"):
        vote(make_terms(angles(0, 1, 2)), ["a", "b", "a"], ["1", "2", "1"])
