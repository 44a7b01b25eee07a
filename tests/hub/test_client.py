"""What all calls share: waits that end, and nothing secret in any log line."""

import logging
import os
import subprocess
import sys

import pytest
import torch
from hub_standin import Fault
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.hub import HubWeights, describe


def test_waits_in_one_call_add_up_to_the_limit(hub, session):
    hub.add("org/model")
    hub.fail("/api", 503, nth=0, headers={"Retry-After": "1"})

    with pytest.raises(ModelError, match=r"^hub-unreachable: "):
        describe("org/model", session=session)
    assert len(hub.log) == 2


def test_no_log_line_at_any_level_holds_a_secret(hub, session, caplog):
    caplog.set_level(logging.DEBUG)
    hub.add("org/model", {"model.safetensors": b"\2\0\0\0\0\0\0\0{}"})
    hub.faults.append(Fault(path="/store/", kind="status"))

    HubWeights(describe("org/model", session=session), session=session).open()

    assert "/store/" in caplog.text
    assert "SECRET" not in caplog.text
    assert "SECRET" not in repr(session)


SCRIPT = """
import json, sys
from deltadex.indexer.hub import FamilyWalk, HubWeights, describe, read_small_file

class Memory(dict):
    load = dict.get
    save = dict.__setitem__

family = [m.id for m in FamilyWalk(base="org/base", memory=Memory())]
model = describe("org/base")
checkpoint = HubWeights(model).open()
names = list(checkpoint.tensors)
values = {n: t.tolist() for n, t in checkpoint.stream(names)}
print(json.dumps([family, values, read_small_file(model, "config.json").decode()]))
"""


def test_the_environment_alone_directs_a_process(hub, tmp_path):
    files = {"model.safetensors": save({"w": torch.ones(2)}), "config.json": b"{}"}
    hub.add("org/base", files, private=True)
    hub.add("org/child", files, parents=("org/base",))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "DO_NOT"))},
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": "hf_TOPSECRET",
        "HF_HOME": str(tmp_path / "home"),
    }

    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '[["org/child"], {"w": [1.0, 1.0]}, "{}"]'
    assert not any("agent-harnesses" in r.path for r in hub.log)
    assert all("authorization" in r.headers for r in hub.requests("hub"))
    assert not any("authorization" in r.headers for r in hub.requests("cdn"))
    assert not (tmp_path / "home" / "hub").exists()
