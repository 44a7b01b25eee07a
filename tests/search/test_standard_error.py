import numpy as np
import pytest

from deltadex.search.sketch_scores import StandardErrors


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def estimates(make_features, n=600):
    """Cosines from n independent sets of random features, and their stated errors."""
    cosines, stated = [], []
    for seed in range(n):
        a, b = unit(make_features(np.random.default_rng(seed)))
        cosines.append(a @ b)
        stated.append(StandardErrors(a).cosine(b)[1])
    return np.array(cosines), np.array(stated)


@pytest.mark.parametrize("c", [0.0, 0.5, 0.9])
def test_gaussian_features_have_fishers_error(c):
    def features(rng):
        x, y = rng.normal(size=(2, 400))
        return np.stack([x, c * x + np.sqrt(1 - c**2) * y])

    cosines, stated = estimates(features)

    # 600 draws know a standard deviation to 3 %
    assert np.std(cosines) == pytest.approx((1 - c**2) / np.sqrt(400), rel=0.1)
    assert np.mean(stated) == pytest.approx(np.std(cosines), rel=0.1)


def test_heavy_tailed_features_have_a_larger_error_and_it_is_stated():
    def features(rng):
        x, y, scale = rng.normal(size=(3, 400))
        return np.stack([x, 0.3 * x + np.sqrt(1 - 0.09) * y]) * scale

    cosines, stated = estimates(features)

    assert np.std(cosines) > 1.5 * (1 - 0.09) / np.sqrt(400)
    assert np.mean(stated) == pytest.approx(np.std(cosines), rel=0.1)


def test_tensor_sketches_of_low_rank_matrices_state_their_error():
    rng = np.random.default_rng(0)
    left = unit(rng.normal(size=(4, 32)))
    mixed = unit(left + 0.8 * rng.normal(size=(4, 32)) / np.sqrt(32))
    exact = unit(np.stack([(x.T @ x).ravel() for x in (left, mixed)]))

    def features(rng):
        dim = 256
        sketches = []
        hashes = [(rng.integers(dim, size=32), rng.choice([-1, 1], size=32)) for _ in "ab"]
        for matrix in (left, mixed):
            spectra = []
            for buckets, signs in hashes:
                table = np.zeros((4, dim))
                np.add.at(table.T, buckets, (matrix * signs).T)
                spectra.append(np.fft.rfft(table))
            sketches.append(np.fft.irfft((spectra[0] * spectra[1]).sum(axis=0), n=dim))
        return np.stack(sketches)

    cosines, stated = estimates(features)

    assert np.mean(cosines) == pytest.approx(exact[0] @ exact[1], abs=0.02)
    assert np.mean(stated) == pytest.approx(np.std(cosines), rel=0.25)


def test_twins_have_no_error():
    twin = unit(np.random.default_rng(0).normal(size=50)).astype(np.float32)

    assert StandardErrors(twin).cosine(twin.astype(np.float64))[1] == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_it_is_the_length_of_the_residuals(length):
    a, b = unit(np.random.default_rng(1).standard_t(3, size=(2, 80)))
    residuals = a * b - (a @ b) * (a**2 + b**2) / 2

    cosine, error = StandardErrors(a).cosine(length * b)

    assert cosine == pytest.approx(a @ b, abs=1e-12)
    assert error == pytest.approx(np.linalg.norm(residuals), abs=1e-6)
