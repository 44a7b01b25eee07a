import duckdb
import pytest
from catalogs import refused, write
from running import document, run


@pytest.fixture
def db(tmp_path):
    return write(tmp_path / "c.duckdb", refused("m", base="[red]base\x1b[2J"))


def leave_a_file(db):
    folder = db.with_name(db.name + ".index")
    folder.mkdir(exist_ok=True)
    (folder / "0123456789abcdef.faiss").write_bytes(b"of a family that is gone")


def test_a_well_catalog_has_exit_code_0_and_a_line_a_check(db):
    result = run(db, "doctor")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[-1] == "no problems"
    assert {line.split()[1] for line in lines[:-1]} >= {"tables", "leftovers", "models"}
    assert {line.split()[0] for line in lines[:-1]} <= {"ok", "note"}


def test_what_is_derived_is_mended_and_the_exit_code_is_0(db):
    leave_a_file(db)

    looked, mended = run(db, "doctor", "--check"), run(db, "doctor")
    leave_a_file(db)
    report = document(db, "doctor")

    assert (looked.exit_code, mended.exit_code) == (1, 0)
    assert "1 to be repaired by hand" in looked.stdout
    assert "repaired  leftovers" in mended.stdout
    assert "1 repaired, no problems" in mended.stdout
    assert (report["db"], report["repaired"], report["problems"]) == (str(db), 1, 0)
    assert all(set(c) == {"check", "state", "detail", "advice"} for c in report["checks"])
    assert [c["check"] for c in report["checks"] if c["state"] == "repaired"] == ["leftovers"]


def test_what_is_not_derived_stays_with_exit_code_1_and_the_way_out(db):
    with duckdb.connect(str(db)) as connection:
        connection.execute("UPDATE models SET status = 'indexed'")

    first, second = run(db, "doctor"), run(db, "doctor")

    assert (first.exit_code, second.exit_code) == (1, 1)
    assert "1 model with rows out of range" in first.stdout
    assert "→ `deltadex rm`" in first.stdout


def test_a_quick_examination_reads_no_rows_and_says_so(db):
    checked = document(db, "doctor", "--check")["checks"]
    quick = document(db, "doctor", "--quick")["checks"]

    left_out = {row["check"] for row in checked} - {row["check"] for row in quick}
    (rest,) = (row for row in quick if row["check"] == "rest")
    assert left_out == {"tables", "models"}
    assert left_out <= set(rest["detail"].removeprefix("not checked: ").split(", "))
    assert rest["state"] == "note"
