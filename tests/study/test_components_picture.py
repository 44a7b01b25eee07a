"""Pictures of components: panels, lines that differ without colour, and defined symbols."""

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest
from tiny_networks import edited, make_texts, perturb, tiny_network

from deltadex.pictures.components import STYLES, draw_components
from deltadex.study.components import components_study
from deltadex.study.components.components_study import FITS, LinearFit

TEXTS = make_texts(9, 12)


@pytest.fixture(scope="module")
def alone():
    """All the panels of one network, as if there had been tokens enough."""
    report = components_study(tiny_network("gpt2"), TEXTS, heads=True, linear=True)
    (stack,) = report.stacks
    r2 = np.array([0.4, 0.5, 0.3])
    fits = tuple(LinearFit(outcome=y, predictor=x, r2=r2, r2_train=r2) for y, x in FITS)
    linear = dataclasses.replace(
        stack.linear, fits=fits, train_tokens=10_000, held_out_tokens=10_000
    )
    return dataclasses.replace(report, stacks=(dataclasses.replace(stack, linear=linear),))


@pytest.fixture(scope="module")
def compared():
    base = tiny_network("t5")
    tuned = edited(base, lambda model: perturb(model, by=0.02, seed=1))
    return components_study(tuned, TEXTS, against=base, heads=True, linear=True)


def titles(picture):
    return [axes.get_title() for axes in picture.figure.axes if axes.get_title()]


def written(picture):
    picture.sheet.canvas.draw()
    found = picture.sheet.findobj(mpl.text.Text)
    return " ".join(text.get_text() for text in found)


@pytest.mark.parametrize("width", ["column", "full"])
def test_every_measure_has_a_panel_at_both_widths(alone, compared, width):
    one, both = draw_components(alone, width), draw_components(compared, width)

    assert titles(one) == [
        "importance",
        "length",
        "heads in the last layer",
        "linear maps, held-out texts",
    ]
    assert titles(both) == [
        f"{stack}: {panel}"
        for stack in ("encoder", "decoder")
        for panel in (
            "importance",
            "how far each term moved",
            "where it was edited",
            "edited heads",
            "linear maps, held-out texts",
        )
    ]
    assert "too few tokens" in written(both)


def test_terms_differ_by_marker_and_line_too():
    colours, markers, lines = zip(*STYLES.values(), strict=True)

    assert len(set(markers)) == len(set(map(str, lines))) == len(set(colours)) == len(STYLES)


def test_the_legend_names_each_term_once_and_the_caption_defines_the_symbols(compared):
    picture = draw_components(compared)

    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "input",
        "attention",
        "feed-forward",
        "source",
    ]
    text = " ".join(written(picture).split())
    for symbol in ("e: the hidden state", "x: one of its terms", "x′: the term in", "Own change"):
        assert symbol in text


def test_points_answer_with_layer_term_and_value(alone):
    picture = draw_components(alone)
    picture.sheet.canvas.draw()

    labels = [label for _, _, label in picture.places()]

    (stack,) = alone.stacks
    value = stack.heads.importance_last[2, 3]
    assert f"layer 2, head 3\n⟨e, x⟩ / |e|² = {value:.4f}" in labels
    assert f"hidden state 1, attention\n|x| / |e| = {stack.norm_ratio[1, 1]:.4f}" in labels
    terms = len(stack.terms) - len(stack.absent)
    assert len(labels) == 2 * terms * len(stack.layers) + 3 * 4 + 2 * 3
