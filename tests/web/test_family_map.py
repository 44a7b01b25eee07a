import base64
import hashlib
import json
from html.parser import HTMLParser

import pytest

from deltadex.questions.map.map import encode_names, write_page

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


def make_document(model="m0", x=0.0, *, name="sst2"):
    """A map of one model, whose data set, author and kind have one name."""
    document = {
        "base": None, "layout": "pca", "explained": None,
        "models": [model], "x": [x], "y": [0.0], "downloads": [None],
    }  # fmt: skip
    for column in ("dataset", "author", "kind"):
        document[column], document[f"{column}s"] = encode_names([name])
    return document


def written(tmp_path, document, **options):
    path = tmp_path / "map.html"
    write_page(document, path, **({"title": "A family"} | options))
    return path.read_text("utf-8")


def payload(text):
    (data,) = [body for attrs, body in Page(text).scripts if attrs.get("type")]
    return json.loads(data)


def test_names_stay_data_whatever_they_hold(tmp_path):
    document = make_document(HOSTILE, name=HOSTILE)
    plain = Page(written(tmp_path, make_document()))
    near = {
        "neighbours": [[[0, 1.0, 0.75, 0.25, 0.5, 0]]],
        "verdicts": ["perhaps"],
        "calibration": {},
    }

    text = written(tmp_path, document, title=HOSTILE, subtitle=HOSTILE, neighbours=near)

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


@pytest.mark.parametrize("nowhere", [float("nan"), float("inf")])
def test_a_model_nowhere_is_refused(tmp_path, nowhere):
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(tmp_path, make_document(x=nowhere))
