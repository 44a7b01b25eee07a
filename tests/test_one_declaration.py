"""A new filter of `find-similar` is declared in one file: command, call and request have it."""

from pathlib import Path

import pytest
from factories import make_family
from package_copy import copy_package, printed_by

pytestmark = pytest.mark.slow  # it copies the package, and loads all of it once more

DECLARED = """    author: str | None = option(default=None, help="Only models of this author.")
"""
WITH_LICENCE = f"""{DECLARED}    license: str | None = option(
        default=None, help="Only models under this licence."
    )
"""
"""The whole change: a field, and the column that it is compared with."""

ASKED = """
import json, sys

import duckdb
from click.testing import CliRunner
from starlette.testclient import TestClient

import deltadex as dx
from deltadex.cli import main
from deltadex.service.api import Service, ServiceSettings, make_app

def run(*arguments):
    return CliRunner().invoke(main, [*arguments, "--db", "c.duckdb"])

assert run("index", "base", "models").exit_code == 0
with duckdb.connect("c.duckdb") as connection:
    connection.execute("UPDATE models SET license = 'mit' WHERE id <> 'a-1'")
by_command = json.loads(run("find-similar", "a-0", "--license", "mit", "--json").stdout)
with dx.open("c.duckdb", read_only=True) as db:
    by_call = db.find_similar("a-0", license="mit").to_json()
    said = db.find_similar.__doc__
    try:
        db.find_similar("a-0", license="MIT")
    except dx.errors.BadFilter as error:
        refused = str(error)
with Service(ServiceSettings(db="c.duckdb", warm=False, max_seconds=600.0)) as service:
    service.freshness.ready.wait(60.0)
    with TestClient(make_app(service), base_url="http://localhost") as client:
        by_request = client.get("/api/v1/similar", params={"model": "a-0", "license": "mit"}).json()
        described = client.get("/api/v1/openapi.json").json()
print(json.dumps({
    "file": dx.__file__,
    "answers": [
        [n["model"] for n in document["neighbours"]]
        for document in (by_command, by_call, by_request)
    ],
    "help": run("find-similar", "--help").stdout,
    "docstring": said,
    "refused": refused,
    "parameters": described["paths"]["/api/v1/similar"]["get"]["parameters"],
}))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """What a copy of the package with the new filter prints and answers."""
    folder = tmp_path_factory.mktemp("copy")
    filters = copy_package(folder) / "store" / "tables" / "filters.py"
    text = filters.read_text("utf-8")
    assert text.count(DECLARED) == 1
    text = text.replace(DECLARED, WITH_LICENCE)
    text = text.replace('= ("dataset", "author")', '= ("dataset", "author", "license")')
    filters.write_text(text, "utf-8")
    make_family(folder)
    printed = printed_by(ASKED, folder)
    assert Path(printed["file"]).is_relative_to(folder)
    return printed


def test_command_call_and_request_leave_what_passes(changed):
    by_command, by_call, by_request = changed["answers"]

    assert sorted(by_command) == ["b-0", "b-1"]
    assert by_command == by_call == by_request


def test_help_docstring_and_openapi_say_what_it_is(changed):
    (parameter,) = (one for one in changed["parameters"] if one["name"] == "license")

    assert "Only models under this licence." in changed["help"]
    assert "license: Only models under this licence." in changed["docstring"]
    assert parameter["description"] == "Only models under this licence."
    assert not parameter["required"]


def test_a_value_that_no_model_has_is_refused_with_the_nearest(changed):
    assert "no model has the license 'MIT'" in changed["refused"]
    assert "mit" in changed["refused"]
