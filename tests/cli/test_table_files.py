"""`-o FILE` of every command that prints a table."""

import csv

import pytest
from running import run

from deltadex.questions.terminal.written import save_sections
from deltadex.results import Section

TABLES = {
    ("find-similar", "a-0"): ("model", {"a-1", "b-0", "b-1"}),
    ("ls",): ("model", {"a-0", "a-1", "b-0", "b-1"}),
    ("sql", "SELECT 7 AS seven"): ("seven", {"7"}),
    ("doctor", "--check"): ("state", {"ok"}),
    ("spectrum", "a-0"): ("slot", set()),
}


@pytest.mark.parametrize("words", TABLES, ids=" ".join)
def test_a_csv_file_holds_the_rows(family, tmp_path, words):
    column, expected = TABLES[words]

    result = run(family, *words, "-o", tmp_path / "t.csv")

    assert result.exit_code == 0, result.output
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert {row.get(column) for row in rows} >= expected
    assert result.stdout == run(family, *words).stdout or words[0] == "doctor"


@pytest.mark.parametrize(("ending", "mark"), [("md", "###"), ("tex", "%"), ("csv", "#")])
def test_tables_of_a_report_stand_below_their_titles(tmp_path, ending, mark):
    sections = [Section(title=f"of {n}", columns=("layer", n), rows=[(0, n)]) for n in "ab"]

    save_sections([*sections, Section(title="words", notes=["alone"])], tmp_path / f"t.{ending}")

    lines = (tmp_path / f"t.{ending}").read_text().splitlines()
    wanted = [f"{mark} of a", f"{mark} of b"]
    assert [line for line in lines if line.startswith(f"{mark} ")] == wanted


def test_another_ending_is_refused_before_anything_is_done(tmp_path):
    result = run(tmp_path, "ls", "-o", tmp_path / "t.xls")

    study = run(tmp_path, "spectrum", "a-0", "-o", tmp_path / "t.xls")

    assert (result.exit_code, study.exit_code) == (2, 2)
    assert ".csv, .tex, .md" in result.stderr
    assert ".png" in study.stderr
    assert ".csv" in study.stderr
    assert not (tmp_path / "c.duckdb").exists()
