"""A stand-in for a Qdrant server: the REST calls that deltadex makes, over loopback."""

import json
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from qdrant_client import QdrantClient, models


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
