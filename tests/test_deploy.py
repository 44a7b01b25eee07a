import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from catalogs import refused, write
from click.testing import CliRunner
from running import printed

import deltadex
from deltadex.cli import main

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


def test_the_dockerfile_passes_its_linter():
    printed(TOOLS / "hadolint", DEPLOY / "Dockerfile")


def test_compose_files_keep_to_the_specification():
    schema = ("--builtin-schema", "vendor.compose-spec")
    printed(TOOLS / "check-jsonschema", *schema, *sorted(DEPLOY.glob("compose*.yaml")))


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


def _entry_on(port):
    """The entry point, on a port of this machine alone."""
    words = _dockerfile("ENTRYPOINT")
    return [word.replace("0.0.0.0", "127.0.0.1").replace("8321", port) for word in words]


def test_the_container_is_healthy_while_it_serves(tmp_path, port):
    write(tmp_path / "c.duckdb", refused("m"))
    check = _dockerfile("HEALTHCHECK")
    assert check == _compose("compose.yaml")["services"]["deltadex"]["healthcheck"]["test"][1:]
    check = [sys.executable, *(word.replace("8321", port) for word in check[1:])]
    entry = _entry_on(port)

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

USER = 10001
AS_THE_CONTAINER = (
    'for open in "$DATA" "$SCRATCH"; do mount --bind "$open" "$open" || exit 1; done; '
    "mount -o remount,bind,ro / || exit 1; exec setpriv --reuid 10001 --regid 10001 "
    '--clear-groups --no-new-privs --bounding-set=-all "$@"'
)


def _stage(number):
    """The variables that a stage of the Dockerfile sets, and its shell lines."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    stage = text.split("\nFROM ")[number]
    variables = dict(re.findall(r"(\w+)=(\S+)", re.search(r"^ENV (.*)$", stage, re.MULTILINE)[1]))
    return variables, re.findall(r"^RUN (.*)$", stage, re.MULTILINE)


def _is_there(address):
    try:
        socket.getaddrinfo(urlsplit(address).hostname, 443)
    except OSError:
        return False
    return True


def _image_variables(venv, data, scratch):
    """What the image sets, with folders of this machine, and nothing else."""
    moved = {"/venv": str(venv), "/data": str(data), "/tmp": str(scratch)}
    settings = {"TMPDIR": str(scratch)}
    for name, value in _stage(2)[0].items():
        placed = re.sub(r"(?<![\w/])(/venv|/data|/tmp)\b", lambda found: moved[found[1]], value)
        settings[name] = placed.replace("$PATH", os.defpath)
    return settings


def _context(target):
    """What `COPY . .` finds: the files of the checkout that .dockerignore lets through."""
    files = printed("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = {line[1:].rstrip("/") for line in lines if line.startswith("!")}
    for name in files.splitlines():
        inside = {name, *map(str, Path(name).parents)}
        if kept & inside and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")),
    reason="needs root, unshare and setpriv",
)
def test_the_image_is_built_and_serves_read_only_as_its_user(port):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        source, data, scratch = (place / name for name in ("source", "data", "scratch"))
        for made in (source, data, scratch):
            made.mkdir()
        _context(source)
        variables, steps = _stage(1)
        if not _is_there(variables["PIP_EXTRA_INDEX_URL"]):
            del variables["PIP_EXTRA_INDEX_URL"]  # pip would try it again for every package
        # a Python of the system, which another user may run too
        environment = {**os.environ, **variables}
        python = place / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to("/usr/bin/python3")
        environment["PATH"] = f"{python.parent}:{os.defpath}"
        for step in steps:
            step = step.replace("/venv", str(place / "venv"))
            printed("sh", "-c", step, cwd=source, env=environment)
        write(data / "family.duckdb", refused("m"))
        for owned in (data, scratch, *data.rglob("*")):
            os.chown(owned, USER, USER)
        entry = _entry_on(port)
        allowed = [*_compose("compose.yaml")["services"]["deltadex"]["command"][:-1], "localhost"]
        check = [word.replace("8321", port) for word in _dockerfile("HEALTHCHECK")]
        settings = _image_variables(place / "venv", data, scratch)

        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", AS_THE_CONTAINER, "sh", *entry, *allowed],
            env=settings | {"DATA": str(data), "SCRATCH": str(scratch)},
            cwd=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as service:
            line = service.stdout.readline()
            assert "serves" in line, line + service.stdout.read()
            status = Path(f"/proc/{service.pid}/status").read_text()
            healthy = subprocess.run([place / "venv" / "bin" / check[0], *check[1:]]).returncode
            service.terminate()
            ended = service.wait(30)

        assert re.search(rf"^Uid:\t{USER}\t{USER}", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert (healthy, ended) == (0, 0)
