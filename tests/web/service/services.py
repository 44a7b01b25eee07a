"""Services over real catalogs, and adapters to send them."""

import asyncio
import io
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from factories import make_family, query_adapter, save_models
from running import run
from starlette.testclient import TestClient

from deltadex.service.api.server import make_app
from deltadex.service.api.service import Service
from deltadex.service.api.settings import ServiceSettings

API = "/api/v1"
TOKEN = "0123456789abcdef-token"
WRITER = {"Authorization": f"Bearer {TOKEN}"}


def make_indexed_family(folder):
    """A catalog file over four labelled fine-tunes and one broken one of a local base."""
    models = make_family(folder)
    save_models(folder, {"broken": {}})
    (models / "broken" / "model.safetensors").write_bytes(b"short")
    labels = models / "labels.csv"
    assert run(folder, "index", folder / "base", models, "--labels", labels).exit_code == 1
    return folder / "c.duckdb"


def finished(ask):
    """What a coroutine function returns; in a thread, for a browser's tests may leave their own
    loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()


def wait_until(is_so):
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def settled(client, address, **asked):
    """The answer, when it is there: of busy cores a job takes longer than a request waits."""
    while (answer := client.get(address, **asked)).status_code == 202:
        time.sleep(0.05)
    return answer


@contextmanager
def served(db, *, answers_defects=False, **settings):
    """A client of a ready service; its `service` is at hand.

    A request has ten minutes, for a machine that is busy elsewhere, and nothing is loaded before.
    A defect in the service fails the test with its own trace, unless it is to be answered.
    """
    settings = {"warm": False, "max_seconds": 600.0, **settings}
    with Service(ServiceSettings(db=db, **settings)) as service:
        assert service.freshness.ready.wait(60.0)
        with TestClient(
            make_app(service),
            base_url="http://localhost",
            raise_server_exceptions=not answers_defects,
        ) as client:
            client.service = service
            yield client


def adapter_files(**options):
    """The two files of a LoRA adapter of the tiny BERT, as a multipart body has them."""
    return files(*query_adapter(**options).values())


def code(answer):
    """Its status, and the code of a problem."""
    return answer.status_code, answer.json().get("code")


def files(config, weights):
    return {
        "config": ("adapter_config.json", io.BytesIO(config)),
        "weights": ("adapter_model.safetensors", io.BytesIO(weights)),
    }
