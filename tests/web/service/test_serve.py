"""`deltadex serve`: what it prints, how it ends, what it refuses."""

import json
import re
import signal
import socket
import sys
import time
from contextlib import contextmanager

import httpx2
import pytest
from running import run, started
from services import TOKEN, WRITER
from test_orphans import left_after, marked

from deltadex.service.api.server import listen
from deltadex.service.api.settings import ServiceSettings


@contextmanager
def serving(db, *arguments):
    with started("serve", "--db", db, "--port", 0, *arguments) as process:
        yield process, process.stdout.readline()


def get(address, path):
    return httpx2.get(f"{address}api/v1/{path}", timeout=30).raise_for_status().json()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_it_says_where_it_is_and_ends_in_order_without_leaving_processes(
    shared_db, tmp_path, monkeypatch, number
):
    monkeypatch.setenv("DELTADEX_TEST_MARK", str(tmp_path))
    with serving(shared_db) as (process, line):
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        assert "read-only" in line
        for _ in range(300):
            if get(address, "health") and "micro" in get(address, "evaluation"):
                break
            time.sleep(0.1)
        n_before = len(marked(str(tmp_path)))
        process.send_signal(number)
        code = process.wait(30)
        errors = process.stderr.read()

    assert (code, errors) == (0, "")
    assert n_before > 1
    assert left_after(str(tmp_path), 5) == []


def test_an_address_for_others_is_said_loudly_even_when_quiet(shared_db):
    with serving(shared_db, "--host", "0.0.0.0", "--quiet") as (process, _):
        process.send_signal(signal.SIGTERM)
        errors = process.stderr.read()

    assert "Everybody who reaches this address can read the whole catalog" in errors
    assert "no encryption" in errors
    assert len(errors.splitlines()) >= 3


def test_a_port_in_use_is_one_line(shared_db):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run(shared_db, "serve", "--port", str(taken.getsockname()[1]))

    assert result.exit_code == 3
    assert "in use" in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("token", ["", "short", "with\nline" + "x" * 20, "é" * 20])
def test_writing_needs_a_long_token(shared_db, token):
    result = run(shared_db, "serve", "--port", "0", "--writable", env={"DELTADEX_TOKEN": token})

    assert result.exit_code == 2
    assert "at least 16" in result.output


def test_settings_take_no_short_token_either(tmp_path):
    with pytest.raises(ValueError, match="at least 16"):
        ServiceSettings(db=tmp_path / "c.duckdb", token="")


def test_a_token_may_come_from_a_file_and_json_is_one_document(shared_db, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    arguments = ("--writable", "--token-file", str(tmp_path / "token"), "--json")
    with serving(shared_db, *arguments) as (process, line):
        while "}" not in line:
            line += process.stdout.readline()
        document = json.loads(line)
        place = f"{document['address']}api/v1/models/nobody"
        missing = httpx2.delete(place, headers=WRITER, timeout=30)

    assert document["writable"] is True
    assert missing.status_code == 404


def test_without_the_extra_it_says_what_to_install(shared_db, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [n for n in sys.modules if n.startswith("deltadex.service.api")]:
        monkeypatch.delitem(sys.modules, name)

    result = run(shared_db, "serve", "--port", "0")

    assert result.exit_code == 2
    assert "pip install 'deltadex[serve]'" in result.output


def test_a_body_does_not_wait_for_its_headers_to_be_acknowledged(tmp_path):
    listening = listen(ServiceSettings(db=tmp_path / "c.duckdb", port=0))
    with listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
