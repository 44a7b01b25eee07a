"""The real client over loopback: exports, searches, and every way that a server can refuse."""

import json
import socket
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from click.testing import CliRunner
from qdrant_client import QdrantClient, models
from qdrant_families import (
    BASE,
    RECIPE,
    expected_points,
    export,
    exported_points,
    insert,
    make_catalog,
    points_of,
    unit_vectors,
)
from test_qdrant_index import assert_as_brute_force

from deltadex.cli import main
from deltadex.errors import EngineError, RecipeMismatch, StoreFull
from deltadex.store import Catalog, use_exported
from deltadex.store.qdrant import server as server_module
from deltadex.store.qdrant.server import ServerCollection

KEY = "a-key-that-nobody-prints"


@dataclass
class Server:
    """A loopback server that speaks the REST calls of an export and a search.

    Behind it is the client's own mode without a server, which has the points. Answers have the form
    of Qdrant's OpenAPI document.

    Attributes:
    key: What a request must present; None = nothing.
    faults: Per path ending: (status, body) instead of an answer, or seconds to wait before it.
    requests: (method, path) of every request.
    """

    local: QdrantClient
    key: str | None = None
    faults: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    def target(self, name="models"):
        return f"qdrant://127.0.0.1:{self.port}/{name}"

    def answer(self, method, path, body):
        """What the server says: (status, result)."""
        name, _, what = path.removeprefix("/collections/").partition("/")
        with self.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (method, what) == ("GET", "exists"):
                return 200, {"exists": self.local.collection_exists(name)}
            if (method, what) == ("PUT", ""):
                vectors = models.VectorParams(**body["vectors"])
                return 200, self.local.create_collection(name, vectors)
            if not self.local.collection_exists(name):
                return 404, f"Not found: Collection `{name}` doesn't exist!"
            return 200, self._of_collection(name, method, what, body)

    def _of_collection(self, name, method, what, body):
        done = {"operation_id": 0, "status": "completed"}
        match method, what:
            case "GET", "":
                return _plain(self.local.get_collection(name))
            case "PUT", "index":
                return done
            case "PUT", "points":
                points = [models.PointStruct(**point) for point in body["points"]]
                self.local.upsert(name, points)
                return done
            case "POST", "points/delete":
                self.local.delete(name, models.PointIdsList(points=body["points"]))
                return done
            case "POST", "points/count":
                return {"count": self.local.count(name).count}
            case "POST", "points/scroll":
                records, following = self.local.scroll(
                    name,
                    offset=body.get("offset"),
                    limit=body["limit"],
                    with_payload=body["with_payload"],
                    with_vectors=body["with_vector"],
                )
                return {"points": list(map(_plain, records)), "next_page_offset": following}
            case "POST", "points/query":
                query_filter = body.get("filter") and models.Filter(**body["filter"])
                found = self.local.query_points(
                    name,
                    body["query"]["nearest"],
                    query_filter=query_filter,
                    limit=body["limit"],
                    with_payload=False,
                )
                return _plain(found)
        raise AssertionError(f"{method} {what}: not a call that deltadex makes")


def _plain(record):
    return json.loads(record.model_dump_json())


@contextmanager
def qdrant_server(key=None):
    """A running stand-in."""
    server = Server(QdrantClient(":memory:"), key)

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self):
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.requests.append((self.command, path))
            fault = next((f for end, f in server.faults.items() if path.endswith(end)), None)
            if isinstance(fault, float):
                time.sleep(fault)
            if server.key is not None and self.headers.get("api-key") != server.key:
                status, result = 401, "Invalid API key or JWT"
            elif isinstance(fault, tuple):
                status, result = fault
            else:
                status, result = server.answer(self.command, path, json.loads(body or "null"))
            ok = status == 200
            document = {
                "result": result if ok else None,
                "status": "ok" if ok else {"error": result},
                "time": 0.001,
            }
            raw = result if isinstance(result, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PUT = do_POST = handle_one

        def log_message(self, *_):
            pass

        def handle(self):
            with suppress(ConnectionError):  # a client that waits no longer
                super().handle()

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = listening.server_address[1]
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
        server.local.close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    monkeypatch.setattr(server_module, "TRIES_AFTER_S", (0.0,))
    monkeypatch.setattr(server_module, "SEARCHED_AGAIN_AFTER_S", ())
    with qdrant_server() as running:
        yield running


@pytest.fixture
def db(path):
    return make_catalog(path)


@pytest.fixture
def catalog(db):
    with Catalog.open(db) as opened:
        yield opened


def run(db, *arguments):
    return CliRunner().invoke(main, [*arguments, "--db", str(db), "--quiet"])


def test_a_server_gets_what_a_folder_gets_and_answers_as_brute_force(catalog, server, tmp_path):
    first = export(catalog, server.target())
    folder = export(catalog, f"edge:{tmp_path}/v")

    assert exported_points(server.target()) == exported_points(f"edge:{tmp_path}/v")
    assert (first.checksum, first.recall_at_10) == (folder.checksum, 1.0)
    insert(catalog, range(61, 71), unit_vectors(10, 3))
    catalog.remove("m5")
    second = export(catalog, server.target())
    assert (second.added, second.removed) == (10, 1)
    assert set(exported_points(server.target())) == set(expected_points(catalog))
    catalog.remove("m9")
    insert(catalog, [71], unit_vectors(1, 4))
    use_exported(catalog, server.target())
    assert_as_brute_force(catalog, 1)
    assert len(catalog.family(BASE, RECIPE).index._coverage.missing) == 1


@pytest.mark.filterwarnings("ignore:Local mode performs exact")
def test_the_client_without_a_server_is_a_collection_too():
    client = QdrantClient(":memory:")
    collection = ServerCollection(client, "models", "local")
    collection.create(4)
    vectors = unit_vectors(6, dim=4)
    collection.upsert(np.arange(1, 7), vectors, [{"number": n} for n in range(6)])
    collection.delete(np.array([2]))

    assert set(points_of(collection)) == {1, 3, 4, 5, 6}
    keys, scores = collection.nearest(vectors[2], 2, np.array([1, 3, 5]), is_exact=True)
    assert keys[0] == 3
    assert set(keys.tolist()) <= {1, 3, 5}
    assert scores[0] == pytest.approx(1.0, abs=1e-6)
    collection.close()


def test_the_key_comes_from_the_environment_and_is_in_no_output(
    db, server, tmp_path, monkeypatch, caplog
):
    server.key = KEY
    refused = run(db, "export", "--to", server.target())
    assert refused.exit_code == 3
    assert "the server refuses the key (401): set QDRANT_API_KEY" in refused.output

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
        ("/exists", (403, "no"), EngineError, r"refuses the key \(403\)"),
        ("points", (404, "gone"), EngineError, "no such collection: run `deltadex export --to"),
        ("points", (503, "later"), EngineError, r"the server answers 503 \(later\)"),
        ("points", (500, "No space left on device"), StoreFull, "the server has no space left"),
        ("points", (507, "disk"), StoreFull, "the server has no space left"),
        ("/exists", (200, b"<html>"), EngineError, "no usable answer .*: check the address"),
        ("/exists", (200, b"{}"), EngineError, "no usable answer .*: check the address"),
        ("points", (400, "Wrong\ninput: x"), EngineError, r"answers 400 \(Wrong input: x\)"),
    ],
)
def test_every_refusal_is_one_line(catalog, server, ending, fault, kind, message):
    server.faults[ending] = fault

    with pytest.raises(kind, match=message) as refused:
        export(catalog, server.target())

    assert "\n" not in str(refused.value)


def test_what_may_pass_is_asked_again(catalog, server):
    server.faults["points"] = (503, "later")
    with pytest.raises(EngineError):
        export(catalog, server.target())
    assert server.requests.count(("PUT", "/collections/models/points")) == 2
    server.faults.clear()

    assert export(catalog, server.target()).added == 60


def test_a_server_that_is_not_there_or_does_not_answer(db, server, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"qdrant://127.0.0.1:{free.getsockname()[1]}/c"
    gone = run(db, "export", "--to", nowhere)
    monkeypatch.setattr(server_module, "TIMEOUT_S", 1)
    monkeypatch.setattr(server_module, "TRIES_AFTER_S", ())
    server.faults["/exists"] = 1.5
    slow = run(db, "export", "--to", server.target())

    for refused in (gone, slow):
        assert refused.exit_code == 3
        assert refused.output.count("\n") == 1
        assert "no usable answer" in refused.output
        assert "check the address" in refused.output


@pytest.mark.parametrize(
    "vectors",
    [
        models.VectorParams(size=RECIPE.dim, distance=models.Distance.COSINE),
        {"text": models.VectorParams(size=RECIPE.dim, distance=models.Distance.DOT)},
    ],
)
def test_a_collection_of_another_kind_is_left_alone(catalog, server, vectors):
    server.local.create_collection("models", vectors)

    with pytest.raises(RecipeMismatch, match="give the name of another collection"):
        export(catalog, server.target())

    assert server.local.count("models").count == 0


@pytest.mark.parametrize("id", [7, "5f6c1bd8-7d0c-4b5a-9b0e-0c8f1f0a1b2c"])
def test_points_of_another_program_are_left_alone(catalog, server, id):
    vectors = models.VectorParams(size=RECIPE.dim, distance=models.Distance.DOT)
    server.local.create_collection("models", vectors)
    point = models.PointStruct(id=id, vector=[1.0] * RECIPE.dim, payload={"text": "a document"})
    server.local.upsert("models", [point])

    with pytest.raises(RecipeMismatch, match="another program"):
        export(catalog, server.target())

    assert server.local.count("models").count == 1


def test_a_search_says_that_the_server_went_away(catalog, server):
    export(catalog, server.target())
    use_exported(catalog, server.target())
    view = catalog.family(BASE, RECIPE)
    query = unit_vectors(1)[0]
    assert len(view.index.nearest(query, 3)) >= 3

    server.faults["points/query"] = (502, "gone")
    with pytest.raises(EngineError, match="answers 502"):
        view.index.nearest(query, 3)
