"""`deltadex find-similar` of several models."""

import json

import pytest
from click.testing import CliRunner
from factories import make_family

from deltadex.cli import main


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    assert run(folder, "index", str(folder / "base"), str(models)).exit_code == 0
    return folder


def run(folder, *arguments, stdin=None):
    return CliRunner().invoke(main, [*arguments, "--db", str(folder / "c.duckdb")], input=stdin)


def find(folder, *arguments, stdin=None):
    return run(folder, "find-similar", *arguments, stdin=stdin)


def test_several_models_have_the_answers_that_each_has_alone(family):
    both = json.loads(find(family, "a-0", "b-1", "-k", "2", "--json").stdout)
    alone = [json.loads(find(family, m, "-k", "2", "--json").stdout) for m in ("a-0", "b-1")]

    assert both == {"queries": alone, "failed": []}


def test_a_dash_stands_for_models_on_stdin(family):
    result = find(family, "-", "-k", "1", "--json", stdin="a-0\n\n  b-1 \na-0\n")

    document = json.loads(result.stdout)
    assert [query["query"]["model"] for query in document["queries"]] == ["a-0", "b-1"]


def test_one_model_on_stdin_is_answered_as_several_are(family):
    assert set(json.loads(find(family, "-", "--json", stdin="a-0\n").stdout)) == {
        "queries",
        "failed",
    }


def test_a_model_that_is_nowhere_stops_no_other(family):
    result = find(family, "a-0", "nobody", "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(document["queries"]) == 1
    assert [refused["model"] for refused in document["failed"]] == ["nobody"]


def test_people_see_who_could_not_be_answered(family):
    result = find(family, "a-0", "nobo\x1bdy")

    assert "nearest to a-0" in result.stdout
    assert "nobo�dy: no model" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (("nobody", "nothing"), None, 3, "nobody: no model"),
        (("-",), "\n", 2, "no model on stdin"),
        (("a-0", "b-0", "--where", "x"), None, 2, "columns:"),
        (("a-0", "b-0", "-k", "0"), None, 2, "0 is not in the range x>=1"),
        ((), None, 2, "MODEL"),
    ],
)
def test_a_question_without_an_answer_has_its_exit_code(family, arguments, stdin, code, message):
    result = find(family, *arguments, stdin=stdin)

    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert "Traceback" not in result.output
