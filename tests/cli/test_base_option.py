"""`--base`: whatever the command, a family that is not there is an error."""

import httpx2
import pytest
from catalogs import PLAIN, make_indexed, write
from factories import lora_of, make_family, write_files
from running import run

from deltadex.indexer.hub.session import refusal

COMMANDS = [("find-similar", "m"), ("rm", "m"), ("map", "-o", "{f}/out.html"), ("components", "m")]


@pytest.fixture
def db(tmp_path):
    models = [
        make_indexed(id, [0, 1, 0, 0], base=base, recipes=(PLAIN,))
        for base in ("google-bert/bert-base-uncased", "gpt2")
        for id in ("m", "n")
    ]
    return write(tmp_path / "c.duckdb", *models)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_an_unknown_base_is_a_usage_error_that_lists_the_families(db, command):
    result = run(db, *(word.format(f=db.parent) for word in command), "--base", "nobody/nothing")

    assert result.exit_code == 2, result.output
    assert "no family of 'nobody/nothing'; there are: google-bert/bert-base-" in result.stderr
    assert not (db.parent / "out.html").exists()


def test_a_base_needs_no_owner_where_it_is_clear(db):
    result = run(db, "ls", "--base", "other/BERT-base-uncased", "--csv", "--columns", "base")

    assert set(result.stdout.splitlines()[1:]) == {"google-bert/bert-base-uncased"}


@pytest.mark.parametrize("command", ["find-similar", "components"])
def test_a_family_is_asked_for_only_after_the_model_was_found(db, tmp_path, monkeypatch, command):
    def describe(id):
        raise refusal(httpx2.Response(404, headers={"X-Error-Code": "RepoNotFound"}), id)

    monkeypatch.setattr("deltadex.indexer.family.describe", describe)
    (tmp_path / "folder").mkdir()

    absent = run(db, command, "someone/nothing")
    empty = run(db, command, tmp_path / "folder")

    assert (absent.exit_code, empty.exit_code) == (2, 2)
    assert "someone/nothing: private-or-missing: " in absent.stderr
    assert "set HF_TOKEN" in absent.stderr
    assert "no-weights: no model in this folder" in empty.stderr
    assert "which family" not in absent.stderr + empty.stderr


def test_a_model_that_names_no_base_is_asked_for_its_family(db, tmp_path):
    models = make_family(tmp_path)

    result = run(db, "find-similar", models / "a-0")

    assert result.exit_code == 2
    assert "which family? Add --base, one of: google-bert/" in result.stderr


@pytest.mark.parametrize("command", ["find-similar", "rank"])
def test_an_adapter_of_neither_family_is_told_which_base_it_names(db, tmp_path, command):
    files = lora_of({}, "someone/net") | {"adapter_model.safetensors": b"weights"}
    adapter = write_files(tmp_path / "adapter", files)

    result = run(db, command, adapter)

    assert result.exit_code == 2
    assert (
        "adapter: other-base: names base 'someone/net'; the catalog has: google-" in result.stderr
    )
