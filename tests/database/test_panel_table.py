"""Models of two bases by one panel: the table, its heat map, and the map of all of them."""

import csv
import itertools
from dataclasses import replace

import numpy as np
import pytest
from catalogs import DIM, make_catalog, make_data, make_indexed
from click.testing import CliRunner
from scipy.stats import zscore

from deltadex.cli import main
from deltadex.database.panel_table import map_document, panel_scores_table
from deltadex.errors import RequestError
from deltadex.pictures import draw_panel, draw_panel_map
from deltadex.pictures.figures import LIGHT, _style
from deltadex.search.panels import panel_scores, standardised

SETS = ("jokes", "laws", "news", "songs", "tweets", "verse")
RUNS = 4


def directions(base):
    """Where each data set pulls the models of a base: nothing that two bases have in common."""
    return np.linalg.qr(np.random.default_rng(len(base)).normal(size=(DIM, DIM)))[0]


def outcomes(base):
    rng = np.random.default_rng(3)
    for place, name in enumerate(SETS):
        for run in range(RUNS):
            vector = directions(base)[place] + 0.06 * rng.normal(size=DIM)
            yield make_indexed(f"{name}-{run}", vector, base=base, kind="full", dataset=name)
    for n in range(12):
        yield make_indexed(f"stranger-{n}", rng.normal(size=DIM), base=base, kind="full")


def save(catalog, base, name, vector):
    catalog.data_sets.save(
        replace(make_data(name, vector, base=base, loss="classification"), sha256=name)
    )


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    path = tmp_path_factory.mktemp("panel") / "c.duckdb"
    made = make_catalog(path, *outcomes("one"), *outcomes("other"), *[*outcomes("third")][:2])
    for base in ("one", "other"):
        for place, name in enumerate(SETS):
            save(made, base, f"texts/{name}", directions(base)[place])
        save(made, base, "texts/nobodys", directions(base)[20])
        save(made, base, "lonely", directions(base)[0])
    save(made, "one", "texts/only-here", directions("one")[30])
    with made:
        yield made


@pytest.fixture(scope="module")
def table(catalog):
    return panel_scores_table(catalog, "texts")


def test_families_have_rows_for_the_data_sets_that_they_share(catalog, table):
    document = table.to_json()

    assert document["sets"] == sorted((*SETS, "nobodys"))
    assert [family["base"] for family in document["families"]] == ["one", "other"]
    assert [one["base"] for one in document["left_out"]] == ["third"]
    for family in document["families"]:
        view = catalog.family(family["base"], catalog.find_recipe(None, family["base"]))
        scores = panel_scores(catalog, view, "texts")
        rows = [scores.names.index(name) for name in document["sets"]]
        columns = [view.ids.index(model) for model in family["models"]]
        assert np.allclose(family["z"], scores.z[np.ix_(rows, columns)], atol=1e-4)
    labelled = [row for row in table if row["dataset"]]
    assert len(labelled) == 2 * RUNS * len(SETS)
    assert all(row["nearest"] == row["dataset"] for row in labelled)


def test_a_csv_has_every_z(table, tmp_path):
    document = table.to_json()
    with table.save(tmp_path / "z.csv").open(newline="") as file:
        header, *lines = csv.reader(file)

    assert header == ["base", "model", "dataset", *document["sets"]]
    assert [line[:2] for line in lines] == [[row["base"], row["model"]] for row in table]
    first = np.array(document["families"][0]["z"])
    written = np.array([[float(cell) for cell in line[3:]] for line in lines[: first.shape[1]]])
    assert np.array_equal(written.T, first)


def synthetic(n_sets, sizes):
    rng = np.random.default_rng(1)
    families = [
        {
            "base": f"someone/base-{base}-with-a-long-name",
            "models": [f"someone/a-fine-tune-with-a-long-name-{i}" for i in range(n)],
            "datasets": [None] * n,
            "z": rng.normal(size=(n_sets, n)).tolist(),
            "standing": [[0, 0]],
        }
        for base, n in enumerate(sizes)
    ]
    sets = [f"a-data-set-of-many-{i}" for i in range(n_sets)]
    return {"panel": "p", "sets": sets, "families": families, "left_out": []}


def drawn(document):
    """(the figure's axes, the picture, places of the bases' models), as it is saved."""
    z = [standardised(np.array(family["z"])) for family in document["families"]]
    with _style(LIGHT):
        picture = draw_panel(document, z)
        picture.sheet.draw_without_rendering()
    return picture.figure.axes[0], picture


def overlaps(texts):
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    ("n_sets", "sizes"), [(4, (3, 1)), pytest.param(48, (150, 50), marks=pytest.mark.slow)]
)
def test_names_of_a_heat_map_are_all_there_and_apart(n_sets, sizes):
    axes, picture = drawn(synthetic(n_sets, sizes))

    assert axes.images[0].get_array().shape == (n_sets, sum(sizes))
    assert len(axes.get_xticklabels()) == sum(sizes)
    assert not overlaps(axes.get_xticklabels())
    assert not overlaps(axes.get_yticklabels())
    assert not overlaps(axes.texts)
    heading = picture.figure._suptitle.get_window_extent()
    assert not any(heading.overlaps(text.get_window_extent()) for text in axes.texts)


def test_cells_are_in_deviations_over_the_models_of_a_base(table):
    document = table.to_json()
    axes, picture = drawn(document)

    expected = {
        (family["base"], model, name): value
        for family in document["families"]
        for name, row in zip(document["sets"], zscore(family["z"], axis=1), strict=True)
        for model, value in zip(family["models"], row, strict=True)
    }
    cells = axes.images[0].get_array()
    assert cells.size == len(expected)
    for _, x, y, label in picture._points:
        (model, base, *_), (name, _) = label.split("\n"), label.split("\n")[-1].split(": z ")
        assert cells[int(y), int(x)] == pytest.approx(expected[base, model, name], abs=1e-3)


def test_alike_data_sets_are_neighbours_and_a_base_of_few_models_is_whole(monkeypatch):
    monkeypatch.setattr("deltadex.pictures.panels.MOST_MODELS", 12)
    document = synthetic(6, (30, 4))
    first = np.array(document["families"][0]["z"])
    first[4] = first[0] + 0.05 * first[1]
    document["families"][0]["z"] = first.tolist()
    axes, picture = drawn(document)

    names = [text.get_text() for text in axes.get_yticklabels()]
    apart = names.index(document["sets"][4]) - names.index(document["sets"][0])
    bases = [label.split("\n")[1] for *_, label in picture._points]
    written = [text.get_text() for figure in picture.sheet.subfigs for text in figure.texts]
    assert abs(apart) == 1
    assert bases.count(document["families"][1]["base"]) == 6 * 4
    assert "12 of 34 models" in " ".join(" ".join(written).split())


def test_models_of_two_bases_lie_by_what_they_learned(catalog):
    document = map_document(catalog, "texts")

    labels = np.array([-1 if i is None else i for i in document["dataset"]])
    places = np.array([document["x"], document["y"]]).T
    base = np.array(document["base"])
    for row in np.flatnonzero(labels >= 0):
        others = np.flatnonzero((base != base[row]) & (labels >= 0))
        nearest = others[np.hypot(*(places[others] - places[row]).T).argmin()]
        assert labels[nearest] == labels[row]
    stars = {star["name"]: star for star in document["data"]}
    assert set(stars) <= set(SETS)
    assert stars


def test_the_command_draws_every_base(catalog, tmp_path):
    path = tmp_path / "a.html"
    arguments = ["map", "--across", "--panel", "texts", "--layout", "pca", "-o", str(path)]
    done = CliRunner().invoke(main, [*arguments, "--db", str(catalog.path)])

    assert done.exit_code == 0, done.output
    page = path.read_text("utf-8")
    assert page.count("<title>jokes-0\nother\nlabelled jokes</title>") == 2
    for wrong in (["--panel", "texts", "--base", "one"], ["--across", "--base", "one"]):
        refused = CliRunner().invoke(main, ["map", *wrong, "--db", str(catalog.path)])
        assert "--across" in refused.output
        assert refused.exit_code != 0


def test_a_star_has_its_name_within_the_frame(catalog):
    document = map_document(catalog, "texts", "pca")
    with _style(LIGHT):
        picture = draw_panel_map(document)
    axes = picture.figure.axes[0]

    frame, texts = axes.get_window_extent(), axes.texts
    assert {text.get_text() for text in texts} <= {star["name"] for star in document["data"]}
    assert texts
    for text in texts:
        box = text.get_window_extent()
        assert frame.x0 < box.x0 < box.x1 < frame.x1
        assert frame.y0 < box.y0 < box.y1 < frame.y1
    assert not overlaps(texts)


@pytest.mark.parametrize(
    ("panel", "reason"),
    [
        ("nothing", "no family has"),
        ("kept", "2 bases with 1 data set;"),
        ("texts/one", "no family has"),
    ],
)
def test_a_panel_that_cannot_place_models_is_refused(catalog, panel, reason):
    with pytest.raises(RequestError, match=reason):
        map_document(catalog, panel)
