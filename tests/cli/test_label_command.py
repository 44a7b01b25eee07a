"""Labels from a file and from the command line."""

import json

import pytest
from click.testing import CliRunner
from factories import make_family

from deltadex.cli import main


@pytest.fixture
def family(tmp_path):
    make_family(tmp_path)
    return tmp_path


def run(folder, *arguments):
    return CliRunner().invoke(main, [*arguments, "--db", str(folder / "c.duckdb")])


def index(folder, text, *arguments):
    (folder / "labels.csv").write_text(text)
    return run(
        folder,
        *("index", str(folder / "base"), str(folder / "models")),
        *("--labels", str(folder / "labels.csv"), *arguments),
    )


def test_the_report_counts_rows_on_stderr_and_in_the_document(family):
    result = index(family, "model;dataset\nmodels/a-0;x\nmodels/a-7;x\n", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["labels"] == {
        "rows": 2,
        "matched": 1,
        "unmatched": ["models/a-7"],
    }
    assert "labels.csv: 2 rows, 1 matched; 1 name no model here, nearest: " in result.stderr


def test_quiet_says_nothing_of_labels(family):
    result = index(family, "model,dataset\nmodels/a-0,x\n", "--quiet")

    assert (result.exit_code, result.stderr) == (0, "")


def test_a_limit_does_not_make_rows_strangers(family):
    result = index(family, "model,dataset\nmodels/b-1,x\n", "--limit", "1")

    assert result.exit_code == 0, result.output


def test_a_file_that_names_no_model_stops_the_run_before_it_reads(family):
    result = index(family, "model,dataset\nnobody,x\n")

    assert result.exit_code == 3
    assert "0 matched" in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(run(family, "stats", "--json").stdout)["bases"] == []
