"""A new study is a folder and a line: command, call and page have it."""

import json
import re

import pytest
from factories import make_family
from package_copy import ROOT, copy_package, printed_by
from running import TEXTS

WALK = ROOT / "docs" / "architecture.md"

ASKED = """
import json

from click.testing import CliRunner

import deltadex as dx
from deltadex.cli import main

def run(*arguments):
    done = CliRunner(env={"DELTADEX_DB": "c.duckdb"}).invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout

def document(*arguments):
    return json.loads(run(*arguments, "--json"))

run("index", "base", "models")
texts = ("--texts", "texts.txt")
with dx.open("c.duckdb") as db:
    print(json.dumps({
        "by_command": document("lengths", "a-0", *texts, "--power", "1", "-o", "l.html"),
        "by_call": db.studies.lengths("a-0", texts="texts.txt", power=1).to_json(),
        "shown": run("lengths", "a-0", *texts),
        "help": run("lengths", "--help"),
        "listed": run("--help"),
        "docstring": db.studies.lengths.__doc__,
        "stored": db.sql("SELECT settings FROM studies WHERE study = 'lengths'")[0]["settings"],
    }))
"""

pytestmark = [
    pytest.mark.skipif(not WALK.exists(), reason="not run from a checkout"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A family beside a copy of the package, which has the study of docs/architecture.md."""
    folder = tmp_path_factory.mktemp("copy")
    package = copy_package(folder)
    _, study, line = re.findall(r"^```python\n(.*?)^```", WALK.read_text("utf-8"), re.M | re.S)
    assert len(study.splitlines()) <= 60
    (package / "study" / "lengths").mkdir()
    (package / "study" / "lengths" / "lengths.py").write_text(study, "utf-8")
    registry, ranks = package / "study" / "registry.pyi", "    from .rank.rank import rank\n"
    before, after = registry.read_text("utf-8").split(ranks)
    registry.write_text(before + line + ranks + after, "utf-8")
    make_family(folder)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    return printed_by(ASKED, folder)


def test_command_and_call_measure_the_same_and_store_it_under_the_options_that_decide_it(answers):
    by_command, by_call = answers["by_command"], answers["by_call"]

    assert by_command.pop("picture") == "l.html"
    assert by_command == by_call
    assert [row["layer"] for row in by_call["layers"]] == [0, 1, 2]
    assert by_call["tokens"] == 24 * 11
    assert (by_call["broken_rows"], by_call["base_notes"]) == ([], [])
    settings = json.loads(answers["stored"])
    assert sorted(settings) == ["max_tokens", "power", "texts", "version"]
    assert (settings["max_tokens"], settings["version"]) == (128, 1)


def test_screen_page_help_and_docstring_have_its_section_and_what_its_record_says(answers, folder):
    assert "mean length over 264 tokens" in answers["shown"]
    page = (folder / "l.html").read_text("utf-8")
    assert "<h2>mean length over 264 tokens</h2><table>" in page
    assert page.count("<svg") == 2
    assert "lengths " in answers["listed"]
    for says in (answers["help"], answers["docstring"]):
        assert "Measure how long hidden states are, by layer." in says
        assert "Power of the norm." in says
    assert "deltadex lengths ./my-run --texts reviews.csv -o lengths.png" in answers["help"]
