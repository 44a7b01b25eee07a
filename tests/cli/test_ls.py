"""`deltadex ls`: columns, order, limit, CSV."""

import csv
import io

import pytest
from catalogs import refused, write
from running import document, run

from deltadex.questions.terminal import sections
from deltadex.store import Catalog

LONG = "someone/" + "a-long-name-" * 20


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    models = (("b", 5, 'x,"y"'), ("a\x1b[31m", None, None), ("c", 70, "x"), (LONG, 6, None))
    return write(
        tmp_path_factory.mktemp("ls") / "c.duckdb",
        *(refused(id, downloads=downloads, dataset=name) for id, downloads, name in models),
    )


def rows(db, *arguments):
    result = run(db, "ls", "--csv", *arguments)
    assert result.exit_code == 0, result.output
    return list(csv.reader(io.StringIO(result.stdout)))


def test_csv_has_the_chosen_columns_in_order_and_quotes_what_needs_it(db):
    table = rows(db, "--columns", "downloads, ID,dataset,notes", "--sort", "model")

    assert table[0] == ["downloads", "model", "dataset", "notes"]
    assert table[1][:3] == ["", "a�[31m", ""]
    assert table[2] == ["5", "b", 'x,"y"', "[]"]


def test_json_has_the_chosen_columns_only_and_the_total(db):
    answer = document(db, "ls", "--columns", "model", "--limit", "2")

    assert answer == {"models": [{"model": "a\x1b[31m"}, {"model": "b"}], "total": 4}
    assert run(db, "ls", "--limit", "1").stdout.splitlines()[-1] == "1 of 4 models"


def test_unknown_values_come_last_in_reverse_order_too(db):
    table = rows(db, "--columns", "downloads", "--sort", "downloads", "--reverse")

    assert [row[0] for row in table[1:]] == ["70", "6", "5", ""]


def test_a_guess_and_a_collection_without_its_part_are_marked(tmp_path):
    labels = {
        "a": ("imdb", "imdb", "name"),
        "b": ("imdb", "glue", "name"),
        "c": (None, "glue", None),
        "d": ("imdb", "imdb", "card"),
        "e": (None, "glue", "labels"),
    }
    keys = ("dataset", "dataset_raw", "label_source")
    models = (refused(id, **dict(zip(keys, said, strict=True))) for id, said in labels.items())
    write(tmp_path / "c.duckdb", *models)

    lines = run(tmp_path, "ls").stdout.splitlines()

    cells = [line.split("truncated")[1].strip() for line in lines[1:]]
    assert cells == ["imdb (guess)", "imdb (guess; card: glue)", "glue (which part?)", "imdb", ""]


def test_what_is_not_indexed_is_one_line_unless_asked_for(family):
    with Catalog.open(family / "c.duckdb") as catalog:
        for id, code in (("x", "truncated"), ("y", "truncated"), ("z", "non-finite")):
            catalog.record(refused(id, code, base=catalog.bases()[0]))

    lines = run(family, "ls").stdout.splitlines()
    asked = run(family, "ls", "--status", "failed").stdout.splitlines()

    assert [line.split()[0] for line in lines[:-1]] == ["model", "a-0", "a-1", "b-0", "b-1"]
    assert lines[-1] == "not indexed: 2 truncated, 1 non-finite (`deltadex failures`)"
    assert {line.split()[0] for line in asked} >= {"x", "y"}


def test_cells_are_shortened_to_a_terminal_unless_wide(db, monkeypatch):
    monkeypatch.setattr(sections.Screen, "is_terminal", True)
    monkeypatch.setenv("COLUMNS", "60")

    shown, wide = run(db, "ls").stdout, run(db, "ls", "--wide").stdout

    assert (LONG in shown, "…" in shown) == (False, True)
    assert (LONG in wide, "…" in wide) == (True, False)
