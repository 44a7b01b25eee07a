"""A Hub family by one process, in shares, and with Ray's workers: the same catalog, copies too."""

import json
import time

import pytest
from fault_family import MEMBERS, TOKEN
from hub_standin import Fault, StandInHub
from running import document

from deltadex.indexer.hub import HubSession
from deltadex.indexer.hub.session import Patience, request_json

INDEX = ("index", "org/base", "--hub")


@pytest.fixture(scope="module")
def hub(family_of_module):
    """The family, a copy of a full model and one of a sharded one, and an adapter that differs from
    another in its scale alone."""
    hub = family_of_module
    for name, twin in (("again", "full"), ("shards-again", "sharded")):
        hub.add(f"org/{name}", hub.repos[f"org/{twin}"].files, parents=("org/base",))
    files = dict(hub.repos["org/adapter"].files)
    config = {**json.loads(files["adapter_config.json"]), "lora_alpha": 96}
    files["adapter_config.json"] = json.dumps(config).encode()
    hub.add("org/louder", files, parents=("org/base",), relation="adapter")
    return hub


def said(db):
    return str(document(db, "stats", "--hash")["content_sha256"])


@pytest.fixture(scope="module")
def alone(hub, tmp_path_factory):
    """The catalog of one process."""
    db = tmp_path_factory.mktemp("alone") / "c.duckdb"
    document(db, *INDEX, "--workers", "1")
    return db


def test_copies_name_their_original_and_adapters_are_read_with_their_config(alone):
    rows = {row["model"]: row for row in document(alone, "ls")["models"]}
    norms = {id: [s["fro_norm"] for s in document(alone, "show", id)["slots"]] for id in rows}

    copies = {id: row["duplicate_of"] for id, row in rows.items() if row["duplicate_of"]}
    copied = {"again": "full", "shards-again": "sharded", "louder": "adapter"}
    assert copies == {f"org/{copy}": f"org/{id}" for copy, id in copied.items()}
    assert 0 in [rows[id]["bytes_read"] for id in ("org/again", "org/full")]
    assert norms["org/again"] == norms["org/full"]
    assert norms["org/louder"] == pytest.approx([2 * n for n in norms["org/adapter"]], rel=1e-5)


def test_shares_of_machines_give_the_catalog_of_one_process(hub, alone, tmp_path):
    parts = str(tmp_path / "parts")
    for share in ("1/2", "2/2"):
        document(tmp_path / "none", *INDEX, "--parts", parts, "--share", share, "--workers", "4")
    document(tmp_path / "all.duckdb", "merge", parts)

    assert not (tmp_path / "none").exists()
    assert said(tmp_path / "all.duckdb") == said(alone)


@pytest.mark.slow
def test_ray_gives_the_catalog_of_one_process_and_keeps_the_token_to_itself(
    hub, alone, tmp_path, monkeypatch
):
    pytest.importorskip("ray")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    parts = tmp_path / "parts"

    report = document(tmp_path, *INDEX, "--ray", "local", "--workers", "1", "--parts", parts)

    assert report["indexed"] == len(MEMBERS) + 3
    assert said(tmp_path / "c.duckdb") == said(alone)
    written = [path.read_bytes() for path in parts.rglob("*") if path.is_file()]
    assert written
    assert not any(TOKEN.encode() in content for content in written)


def test_what_one_call_learns_of_the_hubs_limit_the_next_one_heeds(tmp_path):
    with StandInHub() as hub:
        hub.add("org/base", {})
        headers = {"RateLimit": '"api";r=1;t=1', "RateLimit-Policy": '"fixed window";"api";q=2;w=2'}
        hub.faults = [
            Fault(where="hub", path="/api/", kind="body", nth=1, headers=headers, body=b"{}")
        ]
        patience = Patience(first_pause_s=0.01, rate_limit_s=5.0)
        session = HubSession(endpoint=hub.endpoint, cache_dir=tmp_path, patience=patience)
        times = []
        for _ in range(3):
            request_json(session, session.call("a model"), f"{hub.endpoint}/api/models/org/base")
            times.append(time.monotonic())

    assert [request.status for request in hub.log] == [200, 200, 200]
    assert times[1] - times[0] < 0.9 <= times[2] - times[0]
