import json

import pytest
from click.testing import CliRunner

from deltadex.cli import main
from deltadex.records import ModelRecord, Refused
from deltadex.store import Catalog


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "c.duckdb"
    with Catalog.open(path) as catalog:
        model = ModelRecord(id="[red]m", base="base")
        catalog.record(Refused(model=model, code="truncated", reason="short"))
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["backup", *map(str, arguments)])


def test_backup_prints_the_contract_and_other_commands_read_it(db, tmp_path):
    target = tmp_path / "b.duckdb"
    result = run(target, "--db", db, "--json")
    document = json.loads(result.stdout)
    listed = CliRunner().invoke(main, ["ls", "--json", "--db", str(target)])

    assert result.exit_code == 0
    assert set(document) == {"written", "models", "bytes", "sha256", "seconds"}
    assert document["written"] == str(target)
    assert (document["models"], document["bytes"]) == (1, target.stat().st_size)
    assert 0 < document["seconds"] < 60
    assert json.loads(listed.stdout)["models"][0]["model"] == "[red]m"
    refused = run(target, "--db", db)
    assert (refused.exit_code, "--force replaces it" in refused.stderr) == (2, True)
    assert run(target, "--db", db, "--force").exit_code == 0
