"""Laws planted in a curve are found again; noise is no law."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import curve_fit

from deltadex.study.rank.law_choice import SIGNIFICANCE, depth_p_value, fit_laws
from deltadex.study.rank.laws import LAW_NAMED, Curve

pytestmark = pytest.mark.slow

PLANTED = {"linear": (50.0, -30.0), "exponential": (20.0, 60.0, 3.0)}


def planted(law, n_layers, noise=0.0, seed=0):
    layers = np.arange(1, n_layers + 1)
    ranks = LAW_NAMED[law].values(PLANTED[law], layers.astype(float), n_layers)
    return layers, ranks + noise * np.random.default_rng(seed).normal(size=n_layers)


def fit_whole(ranks, **options):
    """Laws of a curve that has a rank at every depth."""
    return fit_laws(np.arange(1, len(ranks) + 1), np.asarray(ranks, float), len(ranks), **options)


def parameters(fit):
    return [(p.value, p.standard_error) for p in fit.best.parameters.values()]


def candidate(fit, law):
    """The fit of one law, whether it is the best or not."""
    [found] = [c for c in fit.candidates if c.law == law]
    return found


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_exponential_and_its_standard_errors_are_scipys(seed):
    layers, ranks = planted("exponential", 24, noise=1.0, seed=seed)
    values, covariance = curve_fit(
        lambda layer, a, b, c: a + b * np.exp(-c * (layer - 1) / 23),
        *(layers, ranks),
        p0=PLANTED["exponential"],
    )
    errors = np.sqrt(np.diag(covariance))

    found = candidate(fit_laws(layers, ranks, 24), "exponential")

    # both stop where RSS changes by 1e-8: by √(21 · 1e-8) = 5e-4 standard errors
    assert (np.array(found.values) - values) / errors == pytest.approx(np.zeros(3), abs=1e-3)
    ours = np.array([p.standard_error for p in found.parameters.values()])
    assert ours == pytest.approx(errors, rel=1e-3)


def test_a_planted_step_is_found_with_its_levels_and_its_layer():
    layers = np.arange(1, 13)
    rng = np.random.default_rng(2)

    for at in (2, 5, 10):
        ranks = np.where(layers > at, 10.0, 50.0) + rng.normal(size=12)
        fit = fit_laws(layers, ranks, 12)

        assert fit.verdict == f"step at layer {at}"
        (low, low_error), (height, height_error), (layer, layer_error) = parameters(fit)
        first, second = ranks[:at], ranks[at:]
        assert (low, low + height) == pytest.approx((first.mean(), second.mean()))
        spread = np.sqrt((first.var() * at + second.var() * (12 - at)) / 9)
        assert low_error == pytest.approx(spread / at**0.5)
        assert height_error == pytest.approx(spread * (1 / at + 1 / (12 - at)) ** 0.5)
        assert (layer, layer_error) == (at, None)


NO_LAWS = {"constant", "no pattern", "depends on depth, no law"}


def permuted_p_value(ranks, variances):
    """The test's definition, one least-squares fit at a time; five points, which fit two laws."""
    n, layers = len(ranks), np.arange(1.0, len(ranks) + 1)
    spread = variances + max(0.0, np.var(ranks, ddof=1) - variances[0])
    columns = [layers, np.sqrt(1 - (layers / n) ** 2)]

    def residual(design, order):
        root = 1 / np.sqrt(spread[order])
        solution = np.linalg.lstsq(design * root[:, None], ranks[order] * root, rcond=None)[0]
        return float(np.sum((root * (ranks[order] - design @ solution)) ** 2))

    p_values = []
    for order in map(list, permutations(range(n))):
        none = residual(np.ones((n, 1)), order)
        left = min(residual(np.stack([np.ones(n), column], axis=1), order) for column in columns)
        scale = max(left / (n - 2), np.sum(variances / spread) / n)
        p_values.append(stats.f.sf((none - left) / scale, 1, n - 2))
    return np.mean(np.array(p_values) <= p_values[0] * (1 + 1e-6))


@pytest.mark.parametrize("ranks", [[9, 7, 4, 4, 2], [3, 8, 1, 5, 9], [5, 5, 4, 2, 2]])
def test_the_p_value_is_the_share_of_permutations_that_follow_a_law_as_well(ranks):
    n, ranks = len(ranks), np.array(ranks, dtype=float)
    variances = np.full(n, 1 / 12)
    curve = Curve(layers=np.arange(1.0, n + 1), ranks=ranks, variances=variances, n_layers=n)

    found, _ = depth_p_value(curve, SIGNIFICANCE)

    assert found == pytest.approx(permuted_p_value(ranks, variances))


@pytest.mark.parametrize(
    ("ranks", "verdict"),
    [
        ([20, 12, 6, 3, 2, 1], "exponential"),
        ([12, 11, 9, 8, 6, 5], "linear"),
        ([12, 13, 10, 8, 7, 5], "depends on depth, no law"),
        ([2, 2, 2, 2, 2, 1], "constant"),
        ([7, 12, 5, 11, 6, 9], "no pattern"),
        ([9, 9, 9, 9, 9, 3], "no pattern"),
        ([8] * 6 + [20] * 6, "step at layer 6"),
        ([3, 3, 3, 9, 9, 9], "step at layer 3"),
        ([12, 14, 13, 16, 20, 23, 22, 25, 21, 18, 19, 15], "depends on depth, no law"),
    ],
)
def test_short_curves_have_the_law_that_a_reader_sees(ranks, verdict):
    fit = fit_whole(ranks)

    assert fit.verdict == verdict
    assert bool(fit.reason) == (verdict in NO_LAWS)
    assert fit.pattern == (verdict not in NO_LAWS - {"constant"})


def test_random_walks_are_seldom_given_a_law_and_ranks_that_scatter_little_are_constant():
    walks = np.round(40 + np.cumsum(2 * np.random.default_rng(2024).normal(size=(40, 12)), axis=1))
    flat = np.round(20 + np.random.default_rng(2025).normal(size=(20, 12)))  # by a twentieth

    of_walks, of_flat = ([fit_whole(ranks).verdict for ranks in some] for some in (walks, flat))

    # 10 % at most, and three s.e. of 40; without the test of walks it was a third
    assert sum(verdict not in NO_LAWS for verdict in of_walks) <= 9
    assert of_walks.count("depends on depth, no law") >= 20
    assert of_flat.count("constant") >= 17


def test_scatter_beyond_the_standard_errors_is_found_as_paule_and_mandel_define_it():
    layers, ranks = planted("linear", 12, noise=3.0)
    errors = np.linspace(0.5, 3.0, 12)

    fit = fit_laws(layers, ranks, 12, standard_errors=errors, counts=np.full(12, 9))

    line = candidate(fit, "linear")
    residuals = ranks - LAW_NAMED["linear"].values(line.values, layers.astype(float), 12)
    assert fit.verdict == "linear"
    assert np.sum(residuals**2 / (errors**2 + fit.scatter**2)) == pytest.approx(10.0, rel=1e-6)


def test_aicc_and_standard_errors_of_a_line_are_the_textbook_ones():
    layers, ranks = planted("linear", 10, noise=2.0)
    x = (layers - 1) / 9
    design = np.stack([np.ones(10), x], axis=1)
    solution, [rss], *_ = np.linalg.lstsq(design, ranks, rcond=None)
    errors = np.sqrt(np.diag(rss / 8 * np.linalg.inv(design.T @ design)))
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    residuals = ranks - design @ solution
    left_out = residuals / (1 - np.diag(hat))
    excess = rss / 10 - 1 / 12

    fit = fit_laws(layers, ranks, 10)

    assert fit.verdict == "linear"
    assert fit.best.values == pytest.approx(solution)
    assert [error for _, error in parameters(fit)] == pytest.approx(errors)
    assert fit.best.r_squared == pytest.approx(np.corrcoef(x, ranks)[0, 1] ** 2)
    floored = sum(
        np.log(1 / 12 + t) + r**2 / (1 / 12 + t) - 1
        for r, t in zip(residuals, [excess] * 10, strict=True)
    )
    assert fit.best.aicc == pytest.approx(floored + 6 + 24 / 6)
    assert fit.loo_rmse == pytest.approx(np.sqrt(np.mean(left_out**2)))
