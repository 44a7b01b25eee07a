"""What strangers wrote, as commands print it and pages show it."""

import csv
import json
import logging
import unicodedata
from functools import partial

import pytest
from bounds import HOSTILE_TEXTS, few, texts
from factories import make_family, write_file
from hypothesis import given
from running import run

from deltadex.figures import new_picture, save_picture
from deltadex.questions.map.map import encode_names, write_page
from deltadex.questions.terminal.text import PlainFormatter, json_text, plain
from deltadex.results import html_table

ID = "\x1b[31m[bold]:bomb:[\\bold]\u202e\x9b2J\\"
DATASET = "\x1b]0;owned\x07[link=x]y[/link]\u2066[/]\n:bomb:"
AUTHOR = "\x9b31m[red]\u200f\r\x7f"
COMMANDS = (
    *((name,) for name in ("ls", "stats", "failures", "eval", "doctor")),
    *((name, ID) for name in ("show", "rank")),
    ("find-similar", ID, "-k", "3", "--explain"),
    ("cluster", "--min-size", "2"),
    ("diff", ID, "b-0"),
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A catalog in which ids, labels, authors and reasons are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    models = make_family(folder)
    (models / "a-0").rename(models / ID)
    for name in (f"broken{ID}", f"strange{ID}"):
        write_file(models / name / "model.safetensors", b"")
    write_file(models / f"strange{ID}" / "config.json", '{"model_type": "\\u001b[31m"}')
    with (models / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "dataset", "author"])
        rows.writerows([[ID, DATASET, AUTHOR], ["a-1", DATASET, "x"], ["b-0", "b", AUTHOR]])
    result = run(folder, "index", folder / "base", models, "--labels", models / "labels.csv")
    assert result.exit_code == 1, result.output
    assert harmless(result.stdout + result.stderr)
    return folder


def harmless(text):
    """Whether a terminal shows it and does nothing else."""
    return not any(
        c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_table_and_json_show_names_and_obey_none(family, command):
    result = run(family, *command)

    assert result.exit_code in (0, 1), result.output
    assert harmless(result.stdout + result.stderr)
    if command[0] in ("ls", "show", "find-similar", "diff", "cluster"):
        assert plain(ID) in result.stdout
    as_json = run(family, *command, "--json")
    assert harmless(as_json.stdout + as_json.stderr)
    document = json.loads(as_json.stdout)
    assert command[0] != "ls" or ID in {row["model"] for row in document["models"]}


@pytest.mark.parametrize(
    "command",
    [("show", "\x1b[31mgone"), ("find-similar", "\x9bgone"), ("ls", "--where", "\x1b[31m")],
)
def test_an_error_shows_what_was_asked_and_obeys_nothing(family, command):
    result = run(family, *command)

    assert result.exit_code != 0
    assert harmless(result.stdout + result.stderr)


@few
@given(text=texts())
def test_a_plain_text_is_harmless_and_as_long(text):
    assert harmless(plain(text).replace("\n", "\x1b"))
    assert len(plain(text)) == len(text)


@few
@given(text=texts())
def test_json_is_harmless_and_says_the_same(text):
    written = json_text({text: [text, 1, None]})

    assert harmless(written)
    assert json.loads(written) == {text: [text, 1, None]}


def test_a_log_line_is_harmless_and_a_traceback_keeps_its_lines():
    record = logging.LogRecord("n", logging.INFO, "f", 1, "the Hub says %s", ("\x1b[2J\n",), None)

    assert PlainFormatter("%(message)s").format(record) == "the Hub says �[2J�"
    try:
        raise ValueError("x")
    except ValueError as err:
        record.exc_info = (type(err), err, err.__traceback__)
    assert "\nValueError: x" in PlainFormatter("%(message)s").format(record)


# the family's page and the studies' pictures in a real browser: names stay text

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


@pytest.fixture(scope="module")
def opened(browser):
    """Opens a file; nothing that strangers wrote may have run, asked for anything, or spoken."""
    said, page = [], browser.new_page()
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda r: said.append(r.url) if not r.url.startswith("file:") else None)

    def go(path, query=""):
        page.goto(path.as_uri() + query)
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None
        return page

    yield go
    assert page.evaluate("window.hacked") is None
    page.close()
    assert said == []


def hostile_map(folder):
    n = len(NAMES)
    document = {
        "base": SCRIPTS[1], "recipe": "sketch", "layout": "pca", "explained": None, "seed": 0,
        "models": list(NAMES), "x": [i / n for i in range(n)], "y": [-i / n for i in range(n)],
        "downloads": [None] * n,
    }  # fmt: skip
    for name in ("dataset", "author", "kind", "month"):
        document[name], document[f"{name}s"] = encode_names(NAMES)
    neighbours = {
        "neighbours": [[[(i + 1) % n, 5.0, 0.9, 0.1, 0.5, 0]] for i in range(n)],
        "verdicts": [SCRIPTS[0]],
        "calibration": {"source": SCRIPTS[1], "models": 0, "models_needed": 12},
    }
    path = folder / "map.html"
    write_page(document, path, title=SCRIPTS[0], subtitle=SCRIPTS[1], neighbours=neighbours)
    return path


def test_no_name_on_the_page_and_nothing_in_its_address_runs(tmp_path, opened):
    path = hostile_map(tmp_path)

    for view in VIEWS:
        opened(path, f"?view={view}")
    for key in ("view", "model", "colour", "q", "dataset", "base"):
        opened(path, f"?{key}=%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E")
    page = opened(path)
    page.wait_for_selector("body.ready")
    page.fill("#search", "<img")
    page.wait_for_selector("#found li")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)

    assert SCRIPTS[0] in page.title()
    assert page.query_selector("img[src=x]") is None


def hostile_picture(name):
    picture = new_picture("column", 30.0)
    axes = picture.figure.add_subplot()
    picture.hover(axes, [0.5], [0.5], [name])
    return picture


def test_no_title_of_a_picture_runs(tmp_path, opened):
    for name in SCRIPTS[::3]:
        draw, below = partial(hostile_picture, name), html_table([name], [[name]])
        page = opened(save_picture(draw, tmp_path / "p.html", title=name, table=below))
        circle = page.locator("figure.light .points circle").bounding_box()
        page.mouse.move(circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)

        assert page.title() == name
        assert page.inner_text("#note") == name
        assert page.inner_text("td") == name
