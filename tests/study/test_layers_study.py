"""The whole layer study, from batches of states to JSON and picture."""

import itertools
import json
from dataclasses import replace
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from planted_layers import batches, make_hidden

from deltadex.errors import StudyError
from deltadex.pictures.layers import draw_layers
from deltadex.study.layers import ModelPoint, layers_study
from deltadex.study.layers.layers_report import Sweep, SweepPoint

ALWAYS = [
    "classifier",
    "decision-tree",
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
        "tree",
        "texts_sweep",
        "n_punctuation_removed",
        "context_sweep",
        "models",
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

    with pytest.raises(StudyError, match="hidden state 2 of 3 holds NaN or infinity"):
        layers_study(batches(hidden), max_tokens=20)


# picture


def png(figure):
    page = BytesIO()
    figure.savefig(page, format="png", dpi=30)
    return page.getvalue()


@pytest.fixture(scope="module")
def swept(report):
    """The report with a sweep of each kind; their numbers are those of its own controls."""
    scores = [control.score for control in report.controls[:3]]
    points = tuple(
        SweepPoint(
            value=10 * place,
            n_reaching=40,
            n_texts=20,
            n_tokens=99,
            score=score,
            difference=None,
            difference_error=None,
        )
        for place, score in enumerate(scores, start=1)
    )
    sweep = Sweep(variable="context", n_examined=50, held_back="", points=points, skipped=())
    models = tuple(
        ModelPoint(model=f"$m{n}", n_parameters=10**n, n_layers=3, dim=6, score=scores[0])
        for n in (7, 8)
    )
    return replace(
        report,
        context_sweep=sweep,
        texts_sweep=replace(sweep, variable="texts"),
        models=models,
    )


@pytest.fixture(scope="module")
def pictures(report, swept):
    return {
        (name, width): draw_layers(study, width)
        for name, study in (("plain", report), ("swept", swept))
        for width in ("full", "column")
    }


def panel(picture, title):
    return next(axes for axes in picture.sheet.axes if axes.get_title().startswith(title))


@pytest.mark.parametrize("width", ["full", "column"])
@pytest.mark.parametrize(("name", "panels"), [("plain", 5), ("swept", 8)])
def test_a_labelled_panel_for_each_part_and_each_sweep(pictures, name, width, panels):
    axes = pictures[name, width].sheet.axes

    assert len([one for one in axes if one.get_title()]) == panels
    assert len(axes) == panels + 2  # bars of layers and of shares
    assert all(one.get_xlabel() or one.get_ylabel() for one in axes)


def test_nothing_is_smaller_than_seven_points(pictures):
    for picture in pictures.values():
        texts = picture.sheet.findobj(matplotlib.text.Text)

        assert min(text.get_fontsize() for text in texts if text.get_text()) >= 7


def test_a_dot_for_each_control_in_rows_of_one_question_and_a_line_at_chance(report, pictures):
    axes = panel(pictures["plain", "full"], "Telling layers apart")
    dots = [
        (x, round(y))
        for container in axes.containers
        for x, y in zip(*container.lines[0].get_data(), strict=True)
    ]
    rows = [label.get_text() for label in axes.get_yticklabels()]

    assert sorted(x for x, _ in dots) == sorted(c.score.accuracy for c in report.controls)
    assert len(rows) == len(set(rows)) == len(report.controls) - 5
    of_mask = [x for x, row in dots if rows[row] == "top 2 dims masked"]
    assert len(of_mask) == 5
    assert any(list(line.get_xdata()) == [0.25, 0.25] for line in axes.lines)


def test_the_curve_and_the_sweeps_show_the_reports_numbers(swept, pictures):
    picture = pictures["swept", "full"]
    curve = panel(picture, "Contribution")
    lines = [line.get_ydata() for line in curve.lines if len(line.get_ydata()) == 6]

    assert np.array(lines) == pytest.approx(swept.contributions.curve())
    for title, values in (("By context", [10, 20, 30]), ("By number", [10, 20, 30])):
        drawn = panel(picture, title).containers[0].lines[0].get_data()
        assert drawn[0].tolist() == values
        assert drawn[1].tolist() == [p.score.accuracy for p in swept.context_sweep.points]
    assert panel(picture, "By model").containers[0].lines[0].get_xdata().tolist() == [10, 100]


def test_every_dot_answers_to_the_mouse_with_its_value(report, pictures):
    picture = pictures["plain", "full"]
    png(picture.sheet)
    labels = [label for _, _, label in picture.places()]

    for control in report.controls:
        wanted = f"{control.title}: {control.score.accuracy:.3f}"
        assert any(label.startswith(wanted) for label in labels)
    assert "mean of layer 2" in labels
    assert f"layer 0: n50 = {report.contributions.n50[0]}" in labels


def test_page_and_ink_are_those_of_the_settings(report):
    with matplotlib.rc_context({"figure.facecolor": "#101010", "text.color": "#eeeeee"}):
        picture = draw_layers(report)

    bars = panel(picture, "Telling layers apart")
    assert matplotlib.colors.to_hex(picture.sheet.get_facecolor()) == "#101010"
    assert "#eeeeee" in [line.get_color() for line in bars.lines]


def test_equal_reports_give_equal_pictures(report):
    assert png(draw_layers(report).sheet) == png(draw_layers(report).sheet)


@pytest.mark.parametrize(("layers", "dim"), [(2, 1), (33, 5)])
def test_few_and_many_layers_can_be_drawn(monkeypatch, layers, dim):
    monkeypatch.setattr("deltadex.study.layers.layer_classifier.MOST_ITERATIONS", 5)
    hidden = make_hidden(layers=layers, tokens=24, dim=dim, apart=1)

    report = layers_study(batches(hidden, tokens_a_text=4), masks=[])

    assert png(draw_layers(report).sheet).startswith(b"\x89PNG")


def test_models_of_almost_one_size_have_labels_apart(swept):
    """matplotlib labels every minor tick of such a log axis, one upon the other."""
    first, second = (
        replace(model, n_parameters=n)
        for model, n in zip(swept.models, (110_000_000, 125_000_000), strict=True)
    )
    sheet = draw_layers(replace(swept, models=(first, second)), "column").sheet

    axes = next(one for one in sheet.axes if one.get_title() == "By model size")
    sheet.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels(which="both")]
    shown = sorted((box for box in boxes if box.width > 1), key=lambda box: box.x0)
    assert len(shown) > 1
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(shown))
