"""Many models of the Hub in one request: a job, and the outcome of each."""

import re
import signal
import time

import httpx2
import pytest
from fault_family import MEMBERS
from hub_standin import Fault
from listening import TOKEN, listening
from running import started

import deltadex as dx

STALLS = 12
"""The adapter from which on the Hub does not answer."""


@pytest.fixture(autouse=True)
def directed(family, tmp_path, monkeypatch):
    """The stand-in is the Hub that processes beside are directed to."""
    monkeypatch.setenv("HF_ENDPOINT", family.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.mark.slow  # 29 s: some members are asked for again
def test_each_of_many_models_has_an_outcome(family, tmp_path):
    path = tmp_path / "c.duckdb"
    with dx.open(path) as db:
        db.add("org/full", base="org/base")
    with (
        listening(path, token=TOKEN, allow_hub=True, max_seconds=1.0) as url,
        dx.connect(url, token=TOKEN) as remote,
    ):
        report = remote.add(*MEMBERS, "org/nowhere", base="org/base")
        again = remote.add("org/full", base="org/base").to_json()
        outcomes = {row["model"]: row for row in report.to_json()["outcomes"]}

        assert list(outcomes) == [*MEMBERS, "org/nowhere"]
        assert outcomes["org/nowhere"]["code"] == "private-or-missing"
        indexed = [name for name, row in outcomes.items() if row["status"] == "indexed"]
        assert set(indexed) == {row["model"] for row in remote.models(status="indexed")}
        assert len(indexed) >= 4
        assert again["outcomes"][0] == {
            **{"model": "org/full", "status": "indexed", "code": None, "reason": None}
        }


@pytest.mark.slow
def test_a_signal_ends_a_service_that_adds_models_within_ten_seconds(family, tmp_path, monkeypatch):
    path = tmp_path / "c.duckdb"
    adapter = family.repos["org/adapter"]
    names = [f"many/adapter-{n:03}" for n in range(200)]
    for name in names:
        family.add(name, adapter.files, parents=["org/base"], relation="adapter")
    with dx.open(path) as db:
        db.add("org/full", base="org/base")
    family.faults.append(Fault(path=f"adapter-{STALLS:03}/", kind="stall", nth=0, where="hub"))
    monkeypatch.setenv("DELTADEX_TOKEN", TOKEN)
    with started("serve", "--writable", "--allow-hub", "--db", path, "--port", 0) as service:
        url = re.search(r"http://\S+/", service.stdout.readline())[0]
        body = {"models": names, "base": "org/base"}
        headers = {"Authorization": f"Bearer {TOKEN}", "Prefer": "respond-async"}
        with httpx2.Client(base_url=f"{url}api/v1/", headers=headers, timeout=60) as client:
            job = client.post("models", json=body).json()["job"]
            shares, until = [0], time.monotonic() + 120
            while len(set(shares)) < 3 and time.monotonic() < until:
                shares.append(client.get(f"jobs/{job}").json()["percent"])
            signalled, asked_before = time.monotonic(), len(family.log)
            service.send_signal(signal.SIGTERM)
            said = service.communicate(timeout=60)[1]

    assert time.monotonic() - signalled < 10.0
    assert service.returncode == 0
    assert sorted(shares) == shares
    assert len(set(shares)) >= 3
    # what was under way, and not the rest of the 200
    assert len(family.log) - asked_before < 100
    with dx.open(path) as db:
        done = {row["model"] for row in db.models()} & set(names)
    assert f"{len(done)} of 200 are in the catalog" in said
