"""Every control of the layer classifier on layers with planted differences."""

from dataclasses import replace

import numpy as np
import pytest
from planted_layers import make_hidden, make_rows
from scipy.stats import ks_2samp
from sklearn.neighbors import NearestCentroid

from deltadex.study.layers import layers_report
from deltadex.study.layers.layer_classifier import contributions, dims_holding, fit_classifier
from deltadex.study.layers.layer_rows import row_norms, split_by_text


def split_of(hidden, **options):
    return split_by_text(make_rows(hidden), **options)


def grown(factors, *, tokens=240, dim=8):
    """Equal directions in law, with norms that tell the layers apart."""
    hidden = make_hidden(layers=len(factors), tokens=tokens, dim=dim)
    return hidden * np.float32(factors)[:, None, None]


def test_norms_and_directions_are_read_each_without_the_other():
    norms, directions = split_of(grown([1, 10, 100])), split_of(make_hidden(tokens=240, apart=6))

    assert layers_report.score_retrained(norms, layers_report.norm_only).accuracy > 0.97
    assert layers_report.score_retrained(norms, layers_report.unit_norm).accuracy < 0.45
    assert layers_report.score_retrained(directions, layers_report.unit_norm).accuracy > 0.97
    assert layers_report.score_retrained(directions, layers_report.norm_only).accuracy < 0.5
    zeros = make_rows(np.zeros((2, 24, 3), dtype=np.float32))
    assert np.isfinite(layers_report.norm_only(zeros).vectors).all()


def test_random_vectors_have_the_norms_of_their_own_layer_and_side():
    split = split_of(grown([1, 10, 100]))

    random = layers_report.norm_matched_random(split, seed=3)

    for real, made in ((split.train, random.train), (split.test, random.test)):
        for layer in (0, 1, 2):
            norms, drawn = (row_norms(rows.vectors[rows.layer == layer]) for rows in (real, made))
            nearest = np.abs(drawn[:, None] - norms[None, :]).min(axis=1)
            assert nearest.max() <= 1e-5 * norms.max()
            assert ks_2samp(norms, drawn).pvalue > 1e-3


def test_the_mean_that_is_removed_is_the_training_rows_own_and_leaves_exactly_chance():
    split = split_of(make_hidden(tokens=240, apart=9))
    change = layers_report.mean_removal(split.train)
    off = split.test.layer_means() - split.train.layer_means()

    assert change(split.train).layer_means() == pytest.approx(np.zeros((3, 6)), abs=1e-5)
    assert change(split.test).layer_means() == pytest.approx(off, abs=1e-5)
    assert layers_report.score_retrained(split, change).accuracy == pytest.approx(1 / 3, abs=1e-9)


def test_nearest_centroid_is_scikit_learns():
    split = split_of(make_hidden(tokens=240, apart=1.5))
    classifier = fit_classifier(split.train)
    oracle = NearestCentroid().fit(classifier.standardise(split.train.vectors), split.train.layer)

    score = layers_report.score_nearest_centroid(split, classifier)

    assert score.accuracy == pytest.approx(
        oracle.score(classifier.standardise(split.test.vectors), split.test.layer)
    )


def test_shares_and_signs_by_hand_and_how_many_dimensions_hold_them():
    assert [dims_holding(np.full(10, 0.1), share) for share in (0.5, 0.9)] == [5, 9]
    classifier = replace(
        fit_classifier(make_rows(make_hidden(layers=2, dim=4))),
        weights=np.array([[2.0, -1.0, 1.0, 0.0], [-2.0, 1.0, -6.0, -1.0]]),
    )

    found = contributions(classifier)

    assert found.shares == pytest.approx(np.array([[0.5, 0.25, 0.25, 0], [0.2, 0.1, 0.6, 0.1]]))
    assert found.signs.tolist() == [[1, -1, 1, 0], [-1, 1, -1, -1]]
    assert (found.n50, found.n90) == ((1, 1), (3, 3))
    assert found.max_share == pytest.approx((0.5, 0.6))
    assert found.ranked().tolist() == [2, 0, 1, 3]
    assert found.to_json()["largest"][1][0] == {"dim": 2, "share": 0.6, "sign": -1}
    nothing = contributions(replace(classifier, weights=np.zeros((2, 4))))
    assert nothing.max_share == (0, 0)


def test_the_mean_fill_is_zero_to_the_classifier_and_some_dimensions_are_masked():
    split = split_of(make_hidden(apart=2) + np.float32(7))
    classifier = fit_classifier(split.train)

    filled = layers_report.masked(split.test.vectors, np.array([1, 4]), classifier.mean)

    standardised = classifier.standardise(filled)
    untouched = classifier.standardise(split.test.vectors)
    assert standardised[:, [1, 4]] == pytest.approx(0, abs=1e-5)
    assert np.array_equal(standardised[:, [0, 2, 3, 5]], untouched[:, [0, 2, 3, 5]])
    sizes = [layers_report.mask_sizes(dim) for dim in (384, 64, 6)]
    assert sizes == [(4, 32, 192), (4, 32), (3, 4)]
    assert [layers_report.mask_sizes(dim) for dim in (2, 1)] == [(1,), ()]


def test_transfer_standardises_with_what_training_stored():
    here = split_of(make_hidden(tokens=240, apart=7))
    shift = np.float32([50, 0, 0, 0, 0, 0])  # along layer 0's own axis, 7 times as far as it lies
    moved = split_of(make_hidden(tokens=240, apart=7, seed=1) + shift)

    controls = layers_report.transfer_controls(here, moved, fit_classifier(here.train))

    scores = {control.name: control.score for control in controls}

    # a standardiser refitted to the other texts would hide the move
    assert scores["transfer-to-other"].accuracy < scores["other-in-domain"].accuracy - 0.2
    # every row is taken for one of layer 0, a third of them
    assert scores["transfer-to-other"].accuracy == pytest.approx(1 / 3)
