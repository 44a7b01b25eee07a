"""Services over real catalogs, and adapters to send them."""

import asyncio
import io
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from click.testing import CliRunner
from factories import make_family
from safetensors.torch import save
from starlette.testclient import TestClient

from deltadex.cli import main
from deltadex.service.api import Service, ServiceSettings, make_app

API = "/api/v1"
TOKEN = "0123456789abcdef-token"
WRITER = {"Authorization": f"Bearer {TOKEN}"}


def make_indexed_family(folder):
    """A catalog file over four labelled fine-tunes and one broken one of a local base."""
    models = make_family(folder)
    broken = models / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((folder / "base" / "config.json").read_text())
    (broken / "model.safetensors").write_bytes(b"short")
    db = folder / "c.duckdb"
    arguments = ("index", str(folder / "base"), str(models), "--labels", str(models / "labels.csv"))
    assert CliRunner().invoke(main, [*arguments, "--db", str(db)]).exit_code == 1
    return db


def printed(db, *arguments):
    """What a command prints with --json."""
    result = CliRunner().invoke(main, [*arguments, "--db", str(db), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def finished(ask):
    """What a coroutine function returns; in a thread, for a browser's tests may leave their own
    loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()


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


def adapter_files(*, base="base", seed=0, rank=2, width=32, layers=2, **settings):
    """The two files of a LoRA adapter of the tiny BERT, as a multipart body has them."""
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["query"],
        "base_model_name_or_path": base,
        **settings,
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        module = f"base_model.model.encoder.layer.{layer}.attention.self.query"
        tensors[f"{module}.lora_A.weight"] = torch.randn(rank, width, generator=generator)
        tensors[f"{module}.lora_B.weight"] = torch.randn(width, rank, generator=generator)
    return files(json.dumps(config).encode(), save(tensors))


def code(answer):
    """Its status, and the code of a problem."""
    return answer.status_code, answer.json().get("code")


def files(config, weights):
    return {
        "config": ("adapter_config.json", io.BytesIO(config)),
        "weights": ("adapter_model.safetensors", io.BytesIO(weights)),
    }
