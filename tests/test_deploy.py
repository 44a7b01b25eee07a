import configparser
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import deltadex
from deltadex.cli import main
from deltadex.records import ModelRecord, Refused
from deltadex.store import Catalog

ROOT = Path(deltadex.__file__).parent
DEPLOY = ROOT / "deploy"
TOOLS = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not run from a checkout")


class _Unit(configparser.RawConfigParser):
    """A systemd file; of a setting that stands twice, the last."""

    def __init__(self, name):
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str
        self.read(DEPLOY / name, "utf-8")


def _dockerfile(word):
    """The list that follows the last `word` of the Dockerfile."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    return json.loads(re.findall(rf"^{word}\b[^\[\n]*(\[.*\])$", text, re.MULTILINE)[-1])


def _compose(name):
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def _commands():
    """Every command line of deltadex in these files, by place."""
    entry = _dockerfile("ENTRYPOINT")
    yield "Dockerfile", entry
    for name in ("compose.yaml", "compose.writable.yaml"):
        yield name, entry + _compose(name)["services"]["deltadex"]["command"]
    for name in ("deltadex.service", "deltadex-writable.conf"):
        yield name, shlex.split(_Unit(name)["Service"]["ExecStart"])


@pytest.mark.parametrize(
    ("place", "words"), list(_commands()) if DEPLOY.exists() else [], ids=lambda v: str(v)[:60]
)
def test_options_of_the_command_lines_exist(place, words):
    assert Path(words[0]).name == "deltadex"
    help_text = CliRunner().invoke(main, [words[1], "--help"]).output
    for option in (word for word in words[2:] if word.startswith("--")):
        assert re.search(rf"{option}\b", help_text), f"{place}: {option}"


def test_options_that_are_spoken_of_exist():
    help_text = CliRunner().invoke(main, ["serve", "--help"]).output
    for name in ("nginx.conf", "deltadex.service", "compose.yaml"):
        for comment in re.findall(r"#.*", (DEPLOY / name).read_text("utf-8")):
            for option in re.findall(r"(?<=\s)--[a-z][a-z-]+", comment):
                assert option in help_text or option in ("--system", "--home-dir"), name


def test_the_dockerfile_passes_its_linter():
    subprocess.run([TOOLS / "hadolint", DEPLOY / "Dockerfile"], check=True)


def test_compose_files_keep_to_the_specification():
    subprocess.run(
        [
            TOOLS / "check-jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            *sorted(DEPLOY.glob("compose*.yaml")),
        ],
        check=True,
    )


def test_only_the_proxy_is_reached_from_outside():
    file = _compose("compose.yaml")
    services = file["services"]

    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert services["deltadex"]["networks"] == ["inside"]
    assert file["networks"]["inside"]["internal"]


def test_the_service_changes_nothing_unless_the_second_file_is_added():
    for name, words in _commands():
        if name in ("Dockerfile", "compose.yaml", "deltadex.service"):
            assert "--writable" not in words
        elif name in ("compose.writable.yaml", "deltadex-writable.conf"):
            assert "--writable" in words


@pytest.mark.parametrize("service", ["deltadex", "proxy"])
def test_containers_have_no_more_rights_than_they_need(service):
    settings = _compose("compose.yaml")["services"][service]

    assert settings["read_only"]
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in settings


def test_the_image_has_what_the_package_is_built_from():
    kept = {
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    rooms = {file.parent.name for file in ROOT.glob("[!.]*/__init__.py")} - {"tests", "benchmarks"}

    files = {"pyproject.toml", "README.md", "LICENSE", "py.typed", ".ci/dependencies.py"}
    assert rooms | files | {path.name for path in ROOT.glob("constraints*.txt")} <= kept
    assert {path.name for path in ROOT.glob("*.py")} <= kept
    assert {name for name in kept if not (ROOT / name).exists()} == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("drop_in", [None, "deltadex-writable.conf"])
def test_systemd_understands_the_unit(tmp_path, drop_in):
    unit = tmp_path / "deltadex.service"
    text = (DEPLOY / "deltadex.service").read_text("utf-8")
    if drop_in:
        text += (DEPLOY / drop_in).read_text("utf-8")
    unit.write_text(text.replace("/usr/local/bin/deltadex", "/bin/true"))

    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_the_container_is_healthy_while_it_serves(tmp_path, port):
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        model = ModelRecord(id="m", base="base")
        catalog.record(Refused(model=model, code="truncated", reason="", bytes_read=0, seconds=0.0))
    check = _dockerfile("HEALTHCHECK")
    assert check == _compose("compose.yaml")["services"]["deltadex"]["healthcheck"]["test"][1:]
    check = [sys.executable, *(word.replace("8321", port) for word in check[1:])]
    entry = [word.replace("0.0.0.0", "127.0.0.1").replace("8321", port)
             for word in _dockerfile("ENTRYPOINT")]  # fmt: skip

    with subprocess.Popen(
        [sys.executable, "-m", *entry, "--db", tmp_path / "c.duckdb"], stdout=subprocess.PIPE
    ) as service:
        assert b"serves" in service.stdout.readline()
        while_it_serves = subprocess.run(check, capture_output=True).returncode
        service.terminate()
        ended = service.wait(30)
    afterwards = subprocess.run(check, capture_output=True).returncode

    assert (while_it_serves, ended, afterwards) == (0, 0, 1)


# The image without an engine: the steps of its first stage, in a folder; then its entry point, as
# the compose file runs it
