"""A Hub that is not there costs one short try a process, and offline none."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from factories import lora_files, make_bert, write_files

from deltadex.errors import ModelError
from deltadex.indexer.hub import HubSession, describe
from deltadex.indexer.hub import session as hub_session
from deltadex.indexer.hub.session import Patience

COMMANDS = """
import json, sys
from click.testing import CliRunner

port, db, tries = int(sys.argv[1]), sys.argv[2], []
sys.addaudithook(lambda name, args: tries.append(args[1]) if name == "socket.connect" else None)
from deltadex.cli import main

commands = "index org/base models,bases ls,trace org/model,audit org/base,bases ls".split(",")
said = [CliRunner().invoke(main, [*line.split(), "--db", db]).output for line in commands]
print(json.dumps([sum(place[1:2] == (port,) for place in tries), said]))
"""


@pytest.fixture
def nowhere():
    """A port of this machine where nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(
    ("offline", "tries"), [("0", 1), pytest.param("1", 0, marks=pytest.mark.slow)]
)
def test_commands_try_an_absent_hub_once_a_process_and_offline_never(
    tmp_path, nowhere, offline, tries
):
    write_files(tmp_path / "models/adapter", lora_files(make_bert(tmp_path / "base", seed=0)))
    db = tmp_path / "c.duckdb"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
        "HF_ENDPOINT": f"http://127.0.0.1:{nowhere}",
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": offline,
    }
    command = [sys.executable, "-c", COMMANDS, str(nowhere), str(db)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300
    )

    counted, said = json.loads(done.stdout)
    assert counted == tries
    assert "trying again" not in done.stderr.decode()
    assert all("offline mode" in text or "no connection" in text for text in (said[1], said[4]))


def test_a_hub_that_answered_is_tried_again_when_its_connections_fail(
    hub, session, nowhere, caplog
):
    caplog.set_level("INFO")
    hub.add("org/model")
    describe("org/model", session=session)

    session.endpoint = f"http://127.0.0.1:{nowhere}"
    with pytest.raises(ModelError, match="hub-unreachable: org/model: no connection"):
        describe("org/model", session=session)

    assert caplog.text.count("trying again") == session.patience.tries - 1


def test_an_absent_hub_is_looked_for_again_after_a_while(hub, session, nowhere, monkeypatch):
    hub.add("org/model")
    for endpoint in (f"http://127.0.0.1:{nowhere}", hub.endpoint):
        session.endpoint = endpoint
        with pytest.raises(ModelError, match="hub-unreachable"):
            describe("org/model", session=session)

    monkeypatch.setattr(hub_session, "SILENCE_S", 0.0)

    assert describe("org/model", session=session).id == "org/model"


def test_a_name_that_nobody_resolves_is_not_waited_for(tmp_path, monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(60.0))
    session = HubSession(
        endpoint="https://hub.example", cache_dir=tmp_path, patience=Patience(connect_s=0.2)
    )
    start = time.monotonic()

    with pytest.raises(ModelError, match="hub-unreachable: org/model: no answer in time"):
        describe("org/model", session=session)

    found.set()
    assert time.monotonic() - start < 30.0


def test_a_hub_that_accepts_and_says_nothing_is_asked_once(tmp_path):
    patience = Patience(connect_s=0.5, read_s=0.2, first_pause_s=0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        session = HubSession(endpoint=endpoint, cache_dir=tmp_path, patience=patience)

        for _ in range(3):
            with pytest.raises(ModelError, match="hub-unreachable: org/model: no answer in time"):
                describe("org/model", session=session)

        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
