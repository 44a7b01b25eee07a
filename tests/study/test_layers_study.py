"""The whole layer study, from batches of states to JSON and picture."""

import numpy as np
import pytest
from planted_layers import batches, make_hidden

from deltadex.errors import StudyError
from deltadex.study.layers.layers_report import layers_study
from deltadex.study.layers.picture import draw_layers

ALWAYS = [
    *("classifier", "unit-norm", "norm-only"),
    *("mean-removed", "nearest-centroid", "random-retrained", "random-applied"),
]
TRANSFER = [
    *("transfer-to-other", "transfer-from-other", "other-in-domain"),
    *("mixed-here", "mixed-other"),
]


def control(report, name):
    return next((one for one in report.controls if one.name == name), None)


@pytest.fixture(scope="module")
def report():
    return layers_study(
        batches(make_hidden(layers=4, tokens=160, apart=5)),
        other=batches(make_hidden(layers=4, tokens=160, apart=5, seed=1)),
        untrained=batches(make_hidden(layers=4, tokens=160, apart=2, seed=2)),
        max_tokens=120,
    )


def test_every_control_is_there_with_its_sizes_and_chance(report):
    kinds = [(which, fill) for which in ("top", "random") for fill in ("mean", "zero")]
    masks = [[*(f"mask-{w}-{k}-{f}" for w, f in kinds), f"without-top-{k}"] for k in (3, 4)]
    names = [control.name for control in report.controls]

    assert names == [*ALWAYS, *masks[0], *masks[1], *TRANSFER, "untrained"]
    for control in report.controls:
        assert control.score.chance == 0.25
        assert control.score.n_train > control.score.n_test > 0
        assert 0 <= control.score.accuracy <= 1


def test_planted_layers_are_found_by_the_rows_of_the_sample_and_norms_are_of_all_tokens(report):
    assert report.layers == (0, 1, 2, 3)
    assert report.controls[0].score.accuracy > 0.95
    assert control(report, "mixed-other").score.accuracy > 0.95
    assert control(report, "mean-removed").score.accuracy == pytest.approx(0.25, abs=1e-9)
    assert control(report, "nothing") is None
    assert report.norms.n_tokens == report.n_tokens_seen == 160
    assert report.n_tokens == 120
    assert report.n_train + report.n_test == 4 * 120


def test_an_early_stop_is_said(monkeypatch):
    monkeypatch.setattr("deltadex.study.layers.layer_classifier.MOST_ITERATIONS", 1)

    report = layers_study(batches(make_hidden(tokens=48, apart=1)))

    assert report.classifier.iterations == 1
    assert not report.to_json()["classifier"]["converged"]
    assert not control(report, "unit-norm").score.converged


def test_states_that_are_not_finite_are_refused():
    hidden = make_hidden(tokens=48)
    broken = hidden.copy()
    broken[2, 40, 1] = np.inf

    with pytest.raises(StudyError, match="hidden state 2 of 3 holds NaN or infinity"):
        layers_study(batches(broken), max_tokens=20)


def test_the_curve_shows_the_reports_numbers(report):
    panels = draw_layers(report, "column").sheet.axes
    curve = next(axes for axes in panels if axes.get_title().startswith("Contribution"))
    lines = [line.get_ydata() for line in curve.lines if len(line.get_ydata()) == 6]

    assert np.array(lines) == pytest.approx(report.contributions.curve())
