"""Power laws of eigenvalues against SciPy's, the powerlaw package's and planted ones."""

import numpy as np
import powerlaw
import pytest

from deltadex.errors import StudyError
from deltadex.questions.terminal.sections import show_answer
from deltadex.records import Slot, SlotSpectrum
from deltadex.study.spectrum.picture import draw_spectra
from deltadex.study.spectrum.spectrum import SpectrumTable
from deltadex.study.spectrum.spectrum_study import bulk_edge, fit_power_law, spectrum_study


def pareto(n, alpha, seed=0, x_min=1.0):
    return x_min * (1.0 - np.random.default_rng(seed).random(n)) ** (-1.0 / (alpha - 1.0))


@pytest.mark.filterwarnings("ignore:Standard error for the MLE:DeprecationWarning")  # its own
def test_the_law_is_that_of_the_powerlaw_package():
    """Its default searches α up to 3 alone."""
    # values below 1 that follow no power law, and as many above it that do
    body = np.random.default_rng(0).uniform(0.2, 1.0, 150)
    values = np.concatenate([body, pareto(150, 2.5, 1)])

    law = fit_power_law(values)

    other = powerlaw.Fit(values, verbose=False, parameter_ranges={"alpha": [1.0, 100.0]})
    assert (law.alpha, law.x_min, law.distance, law.standard_error) == pytest.approx(
        (other.alpha, other.xmin, other.D, other.power_law.standard_err), rel=1e-9
    )


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).uniform(1.0, 2.0, 600),
        np.repeat([1.0, 2.0, 4.0], 60) * np.random.default_rng(1).uniform(0.99, 1.01, 180),
    ],
    ids=["uniform", "three heaps"],
)
def test_values_without_a_power_law_are_told_by_draws(values):
    assert fit_power_law(values, draws=20).p_value < 0.1


def test_values_that_hardly_differ_have_no_law_and_those_without_a_logarithm_are_refused():
    for values in ([1.0], [2.0, 2.0, 2.0], [1.0, 2.0]):
        assert fit_power_law(np.array(values)) is None
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite and positive"):
            fit_power_law(np.array([1.0, 2.0, 3.0, wrong]))
    with pytest.raises(StudyError, match="no layer matrix"):
        measured()


def spectrum(energies, layer=0, role="q", noise=0.0, shape=(200, 300)):
    return SlotSpectrum(
        slot=Slot("encoder", layer, role),
        part="",
        shape=shape,
        energies=np.asarray(energies, dtype=np.float64),
        noise_energy=noise,
        known_rank=None,
    )


def random_matrix(spikes=()):
    """Energies of independent normal entries, with added directions of these sizes."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 300))
    for size in spikes:
        left, right = rng.normal(size=200), rng.normal(size=300)
        unit = np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
        matrix += size * unit
    return np.linalg.svd(matrix, compute_uv=False) ** 2


def measured(*spectra, **options):
    return spectrum_study("m", {"weights": list(spectra)}, **options)


def test_the_edge_of_a_random_bulk_is_where_marchenko_and_pastur_put_it_below_what_is_planted():
    [matrix] = measured(spectrum(random_matrix()), draws=0).matrices
    [planted] = measured(spectrum(random_matrix(spikes=(60.0, 80.0, 100.0))), draws=0).matrices

    # the largest eigenvalue is off by n^(-2/3): 3 % here (Johnstone 2001)
    assert 10**matrix.log_spectral_norm == pytest.approx(matrix.bulk_edge, rel=0.05)
    assert matrix.bulk_edge == pytest.approx(bulk_edge((200, 300), 200.0 * 300.0), rel=0.02)
    assert matrix.n_spikes <= 2
    assert planted.n_spikes == 3
    assert 10**planted.log_spectral_norm == pytest.approx(100.0**2, rel=0.1)


def test_a_random_matrix_is_no_power_law_and_norms_below_one_have_no_weighted_alpha():
    [matrix] = measured(spectrum(random_matrix()), draws=30).matrices
    [small] = measured(spectrum(pareto(80, 2.0) / 1e6), draws=0).matrices

    assert matrix.power_law.p_value is not None
    assert matrix.alpha_hat == pytest.approx(matrix.power_law.alpha * matrix.log_spectral_norm)
    assert matrix.power_law.alpha > 4.0
    assert small.power_law is not None
    assert small.alpha_hat is None


def test_a_model_that_equals_its_base_has_no_update_and_its_weights_are_measured():
    copy = [spectrum([], layer) for layer in range(12)]
    weights = [spectrum(pareto(80, 2.0), layer) for layer in range(12)]

    report = spectrum_study("m", {"update": copy, "weights": weights}, draws=0)

    assert report.subjects == ("weights",)
    assert report.notes[0].startswith("no update: every layer matrix equals the base's")
    assert not any("fewer than 50" in note for note in report.notes)
    with pytest.raises(StudyError, match="m: no update: every layer matrix equals"):
        spectrum_study("m", {"update": copy}, draws=0)


def test_a_matrix_without_an_update_is_told_from_one_with_few_directions(capsys):
    matrices = [spectrum([4.0, 3, 2, 1]), spectrum([], layer=1)]

    weights = measured(*matrices)
    update = spectrum_study("m", {"update": matrices}, draws=0)

    assert [m.verdict for m in weights.matrices] == ["too few", "too few"]
    assert weights.matrices[0].reason == "4 eigenvalues; a tail needs 50"
    assert weights.matrices[1].log_norm is None
    assert weights.notes[0].startswith("2 of 2 matrices have fewer than 50")
    assert [m.verdict for m in update.matrices] == ["too few", "no update"]
    assert update.notes[0] == "1 of 2 matrices equals the base's: no update"
    assert update.notes[1].startswith("1 of 2 matrices has fewer than 50")
    show_answer(SpectrumTable(update.to_json()).sections())
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("q ")]
    assert row.split("ΔW")[1].split() == ["too", "few", "no", "update"]


def test_eigenvalues_that_rounding_can_make_are_left_out():
    energies = np.concatenate([pareto(100, 2.0, x_min=50.0), np.full(90, 0.01)])
    noise = 2.0

    [matrix] = measured(spectrum(energies, noise=noise), draws=0).matrices

    floor = noise / 60_000 * (np.sqrt(200) + np.sqrt(300)) ** 2
    assert 0.01 < floor < 50.0
    assert (matrix.n_eigenvalues, matrix.n_rounding) == (100, 90)
    assert matrix.power_law.n_tail <= 100


def test_the_picture_has_exponents_and_tails_of_each_subject_on_one_scale():
    rng = np.random.default_rng(0)
    update = [
        spectrum(pareto(80, 1.5 + layer / 2, seed=layer), layer, role)
        for layer in range(3)
        for role in ("q", "up")
    ]
    weights = [spectrum(rng.uniform(1.0, 2.0, 80), layer) for layer in range(3)]
    report = spectrum_study("m", {"update": update, "weights": weights}, draws=5)

    picture = draw_spectra(report, "column")

    exponents, tails, others, _ = picture.figure.axes
    assert exponents.get_ylim() == others.get_ylim()
    assert tails.get_xscale() == tails.get_yscale() == "log"
    labels = [label for _, _, label in picture.places()]
    assert sum("α" in label and "layer" in label for label in labels) == 9
    assert any(label.startswith("ΔW encoder q, layer 0: α") for label in labels)
