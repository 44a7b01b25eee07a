"""The picture holds what the report says, at both widths."""

import numpy as np
import pytest

from deltadex.pictures import draw_ablation, save_picture
from deltadex.study.ablation import AblationStudyReport, ablation_report
from deltadex.study.ablation.subsets import SubsetPredictions

FOUR = ("input", "attention", "feed_forward", "bias")
KEYS = ("masked-own", "masked-trained", "senses-knn", "senses-mlp", "senses-mlp-lemma", "tagging")


def make_report(names=FOUR, keys=KEYS, runs=2):
    measures = []
    for seed, key in enumerate(keys):
        rng = np.random.default_rng(seed)
        targets = rng.integers(3, size=50)
        predictions = SubsetPredictions(
            key=key,
            measure=key,
            names=names,
            predicted=rng.integers(3, size=(runs, 2 ** len(names), 50)),
            targets=targets,
            baseline=np.zeros(50, dtype=np.int64),
            text=np.arange(50),
            settings={"predicts": "masked"},
        )
        measures.append(ablation_report(predictions))
    return AblationStudyReport(
        model="tiny",
        stack="encoder",
        layer=3,
        terms=names,
        absent=(),
        texts=60,
        error=1e-7,
        measures=tuple(measures),
        skipped=(),
    )


@pytest.mark.parametrize(("width", "n_matrices"), [("full", 3), ("column", 1)])
def test_dots_cells_and_labels_are_the_reports(width, n_matrices, tmp_path):
    report = make_report()
    picture = draw_ablation(report, width)
    dots = [axes for axes in picture.sheet.axes if axes.get_legend()]
    matrices = [axes for axes in picture.sheet.axes if axes.images and not axes.get_legend()]

    drawn = [
        line.get_xdata() for axes in dots for line in axes.lines if len(line.get_xdata()) == 16
    ]
    for values, measure in zip(drawn, report.measures, strict=True):
        assert list(values) == pytest.approx([score.value for score in measure.scores])
    labels = [label.get_text() for label in dots[0].get_yticklabels()]
    assert labels == [score.label for score in report.measures[0].scores]
    shown = [axes for axes in matrices if axes.get_title()]
    assert len(shown) == n_matrices
    by_key = {measure.key: measure for measure in report.measures}
    np.testing.assert_allclose(shown[0].images[0].get_array(), by_key["senses-mlp"].agreement)
    path = save_picture(lambda: picture, tmp_path / "a.png", title="")
    assert path.stat().st_size > 1000
    hovers = [label for _, _, label in picture.places()]
    assert len(hovers) == 6 * 16 + n_matrices * 256
    assert sum("sd over 2 runs" in label for label in hovers) == 6 * 16


@pytest.mark.parametrize(
    ("names", "keys"), [(("input",), ("tagging",)), (FOUR[:3], ("masked-own", "senses-knn"))]
)
def test_any_terms_and_measures_can_be_drawn(names, keys, tmp_path):
    report = make_report(names, keys, runs=1)

    path = save_picture(lambda: draw_ablation(report), tmp_path / "a.html", title="x")

    assert "alike" in path.read_text("utf-8")


def test_subsets_without_common_items_leave_their_cell_empty():
    report = make_report(keys=("senses-knn",))
    rows = [list(row) for row in report.measures[0].agreement]
    rows[0][1] = rows[1][0] = None
    object.__setattr__(report.measures[0], "agreement", tuple(map(tuple, rows)))

    picture = draw_ablation(report)
    picture.sheet.canvas.draw()

    assert sum("alike" in label for _, _, label in picture.places()) == 254
