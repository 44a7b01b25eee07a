"""Reading an uploaded adapter opens its own files and nothing else."""

import json
import subprocess
import sys
import time

import pytest
from services import API, adapter_files, make_indexed_family, served

WATCHED = """
import json, sys
from pathlib import Path
from deltadex.records import Recipe
from deltadex.web.service.uploads import read_adapter_folder
from deltadex.web.service.uploads import Asked
from deltadex.errors import ModelError

folder, base, recipe = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
recipe = Recipe(**{**recipe, "params": tuple(map(tuple, recipe["params"]))})
asked = Asked(base, recipe, (), False)
def read():
    try:
        return read_adapter_folder(folder, asked).status
    except ModelError as err:
        return err.code
read()  # whatever is loaded on first use
seen = []
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir"):
        seen.append(str(args[0]))
    elif event.startswith(("socket.", "subprocess.", "os.exec", "os.system", "urllib.")):
        seen.append(event)
sys.addaudithook(hook)
status = read()
print(json.dumps([status, [s for s in seen if not s.startswith((str(folder), "/proc", "/sys"))]]))
"""


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    return make_indexed_family(tmp_path_factory.mktemp("family"))


@pytest.fixture(scope="module")
def client(db):
    with served(db) as client:
        yield client


def recipe_of(db):
    from deltadex.store import Catalog

    with Catalog.open(db, read_only=True) as catalog:
        recipe = catalog.find_recipe(None)
    return {
        name: getattr(recipe, name) for name in ("name", "rank", "dim", "seed", "version", "params")
    }


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, "indexed"),
        ({"auto_map": {"AutoModel": "evil--run"}, "custom": "../../x"}, "indexed"),
        ({"base": "/etc"}, "other-base"),
        ({"base": "https://evil.example/base"}, "indexed"),
        ({"init_lora_weights": "pissa"}, "needs-base"),
        ({"init_lora_weights": "olora"}, "needs-base"),
        ({"init_lora_weights": "corda"}, "unsupported-adapter"),
    ],
)
def test_nothing_but_the_adapters_own_files_is_opened(db, tmp_path, settings, status):
    folder = tmp_path / "adapter"
    folder.mkdir()
    base = str(db.parent / "base")
    for name, file in adapter_files(**{"base": base, **settings}).values():
        (folder / name).write_bytes(file.getvalue())

    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder), base, json.dumps(recipe_of(db))],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [status, []]


def test_a_method_that_needs_the_base_says_so(client):
    sent = adapter_files(init_lora_weights="pissa")

    answer = client.post(f"{API}/similar/adapter", files=sent)

    assert (answer.status_code, answer.json()["code"]) == (422, "needs-base")
    assert "index it on the server" in answer.json()["detail"]


def test_the_operator_may_open_the_base(db):
    with served(db, allow_hub=True) as client:
        answer = client.post(
            f"{API}/similar/adapter", files=adapter_files(init_lora_weights="pissa")
        )

    assert answer.status_code == 200, answer.text


def test_a_config_that_never_ends_is_stopped_and_others_go_on(db):
    pattern = "(([a-z.0-9]+)+)+$!"
    sent = adapter_files(alpha_pattern={pattern: 8})
    with served(db, max_seconds=12.0) as client:
        # the process is up before the clock of the bad one runs
        assert client.post(f"{API}/similar/adapter", files=adapter_files()).status_code == 200
        started = time.monotonic()
        bad = client.post(f"{API}/similar/adapter", files=sent)
        took = time.monotonic() - started
        health = client.get(f"{API}/health")
        good = client.post(f"{API}/similar/adapter", files=adapter_files(seed=1))

    assert (bad.status_code, bad.json()["code"]) == (503, "busy")
    assert took < 20
    assert (health.status_code, good.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("config", "code"),
    [(b"not json", "bad-config"), (b"[1]", "bad-config"), (b"\xff", "bad-config")],
)
def test_a_bad_config_has_its_code(client, config, code):
    sent = adapter_files()
    sent["config"] = ("adapter_config.json", config)

    answer = client.post(f"{API}/similar/adapter", files=sent)

    assert (answer.status_code, answer.json()["code"]) == (422, "bad-config")


def test_names_of_sent_files_mean_nothing(client):
    sent = adapter_files()
    (_, config), (_, weights) = sent["config"], sent["weights"]
    odd = {"config": ("../../../evil", config), "weights": ("/etc/passwd", weights)}

    assert client.post(f"{API}/similar/adapter", files=odd).status_code == 200
