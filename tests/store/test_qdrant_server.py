"""Every way that a server can refuse, by the real client over loopback."""

import socket

import pytest
from qdrant_client import models
from qdrant_families import BASE, RECIPE, export, make_catalog
from running import run

from deltadex.errors import EngineError, RecipeMismatch, StoreFull
from deltadex.store import use_exported
from deltadex.store.qdrant import server as server_module

KEY = "a-key-that-nobody-prints"


@pytest.fixture(autouse=True)
def db(path):
    """The file that `catalog` opens, with models in it."""
    return make_catalog(path)


def test_the_key_comes_from_the_environment_and_is_in_no_output(
    db, server, tmp_path, monkeypatch, caplog
):
    server.key = KEY
    refused = run(db, "export", "--to", server.target())
    assert refused.exit_code == 3
    assert "the server answers 401 (Invalid API key or JWT): set QDRANT_API_KEY" in refused.output

    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    assert run(db, "export", "--to", server.target()).exit_code == 0
    server.faults["points/scroll"] = (500, f"a defect; headers were api-key: {KEY}")
    failed = run(db, "export", "--to", server.target())

    assert failed.exit_code == 3
    assert "the server answers 500 (a defect; headers were api-key: …)" in failed.output
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for text in (refused.output, failed.output, caplog.text):
        assert KEY not in text
    assert not any(KEY.encode() in data for data in written)


@pytest.mark.parametrize(
    ("ending", "fault", "kind", "message"),
    [
        ("/exists", (403, "no"), EngineError, r"answers 403 \(no\): set QDRANT_API_KEY"),
        ("points", (503, "later"), EngineError, r"the server answers 503 \(later\)"),
        ("points", (500, "No space left on device"), StoreFull, "the server has no space left"),
        ("/exists", (200, b"{}"), EngineError, "no usable answer .*: check the address"),
        ("points", (400, "Wrong\ninput: x"), EngineError, r"answers 400 \(Wrong input: x\)"),
    ],
)
def test_every_refusal_is_one_line(catalog, server, ending, fault, kind, message):
    server.faults[ending] = fault

    with pytest.raises(kind, match=message) as refused:
        export(catalog, server.target())

    assert "\n" not in str(refused.value)


def test_a_server_that_is_not_there_or_does_not_answer(db, server, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"qdrant://127.0.0.1:{free.getsockname()[1]}/c"
    gone = run(db, "export", "--to", nowhere)
    unsearched = run(db, "find-similar", "m1", "--engine", nowhere)
    monkeypatch.setattr(server_module, "TIMEOUT_S", 1)
    server.faults["/exists"] = 1.5
    slow = run(db, "export", "--to", server.target())

    for refused in (gone, unsearched, slow):
        assert refused.exit_code == 3
        assert refused.output.count("\n") == 1
        assert "no usable answer" in refused.output
        assert "check the address" in refused.output


@pytest.mark.parametrize("id", [7, "5f6c1bd8-7d0c-4b5a-9b0e-0c8f1f0a1b2c"])
def test_points_of_another_program_are_left_alone(catalog, server, id):
    vectors = models.VectorParams(size=RECIPE.dim, distance=models.Distance.DOT)
    server.local.create_collection("models", vectors)
    point = models.PointStruct(id=id, vector=[1.0] * RECIPE.dim, payload={"text": "a document"})
    server.local.upsert("models", [point])
    with pytest.raises(RecipeMismatch, match="another program"):
        export(catalog, server.target())
    assert server.local.count("models").count == 1

    # beside ours
    export(catalog, server.target("ours"))
    server.local.upsert("ours", [point])
    use_exported(catalog, server.target("ours"))
    for asked in (
        lambda: export(catalog, server.target("ours")),
        lambda: catalog.family(BASE, RECIPE).index,
    ):
        with pytest.raises(RecipeMismatch, match="another program"):
            asked()
