"""The wheel that users get, built from the sdist, used outside the checkout."""

import json
import os
import re
import site
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from factories import make_family, write_file
from running import printed

import deltadex

ROOT = Path(deltadex.__file__).parent
LISTED = ("git", "ls-files", "-co", "--exclude-standard")
NOT_SHIPPED = {"tests", "benchmarks"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("not run from a checkout")
    out = tmp_path_factory.mktemp("dist")
    checkout = tmp_path_factory.mktemp("checkout") / "deltadex"
    for name in printed(*LISTED, cwd=ROOT).splitlines():
        source = ROOT / name
        if source.is_file():
            write_file(checkout / name, source.read_bytes())
    printed(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, checkout)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_one_package_with_every_file_of_the_folders_with_modules(wheel):
    tracked = printed(*LISTED, cwd=ROOT)
    folders = {path.parent.name for path in ROOT.glob("[!.]*/__init__.py")} - NOT_SHIPPED
    product = {f"deltadex/{name}" for name in tracked.splitlines() if name.split("/")[0] in folders}

    names = set(zipfile.ZipFile(wheel).namelist())

    (described,) = {n.split("/")[0] for n in names} - {"deltadex"}
    assert described.endswith(".dist-info")
    assert (product | {"deltadex/py.typed"}) - names == set()
    assert not [n for n in names if "/tests/" in n or "/benchmarks/" in n]


def test_a_release_has_one_version_and_one_date():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest, date = re.findall(r"^## \[([\d.]+)\] - ([\d-]+)$", text, re.MULTILINE)[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))

    assert project["version"] == deltadex.__version__ == cited["version"] == newest
    assert str(cited["date-released"]) == date
    assert "## [Unreleased]" in text
    assert len(cited["references"]) > 20
    command = (sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml")
    printed(*command, "--builtin-schema", "vendor.citation-file-format", ROOT / "CITATION.cff")


@pytest.fixture
def installed(wheel, tmp_path):
    """Runs Python where the wheel is installed, with the dependencies of this environment."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    target = next((environment / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    borrowed = os.pathsep.join([str(target), *site.getsitepackages()])

    def run(*arguments):
        known = {"PYTHONPATH": borrowed, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        return printed(environment / "bin" / "python", "-S", *arguments, cwd=tmp_path, env=known)

    assert str(target) in run("-c", "import deltadex; print(deltadex.__file__)")
    return run


@pytest.mark.slow
def test_an_installed_wheel_indexes_and_answers(installed, tmp_path):
    models = make_family(tmp_path)

    def run(*arguments):
        db = str(tmp_path / "c.duckdb")
        return installed("-m", "deltadex", *arguments, "--db", db, "--json")

    indexed = run("index", str(tmp_path / "base"), str(models))
    found = run("find-similar", "a-0", "-k", "1")

    assert json.loads(indexed)["indexed"] == 4
    assert json.loads(found)["neighbours"][0]["model"] == "a-1"
