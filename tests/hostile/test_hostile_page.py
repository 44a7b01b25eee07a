"""The family's page and the studies' pictures in a real browser: names stay text."""

import shutil

import pytest
from bounds import HOSTILE_TEXTS

from deltadex.database.tables import html_table
from deltadex.pictures import new_picture, save_picture
from deltadex.pictures.maps import MapNeighbour, Neighbourhoods, encode_names, write_page

SCRIPTS = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror='window.hacked=1'>",
    "<svg/onload=window.hacked=1>",
    '"><img src=x onerror=window.hacked=1>',
    "javascript:window.hacked=1",
    "]]><!--<script>window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
)
NAMES = (*SCRIPTS, *(text[:200] for text in HOSTILE_TEXTS))
VIEWS = ("map", "models", "clusters", "evaluation")


@pytest.fixture
def opened():
    """Opens a file; nothing that strangers wrote may have run, asked for anything, or spoken."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if chromium is None:
        pytest.skip("no chromium to open the page in")
    said = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith("file:") else None)

        def go(path, query=""):
            page.goto(path.as_uri() + query)
            page.wait_for_timeout(200)
            assert page.evaluate("window.hacked") is None
            return page

        yield go
        assert page.evaluate("window.hacked") is None
        browser.close()
    assert said == []


def hostile_map(folder):
    n = len(NAMES)
    document = {
        "base": SCRIPTS[1], "recipe": "sketch", "layout": "pca", "explained": None, "seed": 0,
        "models": list(NAMES), "x": [i / n for i in range(n)], "y": [-i / n for i in range(n)],
        "downloads": [None] * n,
    }  # fmt: skip
    for name in ("dataset", "author", "kind"):
        document[name], document[f"{name}s"] = encode_names(NAMES)
    near = [[MapNeighbour(NAMES[(i + 1) % n], 5.0, 0.1, 0.5, SCRIPTS[0])] for i in range(n)]
    calibration = {"source": SCRIPTS[1], "datasets": 0, "queries": 0}
    path = folder / "map.html"
    write_page(
        document,
        path,
        title=SCRIPTS[0],
        subtitle=SCRIPTS[1],
        neighbours=Neighbourhoods(near, calibration),
    )
    return path


def test_no_name_on_the_page_runs(tmp_path, opened):
    path = hostile_map(tmp_path)

    for view in VIEWS:
        opened(path, f"?view={view}")
    page = opened(path)
    page.wait_for_selector("body.ready")
    page.fill("#search", "<img")
    page.wait_for_selector("#found li")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)

    assert SCRIPTS[0] in page.title()
    assert page.query_selector("img[src=x]") is None


def test_nothing_in_the_address_runs(tmp_path, opened):
    path = hostile_map(tmp_path)

    for key in ("view", "model", "colour", "q", "dataset", "base"):
        opened(path, f"?{key}=%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E")


def hostile_picture(name):
    picture = new_picture("column", 30.0)
    axes = picture.figure.add_subplot()
    picture.hover(axes, [0.5], [0.5], [name])
    return picture


@pytest.mark.parametrize("name", NAMES[:7])
def test_no_title_of_a_picture_runs(tmp_path, opened, name):
    table = html_table([name], [[name]])
    path = save_picture(lambda: hostile_picture(name), tmp_path / "p.html", title=name, table=table)

    page = opened(path)
    circle = page.locator("figure.light .points circle").bounding_box()
    page.mouse.move(circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)

    assert page.title() == name
    assert page.inner_text("#note") == name
    assert page.inner_text("td") == name


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_any_name_titles_a_picture(tmp_path, name):
    save_picture(lambda: hostile_picture(name), tmp_path / "p.html", title=name)
