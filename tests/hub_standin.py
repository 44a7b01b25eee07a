"""A stand-in Hub on loopback, with its storage on another origin, which misbehaves on demand.

A third origin, the stranger, is where nobody should send anything worth stealing.

It serves what huggingface_hub's real client asks for, logs every request with the bytes of
its answer, and applies a `Fault` to the n-th request that fits it.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import Any

from hub_standin_http import serve


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with the `nth` request (1 = first; 0 = every) that fits.

    Attributes:
        path: Searched in the request's path, without its query.
        query: Searched in its query, as it is written there.
        kind: Of answers: status, body, html, loop, elsewhere (redirected to a third origin),
            whole, short, shifted, size, etag (of ranges), same-page, endless-pages (of
            listings). Of bodies: reset, truncate, stall, drip, mangle (another body under
            the right headers), shorter, longer (than Content-Length), endless, gzip, bomb,
            encoded (says gzip, is not), duplicate (headers), flip (one byte of the body
            is another: that at `after`, from the end if negative). Of no answer at all: stall,
            lost, garbage, continue, drip-headers, endless-headers.
        where: hub or cdn.
        onward: The later requests too.
        method: GET or HEAD; "" for both.
        status: For `status`.
        headers: Added to the answer.
        after: Bytes of the body that still arrive, for reset, truncate, stall; a place in it,
            for flip.
        body: For `body`, `mangle`, `bomb`.
    """

    path: str
    kind: str
    query: str = ""
    nth: int = 1
    onward: bool = False
    where: str = "cdn"
    method: str = ""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 0
    body: bytes = b""


@dataclass(kw_only=True)
class Request:
    """One request as it came, and how many bytes of body went out."""

    where: str
    method: str
    path: str
    query: str
    headers: dict[str, str]
    status: int = 0
    body_bytes: int = 0


@dataclass(kw_only=True)
class Repo:
    """One repository at one commit; `earlier`: the files of those before it."""

    id: str
    sha: str
    files: dict[str, bytes]
    fields: dict[str, Any]
    earlier: dict[str, dict[str, bytes]] = field(default_factory=dict)


class StandInHub:
    """Hub and storage; use as a context manager.

    Attributes:
        page_size: Models on one page of a listing.
        refused_properties: Answered with 400 when expanded.
        counts_children: Whether listings may be asked for `childrenModelCount`; else it is a 400.
        redirects_listings: Whether the children of a renamed model are listed, by a redirect, under
            its new name.
        redirects_small_files: Whether small files come from an address of their own on the Hub.
        limits: Requests in 300 s that the `RateLimit` headers state, by kind: api, resolve.
        signature_uses: Requests that one signed address allows; None = any number.
        bytes_per_second: Of every connection to the storage; None = as fast as it goes.
    """

    def __init__(self, *, page_size=100):
        self.page_size = page_size
        self.repos: dict[str, Repo] = {}
        self.datasets: dict[str, Repo] = {}
        self.uploads: dict[str, bytes] = {}
        self.pages: dict[str, bytes] = {}
        self.renamed: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.log: list[Request] = []
        self.refused_properties: frozenset[str] = frozenset()
        self.counts_children = self.redirects_listings = self.redirects_small_files = False
        self.limits: dict[str, int] = {}
        self.signature_uses: int | None = None
        self.bytes_per_second: float | None = None
        self.raw_entries: list[Any] = []
        self._uses: dict[str, int] = {}
        self._fits: dict[int, int] = {}
        self._lock = threading.Lock()
        self._serial = 0
        self.closing = threading.Event()
        self._servers = {where: serve(self, where) for where in ("hub", "cdn", "stranger")}

    @property
    def endpoint(self):
        return self.address("hub")

    def address(self, where):
        return f"http://127.0.0.1:{self._servers[where].server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def add(self, id, files=None, *, parents=(), relation="finetune", **fields):
        """A repository whose tags name its parents as the Hub would."""
        files = files or {}
        digest = hashlib.sha256(id.encode())
        for name, content in sorted(files.items()):
            digest.update(name.encode() + content)
        tags = list(fields.pop("tags", []))
        for parent in parents:
            tags += [f"base_model:{parent}", f"base_model:{relation}:{parent}"]
        sha = fields.pop("sha", digest.hexdigest()[:40])
        count = len(self.repos)
        fields.setdefault("createdAt", f"2024-01-01T00:{count // 60:02d}:{count % 60:02d}.000Z")
        defaults = {"private": False, "gated": False, "disabled": False, "downloads": 0}
        repo = Repo(id=id, sha=sha, files=files, fields={**defaults, **fields, "tags": tags})
        self.repos[id] = repo
        return repo

    def commit(self, id, files, **fields):
        """A commit that adds or replaces files."""
        repo = self.repos[id]
        repo.earlier[repo.sha] = repo.files
        repo.files = {**repo.files, **files}
        repo.sha = hashlib.sha1(
            repo.sha.encode() + repr(sorted(files.items())).encode()
        ).hexdigest()
        repo.fields = {**repo.fields, **fields}

    def children(self, id):
        """How many models name this one as their base, by relation."""
        return {
            relation: sum(
                f"base_model:{relation}:{id}" in repo.fields["tags"] for repo in self.repos.values()
            )
            for relation in ("adapter", "merge", "quantized", "finetune")
        }

    def add_dataset(self, id):
        """A data set, empty where it is new."""
        empty = Repo(id=id, sha=hashlib.sha1(id.encode()).hexdigest(), files={}, fields={})
        return self.datasets.setdefault(id, empty)

    def behave(self):
        """No faults, and nothing remembered of earlier requests."""
        with self._lock:
            self.faults, self.log = [], []
            self._fits, self._uses = {}, {}
            self.signature_uses = None
        self.closing.set()
        self.closing = threading.Event()

    def fail(self, path, status, **options):
        """The Hub answers with this status."""
        self.faults.append(Fault(path=path, kind="status", where="hub", status=status, **options))

    def record(self, where, method, path, query, headers):
        """A new entry of the log."""
        request = Request(where=where, method=method, path=path, query=query, headers=headers)
        self.log.append(request)
        return request

    def sign(self, digest):
        """A fresh signed address of a stored file."""
        with self._lock:
            self._serial += 1
            return f"{self.address('cdn')}/store/{digest}?Signature=SECRET{self._serial}&Expires=1"

    def use(self, signature):
        """Count a use of a signature; False once it has expired."""
        with self._lock:
            self._uses[signature] = self._uses.get(signature, 0) + 1
            return self.signature_uses is None or self._uses[signature] <= self.signature_uses

    def fault_for(self, where, method, path, query=""):
        """The first fault whose turn this request is."""
        with self._lock:
            for i, fault in enumerate(self.faults):
                fits = fault.where == where and fault.path in path and fault.query in query
                if not fits or (fault.method and fault.method != method):
                    continue
                self._fits[i] = self._fits.get(i, 0) + 1
                count = self._fits[i]
                if fault.nth in (0, count) or (fault.onward and count > fault.nth):
                    return fault
        return None

    def content(self, digest):
        """A stored file by its SHA-256."""
        for repo in (*self.repos.values(), *self.datasets.values()):
            for content in repo.files.values():
                if hashlib.sha256(content).hexdigest() == digest:
                    return content
        return None

    def stored(self, id, name):
        """The path of a repository's file in the storage."""
        return f"/store/{hashlib.sha256(self.repos[id].files[name]).hexdigest()}"

    def wire_bytes(self, where=None):
        """Bytes of all bodies that went out."""
        return sum(r.body_bytes for r in self.log if where in (None, r.where))

    def requests(self, where, method=None):
        return [r for r in self.log if r.where == where and method in (None, r.method)]
