"""A new question is a file: the command, its help, its documents and its files have it."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from factories import make_family

import deltadex as dx
from deltadex import questions
from deltadex.cli import main
from deltadex.questions.terminal.commands import COMMANDS

WALK = Path(dx.__file__).parent / "docs" / "architecture.md"

pytestmark = pytest.mark.skipif(not WALK.exists(), reason="not run from a checkout")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs commands over a family, where `questions/` has the file of docs/architecture.md."""
    written = re.findall(r"^```python\n(.*?)^```", WALK.read_text("utf-8"), re.M | re.S)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "kinds.py").write_text(written[0], "utf-8")
    monkeypatch.setattr(questions, "__path__", [*questions.__path__, str(tmp_path / "more")])
    monkeypatch.setattr(COMMANDS, "groups", type(COMMANDS)().groups)
    monkeypatch.chdir(tmp_path)
    make_family(tmp_path)

    def run(*arguments):
        done = CliRunner(env={"DELTADEX_DB": "c.duckdb"}).invoke(main, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    run("index", "base", "models")
    return run


def test_a_file_is_a_command_a_document_a_table_and_a_call(run):
    with dx.open("c.duckdb", read_only=True) as db:
        by_call = db.ask(import_module("deltadex.questions.kinds").Kinds()).to_json()
        kinds = [row["kind"] for row in db.models()]

    assert json.loads(run("kinds", "--json")) == by_call
    assert by_call["kinds"] == [{"kind": "full", "models": kinds.count("full")}]
    assert json.loads(run("kinds", "--fewest", "99", "--json")) == {"kinds": []}
    run("kinds", "-o", "kinds.md")
    assert Path("kinds.md").read_text("utf-8").startswith("| kind | models |")
    assert "full" in run("kinds")
    assert "Others:\n  kinds" in run("--help")
    assert "Fewest models of a kind that is listed." in run("kinds", "--help")
