"""What strangers wrote, as commands print it: tables, lines and JSON."""

import csv
import json
import logging
import unicodedata

import pytest
from bounds import texts
from click.testing import CliRunner
from factories import make_family
from fuzzing import few
from hypothesis import given

from deltadex.cli import main
from deltadex.errors import SourceError
from deltadex.terminal import show_diff, show_failures, show_models
from deltadex.terminal.text import PlainFormatter, json_text, plain

ID = "\x1b[31m[bold]:bomb:[\\bold]\u202e\x9b2J\\"
DATASET = "\x1b]0;owned\x07[link=x]y[/link]\u2066[/]\n:bomb:"
AUTHOR = "\x9b31m[red]\u200f\r\x7f"
COMMANDS = (
    ("ls",),
    ("stats",),
    ("failures",),
    ("show", ID),
    ("find-similar", ID, "-k", "3", "--explain"),
    ("eval",),
    ("cluster", "--min-size", "2"),
    ("diff", ID, "b-0"),
    ("rank", ID),
    ("doctor",),
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A catalog in which ids, labels, authors and reasons are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    models = make_family(folder)
    (models / "a-0").rename(models / ID)
    (models / f"broken{ID}").mkdir()
    (models / f"strange{ID}").mkdir()
    (models / f"strange{ID}" / "model.safetensors").write_bytes(b"")
    (models / f"strange{ID}" / "config.json").write_text('{"model_type": "\\u001b[31m"}')
    (models / f"broken{ID}" / "model.safetensors").write_bytes(b"")
    with (models / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "dataset", "author"])
        rows.writerows([[ID, DATASET, AUTHOR], ["a-1", DATASET, "x"], ["b-0", "b", AUTHOR]])
    arguments = ["--labels", str(models / "labels.csv")]
    result = run(folder, "index", str(folder / "base"), str(models), *arguments)
    assert result.exit_code == 1, result.output
    assert harmless(result.stdout + result.stderr)
    return folder


def run(folder, *arguments):
    return CliRunner().invoke(main, [*arguments, "--db", str(folder / "c.duckdb")])


def harmless(text):
    """Whether a terminal shows it and does nothing else."""
    return not any(
        c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_table_shows_names_and_obeys_none(family, command):
    result = run(family, *command)

    assert result.exit_code in (0, 1), result.output
    assert harmless(result.stdout + result.stderr)
    if command[0] in ("ls", "show", "find-similar", "diff", "cluster"):
        assert plain(ID) in result.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_json_keeps_names_and_obeys_none(family, command):
    result = run(family, *command, "--json")

    assert result.exit_code in (0, 1), result.output
    assert harmless(result.stdout + result.stderr)
    json.loads(result.stdout)
    if command[0] == "ls":
        assert ID in {row["model"] for row in json.loads(result.stdout)["models"]}


@pytest.mark.parametrize(
    "command",
    [("show", "\x1b[31mgone"), ("find-similar", "\x9bgone"), ("ls", "--where", "\x1b[31m")],
)
def test_an_error_shows_what_was_asked_and_obeys_nothing(family, command):
    result = run(family, *command)

    assert result.exit_code != 0
    assert harmless(result.stdout + result.stderr)


def test_a_removed_model_is_named_harmlessly(family, tmp_path):
    copy = tmp_path / "c.duckdb"
    copy.write_bytes((family / "c.duckdb").read_bytes())

    result = run(tmp_path, "rm", ID)

    assert result.exit_code == 0, result.output
    assert harmless(result.stdout)


def test_an_error_of_a_defect_is_harmless(monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise SourceError(f"{ID}\ud800")

    monkeypatch.setattr("deltadex.store.Catalog.open", fail)

    assert harmless(run(tmp_path, "ls").stderr)


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


@few
@given(text=texts())
def test_any_name_stands_in_a_table(text):
    row = {"model": text, "status": "failed", "code": "bad-config", "dataset": text,
           "author": text, "run": text, "reason": text}  # fmt: skip
    group = {"code": "bad-config", "status": "failed", "meaning": "m", "models": [row]}
    stub = {
        "models": [text, text], "sentence": text, "by_role": {text: (1.0, 2.0)}, "by_layer": {},
        "unit": "relative", "most_different": [], "profiles": {text: {"most_edited": {}}},
    }  # fmt: skip

    show_models({"models": [row]})
    show_failures({"failures": [group]})
    show_diff(stub)


def test_a_name_is_printed_as_it_is(capsys):
    name = "lab/[bold]x[/]:bomb:\\"

    show_models(
        {"models": [dict.fromkeys(("model", "status", "code", "dataset", "author", "run"), name)]}
    )

    assert capsys.readouterr().out.count(name) == 6


def test_a_log_line_is_harmless_and_a_traceback_keeps_its_lines():
    record = logging.LogRecord("n", logging.INFO, "f", 1, "the Hub says %s", ("\x1b[2J\n",), None)

    assert PlainFormatter("%(message)s").format(record) == "the Hub says �[2J�"
    try:
        raise ValueError("x")
    except ValueError as err:
        record.exc_info = (type(err), err, err.__traceback__)
    assert "\nValueError: x" in PlainFormatter("%(message)s").format(record)
