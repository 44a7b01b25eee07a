"""The whole layer study, from batches of states to JSON and picture."""

import json
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from planted_layers import batches, make_hidden

from deltadex.errors import StudyError
from deltadex.study.layers import layers_study
from deltadex.study.pictures.layers import draw_layers

ALWAYS = [
    "classifier",
    "unit-norm",
    "norm-only",
    "mean-removed",
    "nearest-centroid",
    "random-retrained",
    "random-applied",
]
TRANSFER = [
    "transfer-to-other",
    "transfer-from-other",
    "other-in-domain",
    "mixed-here",
    "mixed-other",
]


@pytest.fixture(scope="module")
def report():
    return layers_study(
        batches(make_hidden(layers=4, tokens=160, apart=5)),
        other=batches(make_hidden(layers=4, tokens=160, apart=5, seed=1)),
        untrained=batches(make_hidden(layers=4, tokens=160, apart=2, seed=2)),
        max_tokens=120,
        masks=[2],
    )


def test_every_control_is_there_with_its_sizes_and_chance(report):
    masks = [f"mask-{which}-2-{fill}" for which in ("top", "random") for fill in ("mean", "zero")]
    names = [control.name for control in report.controls]

    assert names == [*ALWAYS, *masks, "without-top-2", *TRANSFER, "untrained"]
    for control in report.controls:
        assert control.score.chance == 0.25
        assert control.score.n_train > control.score.n_test > 0
        assert 0 <= control.score.accuracy <= 1


def test_planted_layers_are_found(report):
    assert report.layers == (0, 1, 2, 3)
    assert report.controls[0].score.accuracy > 0.95
    assert report.control("mixed-other").score.accuracy > 0.95
    assert report.control("mean-removed").score.accuracy == pytest.approx(0.25, abs=1e-9)
    assert report.control("nothing") is None


def test_norms_are_of_all_tokens_and_rows_of_the_sample(report):
    assert report.norms.n_tokens == report.n_tokens_seen == 160
    assert report.n_tokens == 120
    assert report.n_train + report.n_test == 4 * 120


def test_the_json_is_plain_and_holds_everything(report):
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))

    assert list(document) == [
        "layers",
        "dim",
        "n_texts",
        "n_tokens",
        "n_tokens_seen",
        "n_train",
        "n_test",
        "test_share",
        "seed",
        "chance",
        "norms",
        "pca",
        "pca_unit_norm",
        "classifier",
        "contributions",
        "controls",
    ]
    assert document["controls"][0]["confusion"] == [
        list(row) for row in report.controls[0].score.confusion
    ]


def test_equal_seeds_give_equal_studies_whatever_the_batches():
    hidden = make_hidden(tokens=96, apart=1)

    first = layers_study(batches(hidden), max_tokens=60, seed=5)
    again = layers_study(batches(hidden, sizes=(7,)), max_tokens=60, seed=5)
    other = layers_study(batches(hidden), max_tokens=60, seed=6)

    controls = [study.to_json()["controls"] for study in (first, again, other)]
    assert controls[0] == controls[1] != controls[2]
    assert np.array_equal(first.classifier.weights, again.classifier.weights)


def test_without_other_texts_and_twin_their_controls_are_left_out():
    report = layers_study(batches(make_hidden(tokens=48)), include_embedding=False, masks=[])

    assert [control.name for control in report.controls] == ALWAYS
    assert report.layers == report.norms.layers == (1, 2)


def test_an_early_stop_is_said(monkeypatch):
    monkeypatch.setattr("deltadex.study.layers.layer_classifier.MOST_ITERATIONS", 1)

    report = layers_study(batches(make_hidden(tokens=48, apart=1)), masks=[])

    assert not report.to_json()["classifier"]["converged"]
    assert not report.control("unit-norm").score.converged


def test_states_of_another_shape_are_a_wrong_call():
    with pytest.raises(ValueError, match="untrained has 3 layers of 5 dimensions"):
        layers_study(
            batches(make_hidden(tokens=48)),
            untrained=batches(make_hidden(tokens=48, dim=5)),
            masks=[],
        )


def test_too_few_texts_are_refused_with_the_next_step():
    with pytest.raises(StudyError, match="give more texts"):
        layers_study(batches(make_hidden(tokens=48), tokens_a_text=16))


def test_no_states_at_all_are_refused():
    with pytest.raises(StudyError, match="0 tokens"):
        layers_study([])


def test_states_that_are_not_finite_are_refused_wherever_they_are():
    hidden = make_hidden(tokens=48)
    hidden[2, 40, 1] = np.inf

    with pytest.raises(StudyError, match="layer 2 of 3 holds NaN or infinity"):
        layers_study(batches(hidden), max_tokens=20)


# picture


def png(figure):
    page = BytesIO()
    figure.savefig(page, format="png", dpi=30)
    return page.getvalue()


@pytest.fixture(scope="module")
def figure(report):
    return draw_layers(report).sheet


def test_the_picture_has_four_labelled_panels_and_two_colour_bars(figure):
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]

    assert len(titles) == 4
    assert len(figure.axes) == 6
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


def test_nothing_is_smaller_than_seven_points(figure):
    texts = figure.findobj(matplotlib.text.Text)

    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 7


def test_a_bar_for_each_control_and_a_line_at_chance(report, figure):
    bars = next(axes for axes in figure.axes if axes.get_title() == "Telling layers apart")

    assert [bar.get_width() for bar in bars.patches] == [
        control.score.accuracy for control in report.controls
    ]
    assert any(list(line.get_xdata()) == [0.25, 0.25] for line in bars.lines)


def test_page_and_ink_are_those_of_the_settings(report):
    with matplotlib.rc_context({"figure.facecolor": "#101010", "text.color": "#eeeeee"}):
        figure = draw_layers(report).sheet

    bars = next(axes for axes in figure.axes if axes.get_title() == "Telling layers apart")
    assert matplotlib.colors.to_hex(figure.get_facecolor()) == "#101010"
    assert bars.lines[-1].get_color() == "#eeeeee"


def test_equal_reports_give_equal_pictures(report, figure):
    assert png(draw_layers(report).sheet) == png(figure)


@pytest.mark.parametrize(("layers", "dim"), [(2, 2), (2, 1), (33, 5)])
def test_few_and_many_layers_can_be_drawn(monkeypatch, layers, dim):
    monkeypatch.setattr("deltadex.study.layers.layer_classifier.MOST_ITERATIONS", 5)
    hidden = make_hidden(layers=layers, tokens=24, dim=dim, apart=1)

    report = layers_study(batches(hidden, tokens_a_text=4), masks=[])

    assert png(draw_layers(report).sheet).startswith(b"\x89PNG")
