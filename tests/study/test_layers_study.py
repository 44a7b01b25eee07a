"""The whole layer study: its sweeps, from batches of states to JSON and picture."""

import json
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from planted_layers import batches, make_hidden, make_rows
from tiny_networks import make_texts, speaking, tiny_network

from deltadex.errors import StudyError
from deltadex.pictures.layers import draw_layers
from deltadex.study.layers import (
    LayersPlan,
    ModelPoint,
    layers_report,
    layers_study,
    measure_model,
    studied_model,
    study_network,
    sweep_contexts,
)
from deltadex.study.layers.layer_classifier import fit_classifier
from deltadex.study.layers.layer_rows import PunctuationTokens, split_by_text
from deltadex.study.layers.layers import Layers
from deltadex.study.layers.layers_report import Sweep, SweepPoint, texts_sweep
from deltadex.study.network import token_states
from deltadex.study.texts import Text

ALWAYS = [
    *("classifier", "decision-tree", "unit-norm", "norm-only"),
    *("mean-removed", "nearest-centroid", "random-retrained", "random-applied"),
]
TRANSFER = [
    *("transfer-to-other", "transfer-from-other", "other-in-domain"),
    *("mixed-here", "mixed-other"),
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


def test_planted_layers_are_found_by_the_rows_of_the_sample_and_norms_are_of_all_tokens(report):
    assert report.layers == (0, 1, 2, 3)
    assert report.controls[0].score.accuracy > 0.95
    assert report.control("mixed-other").score.accuracy > 0.95
    assert report.control("mean-removed").score.accuracy == pytest.approx(0.25, abs=1e-9)
    assert report.control("nothing") is None
    assert report.norms.n_tokens == report.n_tokens_seen == 160
    assert report.n_tokens == 120
    assert report.n_train + report.n_test == 4 * 120


def test_the_json_is_plain_and_holds_everything(report):
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))

    assert list(document) == [
        *("layers", "dim", "n_texts", "n_tokens", "n_tokens_seen", "n_train", "n_test"),
        *("test_share", "seed", "chance", "norms", "pca", "pca_unit_norm", "classifier"),
        *("contributions", "controls", "tree", "texts_sweep", "n_punctuation_removed"),
        *("context_sweep", "models"),
    ]
    confusion = [list(row) for row in report.controls[0].score.confusion]
    assert document["controls"][0]["confusion"] == confusion


def test_equal_seeds_give_equal_studies_whatever_the_batches():
    hidden = make_hidden(tokens=96, apart=1)

    first = layers_study(batches(hidden), max_tokens=60, seed=5)
    again = layers_study(batches(hidden, sizes=(7,)), max_tokens=60, seed=5)
    other = layers_study(batches(hidden), max_tokens=60, seed=6)

    controls = [study.to_json()["controls"] for study in (first, again, other)]
    assert controls[0] == controls[1] != controls[2]
    assert np.array_equal(first.classifier.weights, again.classifier.weights)


def test_an_early_stop_is_said(monkeypatch):
    monkeypatch.setattr("deltadex.study.layers.layer_classifier.MOST_ITERATIONS", 1)

    report = layers_study(batches(make_hidden(tokens=48, apart=1)), masks=[])

    assert report.classifier.iterations == 1
    assert not report.to_json()["classifier"]["converged"]
    assert not report.control("unit-norm").score.converged


def test_states_of_another_shape_too_few_and_not_finite_ones_are_refused():
    hidden = make_hidden(tokens=48)
    broken = hidden.copy()
    broken[2, 40, 1] = np.inf

    with pytest.raises(ValueError, match="untrained has 3 layers of 5 dimensions"):
        layers_study(batches(hidden), untrained=batches(make_hidden(tokens=48, dim=5)), masks=[])
    with pytest.raises(StudyError, match="give more texts"):
        layers_study(batches(hidden, tokens_a_text=16))
    with pytest.raises(StudyError, match="0 tokens"):
        layers_study([])
    with pytest.raises(StudyError, match="hidden state 2 of 3 holds NaN or infinity"):
        layers_study(batches(broken), max_tokens=20)


@pytest.fixture(scope="module")
def swept(report):
    """The report with a sweep of each kind; their numbers are those of its own controls."""
    scores = [control.score for control in report.controls[:3]]
    counts = {"n_reaching": 40, "n_texts": 20, "n_tokens": 99}
    points = tuple(
        SweepPoint(value=value, **counts, score=score, difference=None, difference_error=None)
        for value, score in zip((10, 20, 30), scores, strict=True)
    )
    sweep = Sweep(variable="context", n_examined=50, held_back="", points=points, skipped=())
    models = tuple(
        ModelPoint(model=f"$m{n}", n_parameters=10**n, n_layers=3, dim=6, score=scores[0])
        for n in (7, 8)
    )
    of_texts = replace(sweep, variable="texts")
    return replace(report, context_sweep=sweep, texts_sweep=of_texts, models=models)


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
    sheet = pictures[name, width].sheet

    assert len([one for one in sheet.axes if one.get_title()]) == panels
    assert len(sheet.axes) == panels + 2  # bars of layers and of shares
    assert all(one.get_xlabel() or one.get_ylabel() for one in sheet.axes)
    texts = sheet.findobj(matplotlib.text.Text)
    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 7


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


def planned(**options):
    return LayersPlan(Layers("m", texts="t", **options))


LENGTHS = [6] * 10 + [11] * 15 + [20] * 30


def watching(**options):
    """A plan, and how many texts each pass reads."""
    passes = []
    watched = lambda batches, n_texts: passes.append(n_texts) or batches  # noqa: E731
    return replace(planned(**options), watched=watched), passes


def test_more_texts_tell_layers_apart_better_on_the_same_held_back_texts():
    split = split_by_text(make_rows(make_hidden(layers=3, tokens=400, dim=12, apart=1.6)))
    classifier = fit_classifier(split.train)

    sweep = texts_sweep(split, [40, 3, 10, 99], classifier, seed=1)

    few, some, all_of_them = sweep.points
    found = [(one.value, one.score.n_train, one.score.n_test_texts) for one in sweep.points]
    assert found == [(3, 72, 10), (10, 240, 10), (40, 960, 10)]
    assert few.score.accuracy < some.score.accuracy <= all_of_them.score.accuracy + 0.03
    assert few.difference is None
    assert some.difference == pytest.approx(some.score.accuracy - few.score.accuracy)
    assert some.difference_error > 0
    assert sweep.skipped == ("99 texts: the classifier learns from 40",)
    expected = classifier.score_of(classifier.predict(split.test.vectors), split.test).accuracy
    document = json.loads(json.dumps(sweep.to_json()))
    assert document["points"][2]["accuracy"] == pytest.approx(expected, abs=0.011)


def test_a_causal_network_is_run_once_and_gives_what_a_run_for_each_length_gives(monkeypatch):
    plan, passes = watching(keep_tokens=150, batch_size=7)
    arguments = (tiny_network("gpt2"), make_texts(*LENGTHS), [20, 5, 10], plan)

    once = sweep_contexts(*arguments)
    monkeypatch.setattr(layers_report, "_same_beginnings", lambda *arguments: False)
    each = sweep_contexts(*arguments)

    assert passes == [30, 30, 30, 30]
    for one, other in zip(once.points, each.points, strict=True):
        # predictions near a boundary may move with the last bits of the states
        assert one.score.accuracy == pytest.approx(other.score.accuracy, abs=0.02)
        for part in ("value", "n_tokens", "n_texts"):
            assert getattr(one, part) == getattr(other, part)


def test_an_encoder_is_run_for_each_length_on_the_texts_that_reach_the_longest():
    plan, passes = watching(keep_tokens=110)

    sweep = sweep_contexts(tiny_network("bert"), make_texts(*LENGTHS), [5, 11, 40, 16], plan)

    assert passes == [30, 30, 30]
    assert sweep.n_examined == 55
    found = [(point.value, point.n_reaching, point.n_tokens) for point in sweep.points]
    assert found == [(5, 55, 110), (11, 45, 110), (16, 30, 110)]
    assert sweep.points[0].score.n_test_texts == 6
    assert sweep.skipped == ("40 tokens: 0 reach it of 55 texts, at least 20 are needed",)
    assert sweep.points[1].difference_error > 0


def test_no_more_texts_are_examined_than_a_sweep_needs_and_some_have_to_reach_its_lengths():
    network, many = tiny_network("gpt2"), make_texts(*[12] * 80)

    sweep = sweep_contexts(network, many, [4, 12], planned(most_texts=24, batch_size=4))

    assert 24 <= sweep.n_examined < 80
    assert sweep.points[0].n_reaching == sweep.n_examined
    with pytest.raises(StudyError, match=r"2 texts have 9 tokens or more, of 3 texts.*shorter"):
        sweep_contexts(network, make_texts(9, 9, 4), [9, 12], planned())


def test_models_of_other_sizes_are_measured_on_the_same_held_back_texts():
    texts = make_texts(*[9] * 12, *[14] * 12)
    plan = planned(keep_tokens=120, seed=3)
    small = tiny_network("gpt2")
    large = tiny_network("gpt2", n_embd=48, n_layer=4)

    report = study_network(small, texts, plan)
    first = studied_model(small, report)
    again, other = (measure_model(network, texts, plan) for network in (small, large))

    assert first.score.accuracy == pytest.approx(again.score.accuracy)
    assert (other.n_layers, other.dim, other.score.chance) == (4, 48, 0.2)
    assert other.n_parameters == sum(p.numel() for p in large.model.parameters())
    assert other.above_chance == pytest.approx((other.score.accuracy - 0.2) / 0.8)
    assert other.score.n_test_texts == first.score.n_test_texts == 5


def test_states_of_punctuation_are_left_out_and_counted():
    network = speaking("bert")
    texts = [Text("the , cat ! sat .", "", "1"), Text("? ! ,", "", "2"), Text("dogs.", "", "3")]
    marks = PunctuationTokens(network.tokenizer)

    words = list(marks.removed(token_states(network, texts, batch_size=1)))

    pieces = [network.tokenizer.convert_ids_to_tokens(batch.token.tolist()) for batch in words]
    assert pieces == [["the", *"c", "##a", "##t", "s", "##a", "##t"], ["d", "##o", "##g", "##s"]]
    assert marks.n_seen == 7
    assert [batch.hidden.shape[1] for batch in words] == [7, 4]


def test_a_plan_without_punctuation_counts_what_it_leaves_out_and_needs_a_tokenizer():
    texts = [Text(f"the cat, a dog {'.' * (1 + n % 2)}", "", str(n)) for n in range(12)]
    plan = planned(punctuation=False, keep_tokens=60)
    network = speaking("bert")

    report = study_network(network, texts, plan)

    assert report.n_punctuation_removed == 12 + 18
    assert report.control("no-punctuation") is None
    assert study_network(network, texts, planned()).control("no-punctuation") is not None
    with pytest.raises(StudyError, match=r"no tokenizer.*--no-punctuation"):
        study_network(tiny_network("bert"), texts, plan)
