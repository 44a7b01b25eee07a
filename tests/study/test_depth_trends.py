"""Trends of intrinsic dimension with depth, and how far each text moves a measure."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from deltadex.study.geometry import scrambled
from deltadex.study.geometry.intrinsic_dimension import (
    IntrinsicDimension,
    depth_trends,
    trends_disagree,
)
from deltadex.study.geometry.moments import Moments, RowSums, anisotropy, text_influence
from deltadex.study.texts import Text


def estimate(value, *, estimator="facco", error=0.1, seed=0):
    """An estimate whose ten blocks have this standard error."""
    blocks = np.random.default_rng(seed).standard_normal(10)
    blocks = (blocks - blocks.mean()) / blocks.std(ddof=1) * error * 10**0.5
    counts = {"rows": 500, "distinct": 500, "duplicates": 0, "needed": 150}
    return IntrinsicDimension(
        estimator=estimator,
        dimension=value,
        standard_error=error,
        low=None,
        high=None,
        **counts,
        blocks=() if value is None else tuple(blocks),
        reason="",
    )


def trends_of(*profiles, error=0.1):
    names = ("facco", "mle", "low-fifth")
    layers = [
        [
            estimate(value, estimator=name, error=error, seed=layer)
            for name, value in zip(names, values, strict=False)
        ]
        for layer, values in enumerate(zip(*profiles, strict=True))
    ]
    return depth_trends(layers, resamples=500, seed=0)


def test_the_correlation_is_scipys_and_its_interval_widens_with_the_error():
    profile = [4.0, 6.5, 6.0, 7.5, 7.0, 9.0]

    (sharp,) = trends_of(profile, error=0.01)
    (blurred,) = trends_of(profile, error=3.0)

    assert sharp.spearman == pytest.approx(spearmanr(range(6), profile).statistic)
    assert sharp.low <= sharp.spearman <= sharp.high
    assert (sharp.sign, blurred.sign) == (1, 0)
    assert blurred.low < 0 < blurred.high


def test_layers_without_a_number_are_left_out_three_are_no_trend_and_no_error_no_verdict():
    some = trends_of([4.0, None, 6.0, 7.0, 8.0])
    exact = [[dataclasses.replace(estimate(float(value)), blocks=())] for value in (3, 4, 5, 6)]

    (trend,) = depth_trends(exact, resamples=50, seed=0)

    assert [trend.layers for trend in some] == [4]
    assert trends_of([4.0, None, 6.0, None, 8.0]) == ()
    assert trend.spearman == pytest.approx(1.0)
    assert (trend.low, trend.high, trend.sign) == (None, None, None)
    assert not trends_disagree([trend, trend])


def of(rows):
    sums = RowSums(rows.shape[1])
    sums.update(rows)
    return anisotropy(Moments.of(rows), sums)


def test_influence_predicts_what_leaving_a_text_out_does():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 8)) * [3, 2, 1, 1, 1, 1, 1, 1] + 0.5
    text = np.repeat(np.arange(90), 10)
    rows[text == 7] += 2.0
    ids = {str(number): number for number in range(90)}

    influence = text_influence(rows.astype(np.float32), text, ids)

    whole = of(rows)
    for measure in ("centred", "uncentred", "mean_cosine"):
        values = influence[measure]
        assert sum(values.values()) == pytest.approx(0.0, abs=1e-5)
        for number in (7, 50):
            without = getattr(of(rows[text != number]), measure)
            change = 90 * (getattr(whole, measure) - without)
            assert values[str(number)] == pytest.approx(change, rel=0.15, abs=0.01)
    few = rows[:4].astype(np.float32)
    found = text_influence(few, np.array([5, 5, 9, 9]), {"a": 5, "without rows": 7, "c": 9})
    assert found["centred"]["without rows"] == 0.0
    assert text_influence(few[:1], np.array([5]), {"a": 5}) == {}


def test_scrambled_texts_have_the_same_words_in_another_order():
    texts = [
        Text("the quick brown fox jumps over it", "eng_Latn", "1"),
        Text("我喜欢读书", "zho_Hans", "1"),
        Text("alone", "eng_Latn", "2"),
    ]

    found = scrambled(texts, 0)

    for text, before in zip(found, texts, strict=True):
        assert (text.group, text.id) == (f"{before.group}, scrambled", before.id)
        assert (text.text == before.text) == (before.text == "alone")
    assert sorted(found[0].text.split()) == sorted(texts[0].text.split())
    assert sorted(found[1].text) == sorted(texts[1].text)
