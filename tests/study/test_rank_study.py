"""The rank study of a model and a family, its JSON and its picture."""

import io

import numpy as np
import pytest

from deltadex.errors import StudyError
from deltadex.records import Slot, SlotSpectrum
from deltadex.study.rank.picture import draw_ranks
from deltadex.study.rank.rank_study import family_ranks, rank_study


def spectrum(rank, layer=0, role="q", stack="encoder", part="", noise=0.0, known=None, size=64):
    """`rank` equal energies; none for rank 0."""
    return SlotSpectrum(
        slot=Slot(stack, layer, role),
        part=part,
        shape=(size, 2 * size),
        energies=np.ones(rank),
        noise_energy=noise,
        known_rank=known,
    )


def model(name, ranks, **fields):
    """A study of one role at θ=1, where each rank is the number of energies."""
    spectra = [spectrum(rank, layer, **fields) for layer, rank in enumerate(ranks)]
    return rank_study(name, spectra, thetas=(1.0,))


def falling(n, offset=0):
    return [offset + 2 * (n - layer) for layer in range(n)]


def test_a_model_has_a_curve_for_each_stack_role_and_theta_in_printing_order():
    spectra = [
        spectrum(4, layer, role, stack)
        for stack in ("decoder", "encoder")
        for role in ("down", "cross_q", "q")
        for layer in (1, 0)
    ]

    report = rank_study("m", spectra, thetas=(0.9, 0.5))

    assert [(c.stack, c.role, c.theta) for c in report.curves] == [
        (stack, role, theta)
        for stack in ("encoder", "decoder")
        for role in ("q", "cross_q", "down")
        for theta in (0.5, 0.9)
    ]
    assert [[p.rank for p in c.points] for c in report.curves[:2]] == [[2.0, 2.0], [4.0, 4.0]]
    assert report.curves[0].points[0].normalised == 2 / 64
    assert report.depths == {"encoder": 2, "decoder": 2}


def test_a_law_is_fitted_to_the_points_that_carry_a_rank():
    ranks = falling(12)
    spectra = [spectrum(rank, layer) for layer, rank in enumerate(ranks)]
    spectra[4] = spectrum(60, 4, noise=30.0)
    spectra[7] = spectrum(0, 7)

    [curve] = rank_study("m", spectra, thetas=(1.0,)).curves

    assert curve.fit.verdict == "linear"
    assert curve.fit.points == 10
    assert curve.fit.best.values == pytest.approx((24.0, -22.0))
    assert [p.layer for p in curve.points if not p.valid] == [4]
    assert "rounding" in curve.points[4].reason
    assert (curve.points[7].rank, curve.points[7].reason) == (0.0, "no update here")


def test_experts_are_averaged_without_zeros_and_rounding_and_flagged_where_nothing_is_left():
    spectra = [
        *(spectrum(4, part="0"), spectrum(8, part="1"), spectrum(0, part="2")),
        spectrum(50, part="3", noise=25.0),
    ]
    noisy = [spectrum(rank, part=str(rank), noise=30.0) for rank in (40, 50)]

    report = rank_study("m", spectra, thetas=(1.0,))
    [flagged] = rank_study("m", noisy).curves[0].points

    [point] = report.curves[0].points
    assert (point.rank, point.count, point.left_out, point.valid) == (6.0, 2, 2, True)
    assert point.standard_error == pytest.approx(2.0)
    assert report.slots[0].count == 3
    assert report.slots[0].norm == pytest.approx(np.sqrt(62))
    assert (flagged.rank, flagged.count, flagged.valid) == (22.5, 2, False)
    assert flagged.reason.startswith("in all 2 that are not zero")


def test_an_adapter_says_that_its_rank_is_bounded_and_an_update_of_zero_that_it_is():
    nothing = "no layer matrix differs from the base's: there is no update to rank"

    assert rank_study("m", [spectrum(8, known=8), spectrum(4, 1, known=4)]).notes == (
        "the update is an adapter of rank 4…8: no rank here can exceed it, "
        "so depth shows only how much of it is used",
    )
    assert rank_study("m", [spectrum(8)]).notes == ()
    for known in (None, 4):
        assert rank_study("m", [spectrum(0, known=known)]).notes == (nothing,)


def test_wrong_calls_are_refused():
    with pytest.raises(StudyError, match="m: no layer matrix"):
        rank_study("m", [])
    with pytest.raises(StudyError, match=r"m: no ranks at θ=0\.7; there are θ=1"):
        draw_ranks(model("m", [3]), [0.7])
    with pytest.raises(ValueError, match="theta"):
        rank_study("m", [spectrum(1)], thetas=(50.0,))


def test_a_family_has_means_with_their_standard_errors():
    family = family_ranks([model(f"m{i}", falling(6, offset=i)) for i in range(4)], name="base")

    assert family.models == ("m0", "m1", "m2", "m3")
    for point, first in zip(family.curves[0].points, falling(6), strict=True):
        assert point.rank == pytest.approx(first + 1.5)
        assert point.standard_error == pytest.approx(np.std(range(4), ddof=1) / 2)
        assert (point.count, point.left_out) == (4, 0)
        assert point.normalised == pytest.approx((first + 1.5) / 64)
    assert family.curves[0].fit.weighted
    assert family.curves[0].fit.verdict == "linear"


def test_a_family_leaves_out_zeros_and_rounding_and_says_how_many_in_any_order():
    plain, frozen = model("a", [4, 6, 8, 9]), model("b", [6, 0, 0, 0])
    noise = [spectrum(50, layer, noise=30.0) for layer in (0, 1)]
    noisy = rank_study("c", noise, thetas=(1.0,), n_layers={"encoder": 4})

    family = family_ranks([noisy, frozen, plain])
    noise = [spectrum(50, layer, noise=30.0) for layer in range(5)]
    rounding = family_ranks([rank_study(name, noise) for name in "de"])

    assert family_ranks([plain, noisy, frozen]) == family
    found = [(p.rank, p.count, p.left_out) for p in family.curves[0].points[:2]]
    assert found == [(5.0, 2, 1), (6.0, 1, 2)]
    assert family.curves[0].points[1].standard_error is None
    assert not family.curves[0].fit.weighted
    assert not any(p.valid for p in rounding.curves[0].points)
    assert {c.fit.verdict for c in rounding.curves} == {"too few points"}


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_the_picture_has_a_panel_for_each_role_with_its_law():
    rng = np.random.default_rng(1)
    spectra = [
        spectrum(rank, layer, role)
        for role, ranks in (("q", falling(12)), ("k", rng.integers(20, 40, 12).tolist()))
        for layer, rank in enumerate(ranks)
    ]

    figure = draw_ranks(rank_study("org/a_$model", spectra, thetas=(1.0,))).sheet
    stacks = [spectrum(5, 0, "q", stack) for stack in ("encoder", "decoder")]
    two = draw_ranks(rank_study("t5", stacks), [0.5]).sheet

    linear, noise = titles(figure)
    assert linear == "q\n$24-22x$,  $R^2$ 1.00"
    assert noise == "k\nno pattern"
    assert [title.split("\n")[0] for title in titles(two)] == ["encoder q", "decoder q"]
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]
    assert [axes.get_xlabel() for axes in figure.axes] == ["layer $l$"] * 2
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    figure.savefig(io.BytesIO(), format="png", dpi=40)


@pytest.mark.slow
def test_every_law_has_a_formula_that_matplotlib_can_set():
    curves = {
        "constant": [5] * 24,
        "exponential": [round(200 * np.exp(-3 * i / 23) + 10) for i in range(24)],
        "power": [round(10 + 200 * (i + 1) ** -1.5) for i in range(24)],
        "logistic drop": [round(20 + 200 / (1 + np.exp((i / 23 - 0.6) / 0.05))) for i in range(24)],
        "quarter ellipse": [round(20 + 200 * np.sqrt(1 - ((i + 1) / 24) ** 2)) for i in range(24)],
        "quadratic": [round(200 - 400 * (i / 23) + 300 * (i / 23) ** 2) for i in range(24)],
    }
    reports = [
        rank_study(name, [spectrum(r, i, size=512) for i, r in enumerate(ranks)], thetas=(1.0,))
        for name, ranks in curves.items()
    ]

    for report in reports:
        draw_ranks(report).sheet.savefig(io.BytesIO(), format="png", dpi=40)

    assert [report.curves[0].fit.verdict for report in reports] == list(curves)
