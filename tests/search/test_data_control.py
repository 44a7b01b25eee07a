"""A data set and its control: planted effects, and none, in scores and in sketches."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from catalogs import make_data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scoring.sketched import SKETCHES, SLOTS, sketch

from deltadex.errors import RequestError
from deltadex.records import Fingerprint
from deltadex.search import trained_on

GROUPS, OTHERS = 8, 24


def compare(rng, *, effect=0.0, shift=0.0, others=OTHERS, models=1):
    """Effects on models whose scores have noise 1 a group, beside models that saw neither.

    `shift`: how the two files differ for every model, not for all by as much.
    """

    def scores(n, planted):
        data, control = rng.normal(size=(2, GROUPS, n))
        return data + planted + shift * rng.normal(1, 0.3, size=n), control

    own, own_control = scores(models, effect)
    of_others = trained_on.Differences.of(*scores(others, 0.0))
    is_itself = np.zeros((models, others), dtype=bool)
    ids = [f"m{i}" for i in range(models)]
    return trained_on.compare_with_control(own, own_control, ids, of_others, is_itself)


def count(verdict, effects):
    return sum(one["verdict"] == verdict for one in effects)


@pytest.mark.parametrize("mean", [0.5, 1.7, -3.0])
@pytest.mark.parametrize(("centre", "spread"), [(0.0, 1.0), (0.8, 2.5)])
def test_among_many_normal_others_an_effect_has_the_normal_s_interval_and_p(mean, centre, spread):
    null = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000, centre, spread)
    error = 0.4

    effect, half, p = trained_on._among_others(mean, error, null)

    assert effect == pytest.approx(mean - centre * error, abs=1e-3)
    assert half == pytest.approx(stats.norm.ppf(0.975) * spread * error, rel=0.01)
    assert p == pytest.approx(2 * stats.norm.sf(abs(effect) / spread / error), rel=0.1)


def test_a_block_s_spread_is_the_deviation_of_its_strangers_despite_a_few_others():
    deviations = np.array([0.1, 0.03, 0.0])
    cosines = np.random.default_rng(3).normal(0.2, deviations, size=(6, 3000, 3)).transpose(2, 0, 1)
    cosines[:, :2, :30] = 0.95  # that one group's models are near to two of the groups

    spreads = trained_on.block_spreads(cosines)

    assert spreads == pytest.approx([0.1, 0.03, trained_on.LEAST_SPREAD], rel=0.03)


def test_files_that_differ_for_every_model_are_no_evidence():
    rng = np.random.default_rng(1)
    effects = [one for _ in range(40) for one in compare(rng, shift=3.0, models=5)]
    said = len(effects) - count("cannot tell", effects)
    assert said <= stats.binom.ppf(0.9999, len(effects), 0.05)
    alone = [one for _ in range(8) for one in compare(rng, shift=3.0, others=0, models=5)]
    assert count("nearer to the data", alone) > len(alone) / 2


@pytest.mark.parametrize(
    ("effect", "side"), [(3.0, "nearer to the data"), (-3.0, "nearer to the control")]
)
def test_a_planted_effect_is_found(effect, side):
    rng = np.random.default_rng(2)
    effects = [compare(rng, effect=effect)[0] for _ in range(60)]
    # six standard errors; the null of 24 models has wide tails
    assert count(side, effects) >= stats.binom.ppf(0.001, len(effects), 0.9)
    covered = sum(one["low"] <= effect <= one["high"] for one in effects)
    assert covered >= stats.binom.ppf(0.001, len(effects), 0.95)


def test_models_that_saw_a_file_do_not_hide_one_another():
    rng = np.random.default_rng(3)
    own, own_control = rng.normal(3.0, 1, (GROUPS, 1)), rng.normal(0, 1, (GROUPS, 1))
    data, control = rng.normal(size=(2, GROUPS, 40))
    data[:, :3] += 6.0
    (one,) = trained_on.compare_with_control(
        own,
        own_control,
        ["m"],
        trained_on.Differences.of(data, control),
        np.zeros((1, 40), dtype=bool),
    )
    assert one["verdict"] == "nearer to the data"


@given(st.integers(0, 2**32 - 1), st.integers(4, 6), st.integers(4, 6))
@settings(max_examples=20, deadline=None)
def test_permutation_p_counts_every_split(seed, n_first, n_second):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0.5, 1, (n_first, 2)), rng.normal(size=(n_second, 2))
    values = np.concatenate([first, second])
    for column, p in enumerate(trained_on.permutation_p(first, second)):
        numbers = values[:, column]
        found = abs(numbers[:n_first].mean() - numbers[n_first:].mean())
        differences = []
        for chosen in combinations(range(len(numbers)), n_first):
            inside = np.isin(np.arange(len(numbers)), chosen)
            differences.append(abs(numbers[inside].mean() - numbers[~inside].mean()))
        assert p == pytest.approx(np.mean(np.array(differences) >= found * (1 - 1e-9)))


def test_many_groups_are_permuted_at_random():
    rng = np.random.default_rng(4)
    first, second = rng.normal(1, 1, (16, 3)), rng.normal(0, 1, (16, 3))
    expected = stats.permutation_test(
        (first, second),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        n_resamples=4999,
        rng=np.random.default_rng(0),
        vectorized=True,
    ).pvalue
    assert trained_on.permutation_p(first, second) == pytest.approx(expected, abs=0.03)


def data_set(name, *, sha="1", groups=8, loss="causal", classes=0, examples=512, **settings):
    part = sketch(np.ones((len(SLOTS), 3, 64)))
    return replace(
        make_data(name, np.ones(64), loss=loss, examples=examples),
        sha256=sha,
        settings={"loss": None, "max_tokens": 128, "parts": 8, "seed": 0} | settings,
        counts={"classes": classes},
        fingerprint=Fingerprint(recipe=SKETCHES, vector=np.ones(64, np.float32), norm=1.0),
        sketches={"whole": part} | {f"group {i}": part for i in range(groups)},
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"loss": "masked"}, "--loss"),
        ({"classes": 3}, "same classes"),
        ({"max_tokens": 64}, "max_tokens 128, later with 64"),
        ({"examples": 400}, "--max-examples 400"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, line):
    control = data_set("later", **({"sha": "2"} | changes))
    with pytest.raises(RequestError, match=line):
        trained_on.check_control(data_set("mine"), control)


def test_heads_of_their_own_are_refused_and_one_head_is_not():
    mine = data_set("mine", loss="classification", classes=2)
    late = replace(mine, name="late", sha256="2")
    with pytest.raises(RequestError, match="a head each"):
        trained_on.check_control(mine, late)
    shared = [replace(one, settings={**one.settings, "head": "1 + 2"}) for one in (mine, late)]
    trained_on.check_control(*shared)


def test_few_other_models_are_no_null():
    rng = np.random.default_rng(6)
    values = rng.normal(size=(2, GROUPS, 1))
    others = trained_on.Differences.of(
        *rng.normal(50, 1, size=(2, GROUPS, trained_on.FEWEST_OTHERS - 1))
    )
    (one,) = trained_on.compare_with_control(
        *values, ["m"], others, np.zeros((1, trained_on.FEWEST_OTHERS - 1), dtype=bool)
    )
    assert one["effect"] == pytest.approx(float(np.subtract(*values.mean(axis=1))[0]))
