"""Pictures in every format."""

import re
from collections import Counter
from functools import partial
from xml.etree import ElementTree

import matplotlib.image
import pytest

from deltadex.errors import RequestError
from deltadex.figures import new_picture, save_picture
from deltadex.questions.lineage.lineage import LineageTable
from deltadex.questions.lineage.picture import check_lineage_ending
from deltadex.results import html_table

HOSTILE = (
    "\x1b[31mred", "bell\x07", "nul\0", "\x9b2J", "\u202eleft", "no\ufffechar", "\ud800", "a\r\nb",
    'a"; b -> c; "', "$x^2$", "_", "back\\",
)  # fmt: skip


def draw(width="full", caption=""):
    """What needs ids: clipped lines, markers, glyphs, a hatch and an image; two points answer."""
    picture = new_picture(width, 60.0, caption=caption)
    axes = picture.figure.add_subplot()
    axes.plot([1, 2, 3], [1, 4, 2], marker="o", label="a line")
    axes.fill_between([1, 2, 3], [1, 2, 1], hatch="//", alpha=0.3)
    axes.imshow([[0, 1], [1, 0]], extent=(1, 2, 1, 2))
    axes.set_title("Ein Bild, λ = 3")
    axes.legend()
    picture.hover(axes, [1, 3], [1, 2], ["layer 1\n<rank> 1", "layer 3\nrank 2"])
    return picture


def save(path):
    return save_picture(draw, path, title="A title")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return save(tmp_path_factory.mktemp("page") / "a.html").read_text("utf-8")


def referenced(page):
    """Ids that something on the page points to."""
    return set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))


def test_a_png_is_an_image_and_an_svg_is_well_formed_and_stands_alone(tmp_path):
    path = save(tmp_path / "a.png")
    text = save(tmp_path / "A.SVG").read_text("utf-8")

    assert path == tmp_path / "a.png"
    assert matplotlib.image.imread(path).shape[:2] == (708, 2125)
    assert text.startswith("<svg")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "http://" not in re.sub(
        r'xmlns(:\w+)?="[^"]+"|<metadata>.*?</metadata>', "", text, flags=re.S
    )


def test_a_picture_in_no_folder_is_refused_before_it_is_drawn(tmp_path):
    with pytest.raises(RequestError, match="no such folder; make it first"):
        save_picture(pytest.fail, tmp_path / "new" / "a.svg", title="A title")
    with pytest.raises(RequestError, match="no such folder"):
        check_lineage_ending(tmp_path / "new" / "a.dot")
    assert list(tmp_path.iterdir()) == []


def test_what_names_hold_is_shown_and_neither_obeyed_nor_breaks_a_file(tmp_path):
    name = " ".join(HOSTILE)
    edges = [("base", "child"), ("child", "grandchild")]
    document = {"base": f"base{name}", "models": 2, "without_parent": 1, "edges": [
        {"parent": f"{parent}{name}", "child": f"{child}{name}", "kind": "fine-tune",
         "probability": 0.9, "weight": None, "words": [name]}
        for parent, child in edges
    ]}  # fmt: skip
    table = LineageTable(document)
    named = partial(draw, caption=name)

    pages = [table.save(tmp_path / f"lineage.{ending}") for ending in ("svg", "html", "dot")]
    for ending in ("svg", "html"):
        target = tmp_path / f"picture.{ending}"
        below = html_table([name], [[name]])
        pages.append(save_picture(named, target, title=name, table=below))

    drawn = (tmp_path / "lineage.dot").read_text("utf-8").splitlines()
    assert len(drawn) == 3 + 1 + len(edges) + 1
    assert 'a\\"; b -> c; \\"' in drawn[4]
    for page in pages:
        text = page.read_text("utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
        if page.suffix == ".svg":
            ElementTree.fromstring(text)


def test_a_page_has_a_light_and_a_dark_picture_and_needs_nothing_from_elsewhere(page):
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == page.count("</svg>") == 2
    assert page.count('<figure class="light"') == page.count('<figure class="dark"') == 1
    assert "prefers-color-scheme: dark" in page
    light, dark = page.split('<figure class="light"')[1].split('<figure class="dark"')
    assert "#16181c" in dark
    assert "#e6e6e6" in dark
    assert "#e6e6e6" not in light
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "import" not in page.split("<script>")[1]


def test_what_a_picture_points_to_is_its_own_and_the_two_share_no_id(page):
    times = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert {name for name, count in times.items() if count > 1} == set()
    for side in page.split('<figure class="dark"'):
        own = set(re.findall(r'\bid="([^"]+)"', side))
        assert referenced(side)
        assert referenced(side) <= own


def test_equal_figures_give_equal_bytes_and_leave_the_callers_style_alone(tmp_path):
    before = dict(matplotlib.rcParams)

    one, two = (save(tmp_path / f"{n}.html").read_bytes() for n in "ab")

    assert one == two
    assert dict(matplotlib.rcParams) == before
