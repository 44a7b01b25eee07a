import pytest
from catalogs import refused, write
from running import document, run


@pytest.fixture
def db(tmp_path):
    return write(tmp_path / "c.duckdb", refused("[red]m"))


def test_backup_prints_the_contract_and_other_commands_read_it(db, tmp_path):
    target = tmp_path / "b.duckdb"
    report = document(db, "backup", target)
    listed = document(target, "ls")

    assert set(report) == {"written", "models", "bytes", "sha256", "seconds"}
    assert report["written"] == str(target)
    assert (report["models"], report["bytes"]) == (1, target.stat().st_size)
    assert 0 < report["seconds"] < 60
    assert listed["models"][0]["model"] == "[red]m"
    taken = run(db, "backup", target)
    assert (taken.exit_code, "--force replaces it" in taken.stderr) == (2, True)
    assert run(db, "backup", target, "--force").exit_code == 0
