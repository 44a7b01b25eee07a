"""A Hub on loopback that serves folders as repositories, from disk and by ranges."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0" * 39 + "1"
_FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<name>.+)")
_STORED = re.compile(r"/store/(?P<repo>[^/]+/[^/]+)/(?P<name>.+)")


class LoopbackHub:
    """Folders by repository id, their weights on another origin; use as a context manager.

    Attributes:
        bytes_sent: Of bodies of weight files, by repository.
        requests: All requests, by repository.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self.bytes_sent = dict.fromkeys(folders, 0)
        self.requests = dict.fromkeys(folders, 0)
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
        self.endpoint, self.store = (
            f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers
        )

    def __enter__(self) -> LoopbackHub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def description(self, repo: str) -> dict[str, Any]:
        """What the API says of a repository."""
        names = sorted(path.name for path in self.folders[repo].iterdir())
        siblings = [{"rfilename": name} for name in names]
        return {"id": repo, "sha": COMMIT, "tags": [], "siblings": siblings, "gated": False}


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        return

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
            self._count(repo, 0)
            self._send(json.dumps(self.hub.description(repo)).encode(), {})
        elif match := _FILE.fullmatch(path):
            self._resolve(match["repo"], match["name"])
        elif match := _STORED.fullmatch(path):
            self._range(match["repo"], match["name"])
        else:
            self.send_error(404)

    def _resolve(self, repo: str, name: str) -> None:
        """A small file itself; of a weight file, where its bytes are."""
        file = self.hub.folders[repo] / name
        headers = {"X-Repo-Commit": COMMIT}
        self._count(repo, 0)
        if not name.endswith(".safetensors"):
            content = file.read_bytes()
            blob = b"blob %d\0" % len(content) + content
            headers["ETag"] = f'"{hashlib.sha1(blob, usedforsecurity=False).hexdigest()}"'
            self._send(content, headers)
            return
        self.send_response(302)
        # not of the form of a SHA-256, so that whole files are not hashed
        etag = hashlib.sha1(f"{repo}/{name}".encode(), usedforsecurity=False).hexdigest()
        for key, value in {
            **headers,
            "Location": f"{self.hub.store}/store/{repo}/{name}",
            "X-Linked-Etag": f'"{etag}"',
            "X-Linked-Size": str(file.stat().st_size),
            "Content-Length": "0",
        }.items():
            self.send_header(key, value)
        self.end_headers()

    def _range(self, repo: str, name: str) -> None:
        file = self.hub.folders[repo] / name
        size = file.stat().st_size
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self._count(repo, last + 1 - first)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.flush()
        with file.open("rb") as content:
            while first <= last:
                first += os.sendfile(
                    self.connection.fileno(), content.fileno(), first, last + 1 - first
                )

    def _send(self, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _count(self, repo: str, n_bytes: int) -> None:
        with self.hub.lock:
            self.hub.requests[repo] += 1
            self.hub.bytes_sent[repo] += n_bytes
