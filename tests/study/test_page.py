"""Pictures in every format: what is written, twice the same, and what is refused."""

import re
from collections import Counter
from xml.etree import ElementTree

import matplotlib.image
import pytest

from deltadex.errors import RequestError, StoreFull
from deltadex.pictures.figures import check_ending, new_picture, save_picture


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


def save(path, title="A title"):
    return save_picture(draw, path, title=title)


def referenced(page):
    """Ids that something on the page points to."""
    return set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))


def test_a_png_is_an_image(tmp_path):
    path = save(tmp_path / "a.png")

    assert path == tmp_path / "a.png"
    assert matplotlib.image.imread(path).shape[:2] == (708, 2125)


def test_an_svg_is_well_formed_and_stands_alone(tmp_path):
    text = save(tmp_path / "a.svg").read_text("utf-8")

    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "http://" not in re.sub(
        r'xmlns(:\w+)?="[^"]+"|<metadata>.*?</metadata>', "", text, flags=re.S
    )


def test_a_page_has_a_light_and_a_dark_picture(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")

    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == page.count("</svg>") == 2
    assert page.count('<figure class="light"') == page.count('<figure class="dark"') == 1
    assert "prefers-color-scheme: dark" in page
    light, dark = page.split('<figure class="light"')[1].split('<figure class="dark"')
    assert "#16181c" in dark
    assert "#e6e6e6" in dark
    assert "#e6e6e6" not in light


def test_a_page_needs_nothing_from_elsewhere(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")

    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "import" not in page.split("<script>")[1]


def test_what_a_picture_points_to_is_its_own(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")
    light, dark = page.split('<figure class="dark"')

    for side in (light, dark):
        own = set(re.findall(r'\bid="([^"]+)"', side))
        assert referenced(side)
        assert referenced(side) <= own


def test_the_two_pictures_of_a_page_share_no_clip_and_no_hatch(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")

    times = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert {times[name] for name in re.findall(r"url\(#([^)]+)\)", page)} == {1}


def test_the_two_pictures_of_a_page_share_no_id(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")

    times = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert {name for name, count in times.items() if count > 1} == set()


def test_a_title_is_text_and_no_markup(tmp_path):
    page = save(tmp_path / "a.html", title='<b>"λ" & co</b>').read_text("utf-8")

    assert "<b>" not in page
    assert "<title>&lt;b&gt;&quot;λ&quot; &amp; co&lt;/b&gt;</title>" in page


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_equal_figures_give_equal_bytes(tmp_path, ending):
    one, other = save(tmp_path / f"one.{ending}"), save(tmp_path / f"other.{ending}")

    assert one.read_bytes() == other.read_bytes()


def test_capital_endings_are_endings(tmp_path):
    assert save(tmp_path / "A.SVG").read_text("utf-8").startswith("<svg")


def test_folders_that_are_not_there_yet_are_made(tmp_path):
    assert save(tmp_path / "new" / "folder" / "a.svg").exists()


@pytest.mark.parametrize("name", ["a.pdf", "a.jpg", "a", "a.", "png", "a.svg.gz"])
def test_other_endings_are_refused_before_anything_is_drawn(tmp_path, name):
    def never():
        raise AssertionError

    with pytest.raises(RequestError, match=r"a picture's name ends in one of \.png, \.svg, \.html"):
        save_picture(never, tmp_path / name, title="")
    with pytest.raises(RequestError, match="ends in one of"):
        check_ending(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreFull, match=r"file: cannot be made"):
        save(tmp_path / "file" / "a.svg")


def test_a_folder_in_the_files_place_is_refused(tmp_path):
    (tmp_path / "a.svg").mkdir()

    with pytest.raises(StoreFull, match=r"a\.svg: Is a directory"):
        save(tmp_path / "a.svg")


def test_drawing_leaves_the_callers_style_alone(tmp_path):
    before = dict(matplotlib.rcParams)

    save(tmp_path / "a.html")

    assert dict(matplotlib.rcParams) == before


def test_a_caption_is_wrapped_and_makes_a_picture_higher():
    caption = "x is a term of the hidden state e, and x′ the same term after fine-tuning. " * 3

    plain, wide, column = draw(), draw("full", caption), draw("column", caption)

    heights = [picture.sheet.get_figheight() for picture in (plain, wide, column)]
    assert heights == sorted(heights)
    assert column.sheet.get_figwidth() == pytest.approx(85 / 25.4)
    (text,) = column.sheet.subfigs[0].texts
    assert len(text.get_text().splitlines()) == 4


def test_points_are_where_their_marks_are_drawn(tmp_path):
    page = save(tmp_path / "a.html").read_text("utf-8")
    light = page.split('<figure class="dark"')[0]

    marks = {
        (round(float(x)), round(float(y)))
        for x, y in re.findall(r'<use xlink:href="#[^"]+" x="([\d.]+)" y="([\d.]+)" style', light)
    }
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4"><title>([^<]+)', light)

    assert [label for _, _, label in points] == ["layer 1\n&lt;rank&gt; 1", "layer 3\nrank 2"]
    assert {(round(float(x)), round(float(y))) for x, y, _ in points} <= marks


def test_a_page_has_the_table_of_values_below(tmp_path):
    path = save_picture(draw, tmp_path / "a.html", title="t", table="<table><td>3</td></table>")

    assert "<table><td>3</td></table>" in path.read_text("utf-8").split("</figure>")[-1]
