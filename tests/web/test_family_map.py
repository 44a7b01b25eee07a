import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from deltadex.questions.map.page import MapNeighbour, Neighbourhoods, encode_names, write_page

HOSTILE = '</script><img src=x onerror="alert(1)">{{payload}}</body>\u2028 & <!-- é'


class Page(HTMLParser):
    """Every element and attribute of a page, and the text of its scripts, style and title."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.style, self.title = [], [], [], "", ""
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
        elif self.open == "style":
            self.style += data
        elif self.open == "title":
            self.title += data


def make_document(n=3, *, dataset="sst2", author="someone", kind="full", **changes):
    """A map of n models; names are a column, or one for all."""
    document = {
        "base": None, "layout": "pca", "explained": None,
        "models": [f"m{i}" for i in range(n)],
        "x": [i * 0.5 for i in range(n)], "y": [-1.0 * i for i in range(n)],
        "downloads": [None] * n,
    } | changes  # fmt: skip
    for name, value in (("dataset", dataset), ("author", author), ("kind", kind)):
        column = value if isinstance(value, list) else [value] * n
        document[name], document[f"{name}s"] = encode_names(column)
    return document


def near(model, *, z=1.0, verdict="perhaps"):
    return MapNeighbour(model, z, probability=0.75, fdr=0.25, cosine=0.5, verdict=verdict)


def written(tmp_path, document, **options):
    path = tmp_path / "map.html"
    write_page(document, path, **({"title": "A family"} | options))
    return path.read_text("utf-8")


def payload(text):
    (data,) = [body for attrs, body in Page(text).scripts if attrs.get("type")]
    return json.loads(data)


def test_every_model_is_in_the_page_as_data(tmp_path):
    document = make_document(
        2, models=["a/x", "b/y"], x=[0.25, -1.0], y=[1.0, 2.0], downloads=[7, None],
        dataset=["sst2", None], author=[None, "b"], kind=["full", "adapter"],
    )  # fmt: skip
    neighbours = Neighbourhoods(
        [
            [near("b/y", z=6.98765, verdict="perhaps"), near("gone")],
            [near("a/x", verdict="no model stands out")],
        ],
        {"source": "the null alone"},
    )

    data = payload(written(tmp_path, document, neighbours=neighbours))

    shown = data["map"]
    assert shown == document
    assert (shown["models"], shown["x"], shown["y"]) == (["a/x", "b/y"], [0.25, -1], [1, 2])
    assert (shown["datasets"], shown["dataset"]) == (["sst2"], [0, None])
    assert (shown["authors"], shown["author"]) == (["b"], [None, 0])
    assert [shown["kinds"][i] for i in shown["kind"]] == ["full", "adapter"]
    assert shown["downloads"] == [7, None]
    assert data["neighbours"] == [
        [[1, 6.9877, 0.75, 0.25, 0.5, 0]],
        [[0, 1.0, 0.75, 0.25, 0.5, 1]],
    ]
    assert data["verdicts"] == ["perhaps", "no model stands out"]
    assert data["calibration"] == {"source": "the null alone"}


def test_names_stay_data_whatever_they_hold(tmp_path):
    document = make_document(1, models=[HOSTILE], dataset=HOSTILE, author=HOSTILE, kind=HOSTILE)
    plain = Page(written(tmp_path, make_document(1)))

    text = written(
        tmp_path,
        document,
        title=HOSTILE,
        subtitle=HOSTILE,
        neighbours=Neighbourhoods([[near(HOSTILE)]], {}),
    )

    page, data = Page(text), payload(text)
    assert page.tags == plain.tags
    assert page.title == HOSTILE == data["title"] == data["subtitle"]
    assert data["map"]["models"] == data["map"]["authors"] == data["map"]["kinds"] == [HOSTILE]


def test_the_policy_admits_the_script_and_the_style_of_the_page_alone(tmp_path):
    page = Page(written(tmp_path, make_document()))

    (script,) = [body for attrs, body in page.scripts if not attrs]
    (policy,) = [v for k, v in page.attributes if k == "content" and "default-src" in v]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for rule, text in (("script-src", script), ("style-src", page.style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_the_scripts_never_write_markup(tmp_path):
    text = written(tmp_path, make_document())

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


@pytest.mark.parametrize("nowhere", [float("nan"), float("inf")])
def test_a_model_nowhere_is_refused(tmp_path, nowhere):
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(tmp_path, make_document(1, x=[nowhere]))
