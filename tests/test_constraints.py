"""What `make` installs by: constraints.txt and constraints-torch.txt against pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from running import printed

import deltadex

ROOT = Path(deltadex.__file__).parent

pytestmark = pytest.mark.skipif(
    not (ROOT / "constraints.txt").exists(), reason="not run from a checkout"
)


def entries(name):
    """Each pinned requirement of a constraints file, with its hashes."""
    lines = (ROOT / name).read_text("utf-8").replace("\\\n", " ").splitlines()
    pinned = [line.split(" --hash=") for line in lines if line and not line.startswith("#")]
    return [(Requirement(first.strip()), hashes) for first, *hashes in pinned]


def wanted(*extras):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    every = settings["project"]["optional-dependencies"]
    lines = printed(sys.executable, ROOT / ".ci" / "dependencies.py", ",".join(extras or every))
    return [Requirement(line) for line in lines.splitlines()]


def test_every_dependency_is_pinned_to_a_version_that_it_allows():
    pinned = [
        entry for entry, _ in (*entries("constraints.txt"), *entries("constraints-torch.txt"))
    ]
    by_name = {}
    for entry in pinned:
        by_name.setdefault(canonicalize_name(entry.name), []).append(entry)

    for requirement in wanted():
        versions = [
            str(entry.specifier).removeprefix("==")
            for entry in by_name[canonicalize_name(requirement.name)]
        ]
        assert versions
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_everything_but_torch_has_hashes():
    assert all(hashes for _, hashes in entries("constraints.txt"))
    assert [entry.name for entry, _ in entries("constraints-torch.txt")] == ["torch"]
    assert "torch" not in {entry.name for entry, _ in entries("constraints.txt")}


def test_an_extra_brings_what_it_names_and_what_deltadex_needs():
    names = {requirement.name for requirement in wanted("serve")}

    assert {"click", "duckdb", "fastapi", "setuptools", "torch", "uvicorn"} <= names
    assert "pytest" not in names


def test_no_file_names_a_registry():
    for path in ROOT.glob("constraints*.txt"):
        assert not re.search(r"https?://|--index|--find-links", path.read_text("utf-8"))
