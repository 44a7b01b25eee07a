import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

import deltadex
from deltadex.pictures.map_picture import DARK, LIGHT, draw_map, write_picture

HOSTILE = "_</text><script>$x^$ \x00\x1b 数据\udce9&" + "W" * 90
STYLE = Path(deltadex.__file__).parent / "web" / "page" / "style.css"


def make_document(n=12, n_datasets=3, **changes):
    rng = np.random.default_rng(0)
    return {
        "base": "base", "recipe": "sketch", "layout": "tsne", "explained": None, "seed": 0,
        "models": [f"m{i}" for i in range(n)],
        "x": rng.normal(size=n).tolist(), "y": rng.normal(size=n).tolist(),
        "dataset": [i % n_datasets for i in range(n)],
        "datasets": [f"set-{i}" for i in range(n_datasets)],
        "author": [None] * n, "authors": [],
        "kind": [i % 2 for i in range(n)], "kinds": ["full", "adapter"],
        "downloads": [None] * n,
    } | changes  # fmt: skip


def svg(tmp_path, document, **options):
    path = tmp_path / "map.svg"
    write_picture(document, path, **({"title": "A family", "subtitle": "how"} | options))
    return path.read_text("utf-8")


def texts(drawing):
    return [
        "".join(e.itertext()).strip()
        for e in ET.fromstring(drawing).iter()
        if e.tag.endswith("text")
    ]


@pytest.mark.parametrize(
    ("n", "listed", "more"), [(20, 20, None), (33, 20, "and 13 more, pale  13")]
)
def test_the_legend_lists_twenty_names_and_counts_the_rest(tmp_path, n, listed, more):
    written = texts(svg(tmp_path, make_document(n, n)))

    assert sum(text.startswith("set-") for text in written) == listed
    assert (more in written) == (more is not None)


def test_unlabelled_models_are_grey_and_counted(tmp_path):
    drawn = svg(tmp_path, make_document(dataset=[None] * 12, datasets=[]))

    assert "unlabelled  12" in texts(drawn)
    assert LIGHT.none in drawn
    assert not [colour for colour in LIGHT.palette if colour in drawn]


@pytest.mark.parametrize("colour", ["author", "kind"])
def test_colours_may_tell_something_else(tmp_path, colour):
    document = make_document(author=[0] * 5 + [1] * 4 + [None] * 3, authors=["ann", "ben"])

    written = texts(svg(tmp_path, document, colour=colour))

    expected = {"author": {"ann  5", "ben  4", "unknown  3"}, "kind": {"full  6", "adapter  6"}}
    assert expected[colour] <= set(written)
    assert "set-0  4" not in written


def collections(document):
    figure = draw_map(document, LIGHT, title="t", subtitle="s", colour="dataset")
    return figure.axes[0].collections


def test_areas_grow_with_downloads():
    def areas(downloads):
        document = make_document(2, 1, kind=[0, 0], downloads=downloads)
        (marks,) = collections(document)
        return marks.get_sizes().tolist()

    assert areas([None, None])[0] == areas([None, None])[1]
    assert areas([10**6, 0]) == pytest.approx([5 * areas([10**6, 0])[1], areas([10**6, 0])[1]])
    assert areas([0, 10**6]) == areas([10**6, 0]), "the larger is drawn first, below"


def test_names_stay_text_whatever_they_hold(tmp_path):
    document = make_document(datasets=[HOSTILE, "_b", "$c$"])

    drawn = svg(tmp_path, document, title=HOSTILE, subtitle=HOSTILE)

    assert {element.tag.split("}")[-1] for element in ET.fromstring(drawn).iter()}.isdisjoint(
        {"script", "a"}
    )
    assert {"_b  4", "$c$  4"} <= set(texts(drawn))
    assert "数据" in drawn


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_at_the_edges(tmp_path, dark):
    document = make_document(40, 40, datasets=["W" * 80] * 40, downloads=[10**9] * 40)
    path = tmp_path / "map.png"

    write_picture(document, path, title="W" * 200, subtitle="W" * 300, dark=dark)

    pixels = image.imread(path)
    edge = np.concatenate(
        [pixels[:20].reshape(-1, 4), pixels[:, -20:].reshape(-1, 4), pixels[-20:].reshape(-1, 4)]
    )
    assert (edge == edge[0]).all()
    sheet = [round(float(value) * 255) for value in edge[0][:3]]
    assert "#" + "".join(f"{value:02x}" for value in sheet) == (DARK if dark else LIGHT).sheet


def test_too_many_marks_become_an_image_beside_text(tmp_path, monkeypatch):
    monkeypatch.setattr("deltadex.pictures.map_picture.VECTORS_UP_TO", 10)

    drawn = svg(tmp_path, make_document())

    assert "<image" in drawn
    assert "set-0  4" in texts(drawn)


def test_colours_are_those_of_the_page():
    both = r"--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)"
    colours = re.findall(both, STYLE.read_text("utf-8"))

    for theme, values in (
        (LIGHT, {name: light for name, light, _ in colours}),
        (DARK, {name: dark for name, _, dark in colours}),
    ):
        assert theme.palette == tuple(values[f"c{i}"] for i in range(8))
        assert (theme.sheet, theme.text) == (values["sheet"], values["text"])
        assert (theme.quiet, theme.none) == (values["quiet"], values["none"])
        assert theme.line == values["line"]


def star(name, x=0.0, y=0.0, verdict="perhaps"):
    nearest = [{"model": "m0", "z": 5.0, "fdr": 0.01, "verdict": verdict}]
    return {
        "name": name, "x": x, "y": y, "examples": 512, "loss": "causal", "verdict": verdict,
        "nearest": nearest,
    }  # fmt: skip


def test_kept_data_sets_are_named_on_the_map_and_in_the_legend(tmp_path):
    stars = [star("acme-chats"), star("none", 1.0, 1.0, "no model stands out")]

    written = texts(svg(tmp_path, make_document(data=stars)))

    assert {"acme-chats", "none", "kept data set", "kept data, none stands out"} <= set(written)


def test_names_of_stars_at_one_place_lie_beside_each_other():
    stars = [star(f"data set {n}") for n in range(4)]

    figure = draw_map(
        make_document(40, data=stars), LIGHT, title="t", subtitle="s", colour="dataset"
    )

    names = [text for text in figure.axes[0].texts if text.get_text().startswith("data set")]
    boxes = [text.get_window_extent() for text in names]
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)


def test_no_category_has_the_shape_of_kept_data():
    document = make_document(24, 12, data=[star("acme")])

    figure = draw_map(document, LIGHT, title="t", subtitle="s", colour="dataset")

    markers = [line.get_marker() for line in figure.axes[0].get_legend().legend_handles]
    names = [
        line.get_marker()
        for artist in figure.axes[0].artists
        for line in getattr(artist, "legend_handles", ())
    ]
    assert "*" in markers
    assert "*" not in names
    assert len(names) == 12
