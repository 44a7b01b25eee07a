import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib import image

from deltadex.questions.map.picture import draw_map, write_picture

HOSTILE = "_</text><script>$x^$ \x00\x1b 数据\udce9&" + "W" * 90


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


def drawn(document, colour="dataset"):
    return draw_map(document, title="A family", subtitle="how", colour=colour).figure


def listed(document, colour="dataset"):
    return [text.get_text() for text in drawn(document, colour).legends[0].get_texts()]


@pytest.mark.parametrize(
    ("n", "n_listed", "more"), [(20, 20, None), (33, 20, "and 13 more, pale  13")]
)
def test_the_legend_lists_twenty_names_and_counts_the_rest(n, n_listed, more):
    written = listed(make_document(n, n))

    assert sum(text.startswith("set-") for text in written) == n_listed
    assert (more in written) == (more is not None)


@pytest.mark.parametrize("colour", ["author", "kind"])
def test_colours_may_tell_something_else(colour):
    document = make_document(author=[0] * 5 + [1] * 4 + [None] * 3, authors=["ann", "ben"])

    written = listed(document, colour)

    expected = {"author": {"ann  5", "ben  4", "unknown  3"}, "kind": {"full  6", "adapter  6"}}
    assert expected[colour] <= set(written)
    assert "set-0  4" not in written


def star(name, x=0.0, y=0.0, verdict="perhaps"):
    nearest = [{"model": "m0", "z": 5.0, "fdr": 0.01, "verdict": verdict}]
    return {
        "name": name, "x": x, "y": y, "examples": 512, "loss": "causal", "verdict": verdict,
        "nearest": nearest,
    }  # fmt: skip


def test_kept_data_sets_are_named_on_the_map_and_in_the_legend():
    stars = [star("acme-chats"), star("none", 1.0, 1.0, "no model stands out")]

    document = make_document(data=stars)

    assert {"kept data set", "kept data, none stands out"} <= set(listed(document))
    assert [text.get_text() for text in drawn(document).axes[0].texts] == ["acme-chats", "none"]


def test_areas_grow_with_downloads_and_the_larger_is_drawn_below():
    def areas(downloads):
        document = make_document(2, 1, kind=[0, 0], downloads=downloads)
        return drawn(document).axes[0].collections[0].get_sizes().tolist()

    assert areas([None, None])[0] == areas([None, None])[1]
    assert areas([10**6, 0]) == pytest.approx([5 * areas([10**6, 0])[1], areas([10**6, 0])[1]])
    assert areas([0, 10**6]) == areas([10**6, 0])


def test_names_are_text_whatever_they_hold_and_nothing_is_cut_at_the_edges(tmp_path):
    document = make_document(
        datasets=[HOSTILE, "_b", "$c$"], dataset=[None] + [0, 1, 2] * 3 + [0, 1]
    )

    write_picture(document, tmp_path / "map.svg", title=HOSTILE, subtitle=HOSTILE)
    write_picture(
        document, tmp_path / "map.png", title="W" * 200, subtitle="near means alike. " * 20
    )

    tags = {e.tag.split("}")[-1] for e in ET.parse(tmp_path / "map.svg").iter()}
    assert tags.isdisjoint({"script", "a"})
    assert {"_b  4", r"\$c\$  3", "unlabelled  1"} <= set(listed(document))
    pixels = image.imread(tmp_path / "map.png")
    for edge in (pixels[:3], pixels[-3:], pixels[:, -3:]):
        assert (edge == 1.0).all()
