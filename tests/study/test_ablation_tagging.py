"""The tagging probe on planted tags."""

import numpy as np
import pytest

from deltadex.errors import StudyError
from deltadex.study.ablation import ablation_report, tagging_probe
from deltadex.study.ablation.rate_search import Training
from deltadex.study.ablation.text_split import Split

NAMES = ("input", "attention", "bias")
QUICK = Training(epochs=20, batch=32, learning_rates=(1e-2,), runs=3)


def make_words(n=300, dim=8, seed=0):
    """Two terms whose signs' product is the tag, so that no linear probe can read it."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(2, n))
    terms = rng.normal(scale=0.05, size=(3, n, dim)).astype(np.float32)
    terms[0, :, 0] += signs[0]
    terms[1, :, 1] += signs[1]
    tags = ["same" if s > 0 else "other" for s in signs[0] * signs[1]]
    return terms, tags


def test_only_both_terms_together_say_the_tag():
    terms, tags = make_words(n=400)

    predictions = tagging_probe(terms, tags, NAMES, training=QUICK)

    for score in ("accuracy", "macro-F1"):
        report = ablation_report(predictions, score=score)
        for one in report.scores:
            if {"input", "attention"} <= set(one.terms):
                assert one.value > 0.97
            else:
                assert one.value < 0.7
        assert report.n_runs == 3
        assert report.scores[0].value == pytest.approx(report.baseline)
        assert all(one.sd is not None for one in report.scores)
    assert predictions.settings["tags"] == ["other", "same"]


def test_training_again_gives_the_same():
    terms, tags = make_words(n=60)
    training = Training(epochs=2, batch=16, learning_rates=(1e-3, 1e-2), runs=3)

    first, again = (tagging_probe(terms, tags, NAMES, training=training) for _ in range(2))

    np.testing.assert_array_equal(first.predicted, again.predicted)


def test_a_tag_of_the_test_part_alone_is_counted_wrong():
    terms, tags = make_words(n=60)
    tags[50] = "new"
    split = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))

    predictions = tagging_probe(terms, tags, NAMES, split=split, training=QUICK)
    report = ablation_report(predictions)

    assert predictions.targets[0] == 0
    assert (predictions.predicted > 0).all()
    assert max(one.value for one in report.scores) <= 0.9


def test_one_tag_is_refused():
    terms, tags = make_words(n=30)

    with pytest.raises(StudyError, match="one tag, 'same'"):
        tagging_probe(terms, ["same"] * len(tags), NAMES)


def test_nan_is_refused():
    terms, tags = make_words(n=30)
    terms[2, 0] = np.inf

    with pytest.raises(StudyError, match="'bias' of item 0"):
        tagging_probe(terms, tags, NAMES)
