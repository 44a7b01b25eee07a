import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from killing import TASKS, check, kill_cold, kill_once, read_contents, undisturbed

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"
COLD_S = 4.0
"""About how long a cold process takes; later moments find it ended."""


@pytest.fixture
def seed(record_property):
    seed = random.randrange(10**6)
    record_property("seed", seed)
    return seed


QUICK = ("index", "index as guest", "add")


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, id=task.name, marks=[] if task.name in QUICK else pytest.mark.slow)
        for task in TASKS
    ],
)
def test_a_killed_command_loses_nothing_and_goes_on(task, nursery, prepared, tmp_path, seed):
    expected = undisturbed(nursery, prepared, task, tmp_path / "undisturbed")
    share = random.Random(seed).random()

    death = kill_once(nursery, prepared, task, expected, tmp_path / "killed", share)

    assert not death.findings, f"seed {seed}: {death}"


def test_a_killed_cold_process_loses_nothing_that_a_reader_saw(nursery, prepared, tmp_path, seed):
    task = TASKS[0]
    expected = undisturbed(nursery, prepared, task, tmp_path / "undisturbed")
    share = random.Random(seed).random()

    death = kill_cold(nursery, prepared, task, expected, tmp_path / "killed", share, COLD_S)

    assert not death.findings, f"seed {seed}: {death}"


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(tmp_path):
    command = [sys.executable, str(KILLS), "--kills", "200", "--cold", "20"]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stdout


# That the machinery would see it


@pytest.fixture
def whole(prepared, tmp_path):
    db = prepared.begin(TASKS[-1], tmp_path / "whole")
    return db, read_contents(db)


def _change(db, sql):
    with duckdb.connect(str(db)) as connection:
        connection.execute(sql)


def test_an_untouched_catalog_has_no_findings(whole):
    db, contents = whole

    assert not check(db, contents, there=contents.ids)


def test_a_model_that_is_gone_is_missed(whole):
    db, contents = whole
    _change(db, "DELETE FROM models WHERE id = 'm00003'")

    findings = check(db, contents, there=contents.ids)

    assert findings.lost == ["m00003"]
    assert "vectors of no model" in findings.wrong
    assert "slots of no model" in findings.wrong


def test_a_model_that_is_there_twice_is_seen(whole):
    db, contents = whole
    _change(db, "INSERT INTO models SELECT * REPLACE (key + 100 AS key) FROM models WHERE key = 3")

    assert len(check(db, contents, searched=False).duplicates) == 1


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM slots WHERE model = 3 AND layer = 1 AND role = 'q'",
        "UPDATE {vectors} SET norm = norm * 1.0000001 WHERE model = 3",
    ],
)
def test_a_slot_less_and_a_changed_number_are_seen(whole, change):
    db, contents = whole
    with duckdb.connect(str(db)) as connection:
        ((vectors,),) = connection.execute("SELECT vectors FROM recipes").fetchall()
        connection.execute(change.format(vectors=vectors))

    assert any("not what was recorded" in line for line in check(db, contents).wrong)
