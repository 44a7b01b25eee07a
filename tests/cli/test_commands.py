import json
import shutil
import sys

import pytest
from click.testing import CliRunner
from running import document, printed, run

from deltadex.cli import main

PLAN = ("plan", "{f}/base", "{f}/models")


def test_a_path_finds_the_stored_model_and_an_unknown_one_is_fingerprinted(family, tmp_path):
    stored = document(family, "find-similar", family / "models" / "b-0", "-k", "1")
    shutil.copytree(family / "models" / "b-0", tmp_path / "copy")
    fresh = document(family, "find-similar", tmp_path / "copy", "-k", "1")

    assert stored["neighbours"][0]["model"] == "b-1"
    assert fresh["neighbours"][0]["model"] == "b-0"
    assert fresh["neighbours"][0]["cosine"] == pytest.approx(1.0)
    assert fresh["neighbours"][0]["verdict"] == "copy"
    assert document(family, "stats")["bases"][0]["models"] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("find-similar", "a-0", "-k", "0"), 2, "0 is not in the range x>=1"),
        (("rm", "elsewhere/a-1"), 2, "near: a-1, "),
        (("find-similar", "a-0", "--dataset", "imbd"), 2, "no model has the dataset 'imbd'; there"),
        (("find-trained-on", "x.csv", "--author", "Author"), 2, "near: author0, author1"),
        (("eval", "--recipe", "spectra"), 2, "recipes here: sketch"),
        (("ls", "--columns", "modl"), 2, "near: model, "),
        (("ls", "--where", "drop table"), 2, "columns:"),
        (("ls", "--where", "datset = 'a'"), 2, "near: dataset, "),
        (("find-similar", "nobody", "nothing"), 3, "nobody: no model"),
        (("find-similar",), 2, "MODEL"),
        (("show", "nobody"), 2, "deltadex ls"),
        (("index", "gpt2"), 2, "--hub"),
        (("index", "./no-base", "."), 3, "no such folder"),
        (("add", "./none", "--base", "gpt2"), 3, "not-found"),
        ((*PLAN, "--depth", "2"), 2, "--depth and --min-downloads need --hub"),
        ((*PLAN, "--bandwidth", "fast"), 2, "bandwidth 'fast': expected a rate such as 1Gbit"),
        ((*PLAN, "--exclude", "big"), 2, "'big' is not one of"),
        ((*PLAN, "--exclude", "full"), 3, "that --exclude and --min-downloads"),
        (("ls", "--columns", ","), 2, "no column ','"),
        (("ls", "--sort", "sideways"), 2, "no column 'sideways'"),
        (("ls", "--csv", "--json"), 2, "--csv, or --json"),
        (("eval", "--compare", "raw,best"), 2, "no way of scoring 'best'; there are: normalised, "),
        (("export", "--scores", "s", "--format", "safetensors"), 2, "--scores writes Parquet"),
        (("export", "tables", "--exclude", "author"), 2, "belong to --scores"),
        (("label", "a-0", "x", "--clear"), 2, "or --clear"),
        (("label", "a-0", " "), 2, "--clear takes"),
        (("rank",), 2, "MODEL"),
        (("rank", "a-0", "-o", "x.gif"), 2, ".png"),
        (("rank", "--family", "nothing"), 2, "no indexed model"),
        (("components", "./nowhere"), 2, "no such folder"),
        (("attach",), 2, "give one of SOURCE"),
        (("attach", "x", "--list"), 2, "give one of SOURCE"),
        (("attach", "no-folder"), 3, "no such file"),
        (("attach", "https://me:secret@example.org/index"), 3, "https:// address"),
        (("attach", "ftp://example.org"), 3, "https:// address"),
        (("attach", "hf://datasets/nobody"), 3, "is not hf://datasets/OWNER/NAME"),
        (("attach", "--remove", "x"), 2, "no attached index"),
    ],
)
def test_every_mistake_is_one_line_with_its_exit_code(family, arguments, code, message):
    result = run(family, *(argument.format(f=family) for argument in arguments))

    assert result.exit_code == code, result.output
    assert message in (result.stderr or result.stdout)
    assert "Traceback" not in result.output
    assert "secret" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("index", "{f}/base", "{f}/models", "--recipe", "skech"),
        ("index", "{f}/base", "{f}/nothing"),
        ("add", "./none", "--base", "{f}/base"),
        PLAN,
        ("attach", "{f}/models"),
        ("merge", "{f}/base/config.json"),
    ],
    ids=" ".join,
)
def test_a_command_that_stores_nothing_leaves_no_catalog(family, tmp_path, arguments):
    (family / "nothing").mkdir(exist_ok=True)
    new = tmp_path / "new" / "c.duckdb"

    CliRunner().invoke(main, [*(a.format(f=family) for a in arguments), "--db", str(new)])

    assert list(tmp_path.iterdir()) == []


def test_an_empty_catalog_says_what_fills_it(tmp_path):
    for command in (("eval",), ("ls",), ("find-similar", "x"), ("serve", "--port", "0")):
        result = run(tmp_path, *command)
        assert (result.exit_code, "deltadex index" in result.output) == (2, True)


NEVER = {
    *("torch", "transformers", "scipy", "sklearn", "matplotlib", "huggingface_hub"),
    *("safetensors", "pyarrow.compute"),
}
"""What neither help nor a question about stored models imports."""

NUMBERS = NEVER | {"numpy", "pyarrow", "faiss"}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("index", "--help"), NUMBERS | {"duckdb"}),
        (("ls",), NUMBERS),
        (("sql", "FROM coverage"), NEVER),
        (("find-similar", "a-0"), NEVER),
        (("words", "a-0"), NEVER),
        (("lineage",), NEVER - {"scipy"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_help_and_a_stored_query_import_what_they_need(family, arguments, unwanted):
    code = (
        "import sys; from deltadex.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        f"sys.exit(', '.join({unwanted!r} & set(sys.modules)) or 0)"
    )
    printed(sys.executable, "-c", code, *arguments, "--db", family / "c.duckdb")


def find(folder, *arguments, stdin=None):
    return run(folder, "find-similar", *arguments, input=stdin)


def test_several_models_have_the_answers_that_each_has_alone(family):
    stdin = "a-0\n\n  b-1 \na-0\n"
    both = json.loads(find(family, "-", "-k", "2", "--json", stdin=stdin).stdout)
    alone = [json.loads(find(family, m, "-k", "2", "--json").stdout) for m in ("a-0", "b-1")]

    assert both == {"queries": alone, "failed": []}


def test_a_model_that_is_nowhere_stops_no_other(family):
    result, shown = find(family, "a-0", "nobody", "--json"), find(family, "a-0", "nobo\x1bdy")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(document["queries"]) == 1
    assert [refused["model"] for refused in document["failed"]] == ["nobody"]
    assert "nearest to a-0" in shown.stdout
    assert "nobo�dy: no model" in shown.stderr


@pytest.mark.parametrize("name", ["facets", "face", "terminal", "__init__", "demo.family", "lss"])
def test_what_is_no_command_is_said_to_be_none(name):
    result = CliRunner().invoke(main, [name])

    assert (result.exit_code, "No such command" in result.output) == (2, True)


def test_every_help_ends_with_an_example():
    for command in main.commands:
        assert f"deltadex {command}" in CliRunner().invoke(main, [command, "--help"]).output
