"""The picture holds what the report says, in the colours of the style."""

import io

import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from deltadex.study.ablation import ablation_report
from deltadex.study.ablation.term_subsets import SubsetPredictions
from deltadex.study.pictures.ablation import draw_ablation

FOUR = ("input", "attention", "feed_forward", "bias")
FIVE = ("input", "attention", "source", "feed_forward", "bias")


def make_report(names=FOUR, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(3, size=50)
    predicted = rng.integers(3, size=(1, 2 ** len(names) - 1, 50))
    return ablation_report(
        SubsetPredictions(
            measure="word senses, 5 nearest",
            names=names,
            predicted=predicted,
            targets=targets,
            baseline=np.zeros(50, dtype=np.int64),
            text=np.arange(50),
            settings={},
        )
    )


def test_bars_cells_and_labels_are_the_reports():
    report = make_report()

    figure = draw_ablation(report).sheet
    bars, matrix, colours = figure.axes

    widths = [bar.get_width() for bar in bars.patches]
    assert widths == pytest.approx([100 * one.value for one in report.scores])
    assert [label.get_text() for label in bars.get_yticklabels()] == [
        one.label for one in report.scores
    ]
    assert bars.get_ylim() == (14.5, -0.5)
    np.testing.assert_allclose(matrix.images[0].get_array(), 100 * report.agreement)
    assert len(matrix.texts) == 15 * 15
    assert "accuracy (%)" in bars.get_xlabel()
    assert colours.get_ylabel() == "items predicted alike (%)"


def test_no_text_is_smaller_than_seven_points():
    figure = draw_ablation(make_report()).sheet

    sizes = [
        text.get_fontsize()
        for axes in figure.axes
        for text in (*axes.texts, axes.xaxis.label, axes.yaxis.label, *axes.get_yticklabels())
    ]
    assert min(sizes) >= 7


@pytest.mark.parametrize("names", [FOUR, FIVE, ("input",)])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_any_number_of_terms_can_be_saved(names, ending):
    file = io.BytesIO()

    draw_ablation(make_report(names)).sheet.savefig(file, format=ending)

    assert len(file.getvalue()) > 1000


def test_a_dark_style_gives_a_dark_picture():
    with matplotlib.style.context("dark_background"):
        figure = draw_ablation(make_report()).sheet

    assert to_rgba(figure.get_facecolor()) == (0, 0, 0, 1)
    assert to_rgba(figure.axes[0].xaxis.label.get_color()) == (1, 1, 1, 1)


def test_subsets_without_common_items_leave_their_cell_empty():
    report = make_report(("input", "attention"))
    shares = report.agreement.copy()
    shares[0, 1] = shares[1, 0] = np.nan
    object.__setattr__(report, "agreement", shares)

    figure = draw_ablation(report).sheet

    assert len(figure.axes[1].texts) == 7
