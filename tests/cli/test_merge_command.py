import json
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from catalogs import PLAIN, SLOT, make_catalog, make_indexed
from click.testing import CliRunner
from running import document

from deltadex.cli import main


def run(*arguments, **environment):
    return CliRunner().invoke(main, ["merge", *map(str, arguments)], env=environment)


def write(path, **axes):
    """A catalog of models by id, with the axis of each one's vector."""
    models = [
        make_indexed(id, np.eye(4)[axis], signature=f"{axis}", recipes=(PLAIN,))
        for id, axis in axes.items()
    ]
    make_catalog(path, *(replace(model, slots=(SLOT,)) for model in models)).close()
    return path


@pytest.fixture
def machines(tmp_path):
    a = write(tmp_path / "a.duckdb", **{"x": 0, "[red]y\x1b": 1})
    b = write(tmp_path / "b.duckdb", **{"z": 2, "[red]y\x1b": 3})
    return a, b


def ids(db):
    return [row["model"] for row in document(db, "ls")["models"]]


def test_merge_prints_the_contract(machines):
    a, b = machines

    result = run(a, b, "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(document) == {
        *("target", "added", "updated", "unchanged", "differing", "data_sets"),
        *("conflicts", "damaged", "sources", "models", "seconds"),
    }
    assert document["target"] == str(a)
    assert (document["added"], document["differing"], document["models"]) == (1, 1, 3)
    (conflict,) = document["conflicts"]
    assert set(conflict) == {"base", "model", "about", "source", "kept", "other"}
    assert [source["source"] for source in document["sources"]] == [str(b)]


def test_the_target_is_that_of_db_which_may_be_new_or_else_the_first_named(machines, tmp_path):
    a, b = machines

    assert run(a, b, "--db", tmp_path / "new.duckdb").exit_code == 0
    assert (len(ids(tmp_path / "new.duckdb")), len(ids(a)), len(ids(b))) == (3, 2, 2)

    assert run(a, b, DELTADEX_DB=str(tmp_path / "mine.duckdb")).exit_code == 0
    assert (len(ids(a)), len(ids(b))) == (3, 2)
    assert not (tmp_path / "mine.duckdb").exists()


def test_conflicts_are_shown_and_names_do_not_command_the_terminal(machines):
    result = run(*machines)

    assert "1 conflict (the target's values were kept)" in result.stdout
    assert "[red]y�: weights" in result.stdout
    assert "signature: 1, not 3" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_catalog_is_a_usage_error_that_makes_none(machines, tmp_path, place):
    files = list(machines)
    files[place] = tmp_path / "typo.duckdb"

    result = run(*files)

    assert result.exit_code == 2
    assert "typo.duckdb" in result.stderr
    assert not files[place].exists()


def test_what_is_left_out_is_named_and_decides_the_exit_code(machines):
    a, b = machines
    with duckdb.connect(str(b)) as connection:
        connection.execute("UPDATE slots SET energy = 'nan' WHERE model = 1")
    some = run(a, b)
    with duckdb.connect(str(b)) as connection:
        connection.execute("UPDATE slots SET energy = 'nan'")
    nothing = run(b, "--db", a.with_name("new.duckdb"))

    assert (some.exit_code, nothing.exit_code) == (1, 3)
    for result, n_lines in ((some, 1), (nothing, 2)):
        lines = [line for line in result.stdout.splitlines() if line.startswith("left out: ")]
        assert len(lines) == n_lines
        assert all("(slot energy); index it again" in line for line in lines)
    assert ids(a) == ["[red]y\x1b", "x"]
