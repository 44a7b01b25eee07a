"""Spearman's ρ against scipy, its interval's coverage, names of measures, and files of columns."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deltadex.errors import RequestError
from deltadex.records import Slot, SlotStats
from deltadex.study.correlation import measures

NUMBERS = st.lists(st.integers(-4, 4), min_size=3, max_size=12)


@settings(deadline=None)
@given(st.data())
def test_rho_is_scipys_also_with_ties_and_under_monotone_maps(data):
    x = np.array(data.draw(NUMBERS), dtype=np.float64)
    y = np.array(data.draw(st.permutations(x.tolist())), dtype=np.float64)

    rho = measures.spearman(x, y)

    if len(set(x)) == 1:
        assert rho is None
        return
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert measures.spearman(np.exp(x), -(y**3)) == pytest.approx(-rho, abs=1e-12)


def test_few_pairs_are_tested_by_every_permutation():
    x, y = np.random.default_rng(5).standard_normal((2, 5))
    observed = abs(stats.spearmanr(x, y).statistic)

    p = measures.permutation_p(x, y, seed=0)

    every = [
        abs(stats.spearmanr(x, order).statistic) >= observed - 1e-9
        for order in itertools.permutations(y)
    ]
    assert p == pytest.approx(np.mean(every))


def test_the_interval_covers_the_true_rho():
    n, r = 8, 0.8
    x, e = np.random.default_rng(n).standard_normal((2, 1500, n))
    y = r * x + np.sqrt(1 - r**2) * e
    true = 6 / np.pi * np.arcsin(r / 2)  # of two normal variables (Pearson 1907)

    bounds = [measures.interval(measures.spearman(a, b), n) for a, b in zip(x, y, strict=True)]

    low, high = measures.interval(1.0, 6)  # a perfect order has one too
    assert 0 < low < high < 1
    covered = np.mean([low <= true <= high for low, high in bounds])
    assert 0.925 <= covered <= 0.995  # 95 % ± 4 s.e. below; conservative for few pairs


def test_columns_are_compared_over_the_names_that_have_both_with_holms_step_down_rule():
    adjusted = measures.holm([0.01, None, 0.04, 0.03])
    assert adjusted == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    values = {f"m{i}": float(i) for i in range(8)}
    columns = {
        "up": {f"m{i}": i * i / 9 for i in range(7)},
        "down": {f"m{i}": -float(i) for i in range(8)},
        "few": {"m0": 1.0, "m1": 2.0, "else": 0.0},
        "flat": dict.fromkeys(values, 3.0),
        "odd": {f"m{i}": float(i % 2) for i in range(8)},
    }

    found = measures.correlate_columns(values, columns)
    up, down, few, flat, odd = (SimpleNamespace(**one) for one in found)

    assert (up.n, up.rho, up.verdict) == (7, pytest.approx(1.0), "rises with it")
    assert (down.rho, down.verdict) == (pytest.approx(-1.0), "falls with it")
    assert (few.n, few.low, few.p_value) == (2, None, None)
    assert few.verdict == "too few to tell (n = 2, 5 are needed)"
    assert (flat.rho, flat.verdict) == (None, "one side is constant")
    assert odd.verdict == "no relation shown"
    assert up.p_holm >= up.p_value
    assert odd.p_holm == pytest.approx(odd.p_value)


GEOMETRY = {
    "model": "m",
    "n_layers": 2,
    "options": {"seed": 0},
    "groups": [
        {
            "group": group,
            "tokens": tokens,
            "fertility": {"tokens_per_word": tokens / 10},
            "layers": [
                {
                    "layer": layer,
                    "anisotropy": {"centred": tokens + layer, "note": None},
                    "intrinsic_dimension": [
                        {"estimator": "facco", "dimension": 3.0 + layer},
                        {"estimator": "mle", "dimension": 30.0 + layer},
                    ],
                }
                for layer in range(2)
            ],
        }
        for group, tokens in (("eng", 10), ("fra", 20))
    ],
}
COMPONENTS = {
    "layers": ["0", "1"],
    "terms": ["input", "bias"],
    "importance": [[0.9, 0.1], [0.7, 0.3]],
    "total_shift": [0.0, 0.5],
    "local_terms": ["attention"],
    "local_shift": [[0.25]],
}


@pytest.mark.parametrize(
    ("measure", "chosen", "value"),
    [
        ("geometry.anisotropy.centred", {"group": "fra", "layer": 0}, 20),
        ("geometry.centred", {"last": True}, 16),
        ("geometry.mle.dimension", {}, 30.5),
        ("geometry.tokens", {"group": "none"}, None),
        # of matrices by layer and term
        ("components.encoder.importance.bias", {"layer": 1}, 0.3),
        ("components.total_shift", {"last": True}, 0.5),
        ("components.local_shift.attention", {"layer": 1}, 0.25),
    ],
)
def test_a_measure_is_named_by_its_way_through_the_document(measure, chosen, value):
    study = measure.split(".")[0]
    numbers = measures.numbers_of(
        study, {"geometry": GEOMETRY, "components": {"stacks": {"encoder": COMPONENTS}}}[study]
    )
    name = measures.find_measure(measure, (number.name for number in numbers))
    own = tuple(number for number in numbers if number.name == name)

    assert measures.MeasuredModel(model="m", numbers=own).value(**chosen) == value


def test_unknown_and_ambiguous_measures_list_what_there_is():
    names = [number.name for number in measures.numbers_of("geometry", GEOMETRY)]

    with pytest.raises(RequestError, match=r"several measures: .*facco\.dimension, .*mle\.dim"):
        measures.find_measure("geometry.dimension", names)
    with pytest.raises(RequestError, match=r"there are: geometry\.anisotropy\.centred, "):
        measures.find_measure("geometry.anisotropy", names)


def slot(layer, norm, relative):
    return SlotStats(
        slot=Slot("encoder", layer, "q"), shape=(2, 2), fro_norm=norm, relative_norm=relative,
        sigma=np.ones(1, np.float32), energy=1.0, stable_rank=1.0 + layer, noise_floor=0.0,
        sketch=b"",
    )  # fmt: skip


def test_norms_of_slots_add_up_by_their_squares():
    slots = [slot(0, 3.0, 0.3), slot(1, 4.0, 0.2)]

    whole, first = measures.family_values(slots), measures.family_values(slots, layer=0)

    assert whole["slots.fro_norm"] == pytest.approx(5.0)
    assert whole["slots.relative_norm"] == pytest.approx(5 / np.hypot(10, 20))
    assert (whole["slots.stable_rank"], first["slots.relative_norm"]) == (1.5, pytest.approx(0.3))
    assert "slots.relative_norm" not in measures.family_values([slot(0, 3.0, None)])
    assert measures.family_values(slots, layer=7) == {}


@pytest.mark.parametrize(
    "content",
    [
        "model;accuracy;words\na;0,5;x\nb;0,75;y\n",
        "Accuracy\tModel\twords\n0.5\ta\tx\n0.75\tb\ty\n",
    ],
)
def test_a_file_of_columns_is_read_whatever_separates_them(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)

    given_file = measures.read_columns(tmp_path / "a.csv", (), "models")

    assert given_file.columns == {"accuracy": {"a": 0.5, "b": 0.75}}
    assert given_file.broken == ()


def test_rows_and_cells_that_cannot_be_used_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("group,size,more\neng,3,1\n,4,1\neng,5,1\nfra,many,1\ndeu,,2\nrus\nita,inf,1\n")

    given_file = measures.read_columns(path, ["Size"], "groups")

    assert given_file.columns == {"size": {"eng": 3.0}}
    assert given_file.names == ("eng", "fra", "deu", "ita")
    assert given_file.broken == (
        "a.csv:2: no group",
        "a.csv:3: group 'eng' is there twice",
        "a.csv:6: not as many fields as the header",
        "a.csv: size of fra is 'many', no number",
        "a.csv: size of ita is 'inf', no number",
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("name;score\na;1\n", "its columns are separated by semicolons"),
        ("model,score\na,x\n", "no number in score"),
        ("", "the file is empty"),
        ("\x00\x01\x02\x03\x04\x05", "a binary file"),
        ("model,score,score\na,1,2\n", "two columns 'score' in its header"),
    ],
)
def test_a_file_without_what_is_asked_for_is_refused(tmp_path, content, line):
    (tmp_path / "a.csv").write_text(content)

    with pytest.raises(RequestError, match=line):
        measures.read_columns(tmp_path / "a.csv", (), "models")
