"""Exit code 1 means that something that should have worked did not."""

import json
import shutil

import pytest
from factories import make_family
from running import run


@pytest.fixture
def family(tmp_path):
    return make_family(tmp_path)


def index(folder, *arguments):
    return run(folder, "index", folder / "base", folder / "models", "--json", *arguments)


def test_copies_of_the_base_and_skipped_models_are_failures_only_if_strict(family, tmp_path):
    shutil.copytree(tmp_path / "base", family / "copy")
    config = family / "a-0" / "config.json"
    config.write_text(config.read_text().replace('"bert"', '"llama"'))

    result, again = index(tmp_path), index(tmp_path)
    strict = index(tmp_path, "--strict")

    document = json.loads(result.stdout)
    assert [(r["model"], r["code"]) for r in document["failed"]] == [("copy", "no-update")]
    assert [r["code"] for r in document["skipped_models"]] == ["other-base"]
    assert (result.exit_code, again.exit_code, strict.exit_code) == (0, 0, 1)


def test_a_damaged_file_is_a_failure(family, tmp_path):
    (family / "b-0" / "model.safetensors").write_bytes(b"short")

    result = index(tmp_path)
    for file in family.glob("*/model.safetensors"):
        file.write_bytes(b"short")
    (tmp_path / "c.duckdb").unlink()
    nothing = index(tmp_path)

    assert (result.exit_code, nothing.exit_code) == (1, 3)
    assert [f["code"] for f in json.loads(result.stdout)["failed"]] == ["truncated"]
