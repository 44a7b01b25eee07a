"""Models that the Hub shows to some only: refused without a token, read with one."""

import json

import pytest
from factories import make_family
from fault_family import TOKEN
from running import run

GATED, PRIVATE, OPEN = "org/other", "org/bin", ("org/full", "org/adapter")


@pytest.fixture
def anonymous(family, monkeypatch):
    family.repos = {id: family.repos[id] for id in ("org/base", *OPEN, GATED, PRIVATE)}
    family.repos[GATED].fields["gated"] = "manual"
    family.repos[PRIVATE].fields["private"] = True
    monkeypatch.delenv("HF_TOKEN")
    return monkeypatch


def codes(result):
    return {row["model"]: row["code"] for row in json.loads(result.stdout)["failed"]}


@pytest.mark.parametrize(
    "elsewhere", [(), pytest.param(("--parts", "parts"), marks=pytest.mark.slow)]
)
def test_a_model_that_is_not_open_is_no_failure_of_a_family_and_is_asked_again_with_a_token(
    family, anonymous, tmp_path, elsewhere
):
    anonymous.chdir(tmp_path)
    index = ("index", "org/base", "--hub", *elsewhere)

    first, again = run(tmp_path, *index, "--json"), run(tmp_path, *index)
    strict = run(tmp_path, *index, "--strict")
    anonymous.setenv("HF_TOKEN", TOKEN)
    planned = run(tmp_path, "plan", *index[1:3], "--json")
    granted = run(tmp_path, *index, "--json")

    refused = {GATED: "gated", PRIVATE: "private-or-missing"}
    assert (first.exit_code, codes(first)) == (0, refused), first.output
    assert again.exit_code == 0
    assert "2 models not open to you" in again.stdout
    assert "HF_TOKEN" in again.stdout
    assert strict.exit_code == 1
    assert json.loads(planned.stdout)["models"]["to_read"] == 2
    assert json.loads(granted.stdout)["indexed"] == 2
    assert codes(granted) == {}


def test_what_stays_refused_is_recorded_once_and_a_query_asks_again_with_a_token(
    anonymous, tmp_path
):
    def recorded():
        at = f"SELECT indexed_at FROM models WHERE id = '{GATED}'"
        return run(tmp_path, "sql", at, "--json").stdout

    run(tmp_path, "index", "org/base", "--hub")
    first = recorded()
    run(tmp_path, "index", "org/base", "--hub")
    again = recorded()
    refused = run(tmp_path, "find-similar", GATED)
    anonymous.setenv("HF_TOKEN", TOKEN)
    granted = run(tmp_path, "find-similar", GATED, "--json")

    assert again == first
    assert "gated" in refused.stderr
    assert json.loads(granted.stdout)["compared"] == len(OPEN)


def test_a_model_that_is_named_and_a_family_without_an_open_model_are_failures(
    family, anonymous, tmp_path
):
    named = run(tmp_path, "add", GATED, "--base", "org/base")
    anonymous.setattr(family, "repos", {id: family.repos[id] for id in ("org/base", GATED)})
    closed = run(tmp_path / "closed", "index", "org/base", "--hub")

    assert (named.exit_code, closed.exit_code) == (3, 3)


def test_what_never_was_is_named_with_what_is_near_and_not_kept(anonymous, tmp_path):
    run(tmp_path, "index", "org/base", "--hub")
    before = run(tmp_path, "ls", "--json").stdout

    added = run(tmp_path, "add", "org/adaptor", "--base", "org/base")
    asked = run(tmp_path, "find-similar", "org/adaptor")

    assert (added.exit_code, asked.exit_code) == (3, 2)
    assert "private-or-missing" in added.stdout
    assert "near: org/adapter" in asked.stderr
    assert run(tmp_path, "ls", "--json").stdout == before


@pytest.mark.parametrize("command", ["index", "plan"])
def test_a_base_that_is_nowhere_is_refused_with_the_nearest(anonymous, tmp_path, command):
    unknown = run(tmp_path, command, "org/bse", "--hub")
    left = list(tmp_path.iterdir())
    run(tmp_path, "index", "org/base", "--hub")
    near = run(tmp_path, command, "org/bse", "--hub")

    assert (unknown.exit_code, left) == (3, [])
    assert "no such repository, or a private one" in unknown.stderr
    assert "HF_TOKEN" in unknown.stderr
    assert near.stderr.endswith("; near: org/base\n")


def test_local_checkpoints_of_a_base_that_is_nowhere_make_no_family(anonymous, tmp_path):
    make_family(tmp_path / "family", runs=1)

    result = run(tmp_path / "new", "index", "org/bse", str(tmp_path / "family" / "models"))

    assert result.exit_code == 3
    assert "base org/bse: private-or-missing" in result.stderr
    assert not (tmp_path / "new").exists()
