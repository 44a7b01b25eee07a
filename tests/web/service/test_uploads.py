"""Reading an uploaded adapter opens its own files and nothing else."""

import json
import sys
from dataclasses import asdict

import pytest
import torch
from beside import end, fill
from factories import query_adapter, write_files
from running import printed
from services import API, adapter_files, served, settled

from deltadex.indexer.run import NO_MEMORY, refusal
from deltadex.store import Catalog

WATCHED = """
import json, sys
from pathlib import Path
from deltadex.records import Recipe
from deltadex.questions.face.serving import read_adapter
from deltadex.errors import ModelError

recipe = json.loads(sys.argv[2])
recipe = Recipe(**{**recipe, "params": tuple(map(tuple, recipe["params"]))})
reading = dict(
    base=sys.argv[1], recipe=recipe, layout=(), may_open_base=False, shapes={}, stored={}
)
def read(folder):
    try:
        return read_adapter(folder, reading).status
    except ModelError as err:
        return err.code
seen = []
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir"):
        if not isinstance(args[0], int):  # a file that was opened before
            seen.append(str(args[0]))
    elif event.startswith(("socket.", "subprocess.", "os.exec", "os.system", "urllib.")):
        seen.append(event)
sys.addaudithook(hook)
found = []
for place in sys.argv[3:]:
    folder = Path(place)
    read(folder)  # whatever is loaded on first use
    seen.clear()
    status = read(folder)
    own = (str(folder), "/proc", "/sys")
    found.append([status, [s for s in seen if not s.startswith(own)]])
print(json.dumps(found))
"""


SENT = {
    "plain": ({}, "indexed"),
    "code": ({"auto_map": {"AutoModel": "evil--run"}, "custom": "../../x"}, "indexed"),
    "another folder": ({"base": "/etc"}, "other-base"),
    "another host": ({"base": "https://evil.example/base"}, "indexed"),
    "pissa": ({"init_lora_weights": "pissa"}, "needs-base"),
    "corda": ({"init_lora_weights": "corda"}, "unsupported-adapter"),
}
"""Settings of an adapter's config, and what becomes of it."""


@pytest.fixture(scope="module")
def watched(shared_db, tmp_path_factory):
    """What each was told in a process that notes what it opens, and what that was."""
    base, folders = str(shared_db.parent / "base"), []
    for settings, _ in SENT.values():
        files = query_adapter(**{"base": base, **settings})
        folders.append(write_files(tmp_path_factory.mktemp("adapter"), files))
    with Catalog.open(shared_db, read_only=True) as catalog:
        recipe = json.dumps(asdict(catalog.find_recipe(None)))
    told = json.loads(printed(sys.executable, "-c", WATCHED, base, recipe, *folders))
    return dict(zip(SENT, told, strict=True))


@pytest.mark.parametrize("sent", SENT)
def test_nothing_but_the_adapters_own_files_is_opened(watched, sent):
    _, status = SENT[sent]

    assert watched[sent] == [status, []]


def test_a_method_that_needs_the_base_says_so(reader):
    sent = adapter_files(init_lora_weights="pissa")

    answer = reader.post(f"{API}/similar/adapter", files=sent)

    assert (answer.status_code, answer.json()["code"]) == (422, "needs-base")
    assert "index it on the server" in answer.json()["detail"]


@pytest.mark.slow
def test_the_operator_may_open_the_base(shared_db):
    with served(shared_db, allow_hub=True) as client:
        answer = client.post(
            f"{API}/similar/adapter", files=adapter_files(init_lora_weights="pissa")
        )

    assert answer.status_code == 200, answer.text


@pytest.mark.slow
def test_what_takes_too_long_is_stopped_and_others_go_on(shared_db):
    with served(shared_db) as client:
        uploads = client.service.uploads
        uploads.seconds = 0.001
        bad = client.post(f"{API}/similar/adapter", files=adapter_files())
        health = client.get(f"{API}/health")
        uploads.seconds = 60.0
        good = client.post(f"{API}/similar/adapter", files=adapter_files(seed=1))

    assert (bad.status_code, bad.json()["code"]) == (422, "too-slow")
    assert (health.status_code, good.status_code) == (200, 200)


@pytest.mark.slow
@pytest.mark.parametrize("read", [end, fill])
def test_an_adapter_that_ends_its_process_or_fills_its_memory_is_refused(reader, monkeypatch, read):
    monkeypatch.setattr("deltadex.service.api.work.read_adapter", read)

    answer = reader.post(f"{API}/similar/adapter", files=adapter_files())

    assert (answer.status_code, answer.json()["code"]) == (422, "too-large")


def test_a_matrix_too_large_for_torch_wants_memory_and_is_no_defect():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50)

    assert refusal(raised.value, "model") == ("internal", NO_MEMORY)


@pytest.mark.parametrize(
    ("prefer", "weights"),
    [("wait=0", None), ('foo; bar, Respond-Async, Wait="0"', b"no safetensors")],
)
def test_a_job_is_answered_as_the_request_would_have_been(reader, prefer, weights):
    def send(**headers):
        sent = adapter_files()
        if weights is not None:
            sent["weights"] = ("w", weights)
        return reader.post(f"{API}/similar/adapter", files=sent, headers=headers)

    at_once, later = send(), send(prefer=prefer)
    polled = settled(reader, later.headers["location"])

    assert later.status_code == 202
    assert later.headers["location"] == f"{API}/jobs/{later.json()['job']}"
    assert (polled.status_code, polled.json()) == (at_once.status_code, at_once.json())
    assert at_once.json().get("code") == (None if weights is None else "bad-header")


def test_names_of_sent_files_mean_nothing(reader):
    sent = adapter_files()
    (_, config), (_, weights) = sent["config"], sent["weights"]
    odd = {"config": ("../../../evil", config), "weights": ("/etc/passwd", weights)}

    assert reader.post(f"{API}/similar/adapter", files=odd).status_code == 200
