import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from deltadex.errors import RequestError
from deltadex.web import MapPoint, write_map

HOSTILE = '</script><img src=x onerror="alert(1)">{{payload}}\u2028 & <!-- é'


class Page(HTMLParser):
    """Every element and attribute of a page, and the text of its scripts and headings."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.heading = [], [], [], ""
        self.open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open = tag
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open == "script":
            self.scripts[-1][1] += data
        elif self.open == "h1":
            self.heading += data


def make_points(n=3, **changes):
    point = {"dataset": "sst2", "author": "someone", "kind": "full"} | changes
    return [MapPoint(model=f"m{i}", x=i * 0.5, y=-1.0 * i, **point) for i in range(n)]


def written(tmp_path, points, **options):
    path = tmp_path / "map.html"
    write_map(points, path, **({"title": "A family"} | options))
    return path.read_text("utf-8")


def payload(text):
    (data,) = [body for attrs, body in Page(text).scripts if attrs.get("type")]
    return json.loads(data)


def test_every_model_is_in_the_page_as_data(tmp_path):
    points = [
        MapPoint(model="a/x", x=0.25, y=1.0, dataset="sst2", neighbours=(("b/y", 0.98765),)),
        MapPoint(model="b/y", x=-1.0, y=2.0, author="b", kind="adapter"),
    ]

    data = payload(written(tmp_path, points))

    assert data["datasets"] == ["sst2"]
    assert data["models"] == [
        {"model": "a/x", "x": 0.25, "y": 1, "dataset": 0, "author": None, "kind": "full",
         "neighbours": [["b/y", 0.9877]]},
        {"model": "b/y", "x": -1, "y": 2, "dataset": None, "author": "b", "kind": "adapter",
         "neighbours": []},
    ]  # fmt: skip


def test_larger_datasets_come_first(tmp_path):
    points = make_points(1, dataset="a") + make_points(2, dataset="c") + make_points(2)

    assert payload(written(tmp_path, points))["datasets"] == ["c", "sst2", "a"]


def test_names_stay_data_whatever_they_hold(tmp_path):
    points = [
        MapPoint(
            model=HOSTILE, x=0.0, y=0.0, dataset=HOSTILE, author=HOSTILE, kind=HOSTILE,
            neighbours=((HOSTILE, 0.5),),
        )
    ]  # fmt: skip
    plain = Page(written(tmp_path, make_points(1)))

    text = written(tmp_path, points, title=HOSTILE, subtitle=HOSTILE)

    page = Page(text)
    assert page.tags == plain.tags
    assert page.heading == HOSTILE
    model = payload(text)["models"][0]
    assert (model["model"], model["author"], model["kind"]) == (HOSTILE,) * 3
    assert model["neighbours"] == [[HOSTILE, 0.5]]


def test_a_name_that_is_no_unicode_text_is_written(tmp_path):
    text = written(tmp_path, make_points(author="caf\udce9"), title="caf\udce9")

    assert payload(text)["models"][0]["author"] == "caf\udce9"


def test_the_page_asks_no_other_host(tmp_path):
    text = written(tmp_path, make_points())

    loads = {"src", "href", "action", "srcset", "data", "poster"}
    assert not [pair for pair in Page(text).attributes if pair[0] in loads]
    addresses = set(re.findall(r"\w+://[^\s\"'`)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the SVG namespace, which is no request"
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket", text)


def test_the_policy_admits_the_script_of_the_page(tmp_path):
    text = written(tmp_path, make_points())

    page = Page(text)
    (script,) = [body for attrs, body in page.scripts if not attrs]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [v for k, v in page.attributes if k == "content" and "default-src" in v]
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_script_never_writes_markup(tmp_path):
    text = written(tmp_path, make_points())

    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


def test_the_same_points_give_the_same_bytes(tmp_path):
    first = written(tmp_path, make_points())

    assert written(tmp_path, make_points()) == first


def test_a_map_without_points_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no indexed model"):
        written(tmp_path, [])


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"cannot write the map to .*absent"):
        write_map(make_points(), tmp_path / "absent" / "map.html", title="t")


def test_a_point_nowhere_is_refused():
    with pytest.raises(ValueError, match="no place on a map"):
        MapPoint(model="m", x=float("nan"), y=0.0)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium to draw with")
@pytest.mark.parametrize("n", [1, 12])
def test_a_browser_draws_every_model_and_runs_nothing_else(tmp_path, n):
    points = make_points(n, author=HOSTILE)
    write_map(points, tmp_path / "map.html", title=HOSTILE)

    drawn = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}",
         (tmp_path / "map.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip

    marks = re.search(r'<g id="marks">(.*?)</g>', drawn).group(1)
    assert len(re.findall(r'transform="translate\([\d.]+ [\d.]+\)', marks)) == len(points)
    assert "img" not in Page(drawn).tags
