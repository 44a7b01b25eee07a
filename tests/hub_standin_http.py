"""How the stand-in Hub and its storage answer one request, faults included."""

import hashlib
import json
import re
import socket
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from hub_standin_datasets import Datasets

NAMES = """author cardData config createdAt disabled downloads downloadsAllTime gated gguf
lastModified library_name likes mask_token model-index pipeline_tag private safetensors sha
siblings spaces tags transformersInfo trendingScore widgetData"""
LIST_PROPERTIES = frozenset(NAMES.split())


def serve(hub, where):
    handler = type("Handler", (_Handler,), {"hub": hub, "where": where})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        """Clients that hang up are what many tests are about."""


class _Handler(Datasets):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format, *args):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _begin(self):
        """Note a request, and the fault whose turn it is."""
        split = urlsplit(self.path)
        self.path_only = unquote(split.path)
        self.query = parse_qs(split.query)
        headers = {k.lower(): v for k, v in self.headers.items()}
        self.request_log = self.hub.record(
            self.where, self.command, self.path_only, split.query, headers
        )
        self.fault = self.hub.fault_for(self.where, self.command, self.path_only, split.query)

    def _answer(self):
        self._begin()
        try:
            if self._answer_with_fault():
                return
            if self.where == "stranger" and self.path_only in self.hub.pages:
                self._content(self.hub.pages[self.path_only], {"Content-Type": "text/plain"})
            elif self.where == "stranger":
                self._send(200, {"Content-Type": "application/json"}, b'{"who": "a stranger"}')
            elif self.where == "cdn":
                self._storage(urlsplit(self.path).query)
            else:
                self._hub()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer_with_fault(self):
        """Answer at once for faults that need no content."""
        fault = self.fault
        if fault is None:
            return False
        if fault.kind == "status":
            self._send(fault.status, {**fault.headers}, b"" if fault.status == 204 else b"no")
        elif fault.kind in self.WITHOUT_ANSWER and not fault.after:
            self._do_not_answer(fault.kind)
        elif fault.kind == "html":
            page = b"<html><body>Sign in to this network</body></html>"
            self._send(200, {"Content-Type": "text/html; charset=utf-8"}, page)
        elif fault.kind == "loop":
            self._send(307, {"Location": self.path}, b"")
        elif fault.kind == "elsewhere":
            self._send(302, {"Location": self.hub.address("stranger") + self.path}, b"")
        elif fault.kind == "body":
            self._send(200, {"Content-Type": "application/json", **fault.headers}, fault.body)
        else:
            return False
        return True

    def _hub(self):
        path = self.path_only
        if self.answer_dataset():
            return
        if path == "/api/models":
            self._list()
        elif path == "/api/agent-harnesses":
            self._json({"standardEnvVars": [], "harnesses": {}})
        elif match := re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)?)(?:/revision/(.+))?", path):
            self._describe(match[1], match[2])
        elif match := re.fullmatch(r"/api/resolve-cache/models/(.+)/([0-9a-f]{40})/([^/]+)", path):
            self._small_file(self.hub.repos[match[1]], match[3])
        elif match := re.fullmatch(r"/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3])
        else:
            self._refuse(404, "EntryNotFound")

    def _list(self):
        asked = set(self.query.get("expand", []))
        counted = {"childrenModelCount"} if self.hub.counts_children else set()
        if bad := (asked - LIST_PROPERTIES - counted) | (asked & self.hub.refused_properties):
            self._json({"error": f"bad expand: {sorted(bad)}"}, status=400)
            return
        wanted = self.query.get("filter", [])
        for tag in wanted if self.hub.redirects_listings else ():
            if (new := self.hub.renamed.get(tag.removeprefix("base_model:"))) is not None:
                query = urlencode([("filter", f"base_model:{new}")])
                rest = "&".join(p for p in self.path.split("?")[1].split("&") if "filter" not in p)
                location = f"{self.hub.endpoint}/api/models?{query}&{rest}"
                self._send(307, {"Location": location}, b"")
                return
        found = [
            self._entry(repo, asked)
            for repo in self.hub.repos.values()
            if all(tag in repo.fields["tags"] for tag in wanted)
        ]
        found.sort(key=lambda e: e.get("createdAt") or "", reverse=True)
        found += self.hub.raw_entries
        at = int(self.query.get("cursor", ["0"])[0])
        size = self.hub.page_size
        headers = {}
        more = self._is_fault("endless-pages")
        if more:
            size = 0
        if self._is_fault("same-page"):
            at, more = 0, True
        if more or at + size < len(found):
            rest = "&".join(p for p in urlsplit(self.path).query.split("&") if "cursor" not in p)
            url = f"{self.hub.endpoint}/api/models?{rest}&cursor={at + size}"
            headers["Link"] = f'<{url}>; rel="next"'
        self._json(found[at : at + size], headers=headers)

    def _entry(self, repo, asked):
        everything = {
            **repo.fields,
            "sha": repo.sha,
            "siblings": [{"rfilename": name} for name in repo.files],
        }
        if "childrenModelCount" in asked:
            everything["childrenModelCount"] = self.hub.children(repo.id)
        return {"id": repo.id} | {
            k: v for k, v in everything.items() if k in asked or not asked or k == "createdAt"
        }

    def _describe(self, id, revision):
        if id in self.hub.renamed:
            location = f"{self.hub.endpoint}/api/models/{self.hub.renamed[id]}"
            self._send(307, {"Location": location}, b"")
            return
        repo = self._repo(id)
        if repo is None:
            return
        if revision not in (None, "main", repo.sha):
            self._refuse(404, "RevisionNotFound")
            return
        self._json(self._entry(repo, set()))

    def _repo(self, id):
        """The repository, or None after a refusal was sent."""
        repo = self.hub.repos.get(id)
        known = self.headers.get("Authorization", "")
        if repo is None or (repo.fields["private"] and not known):
            self._refuse(404 if known else 401, "RepoNotFound")
            return None
        if repo.fields["disabled"]:
            message = {"X-Error-Message": "Access to this resource is disabled."}
            self._send(403, message, b"")
            return None
        return repo

    def _resolve(self, id, revision, name):
        repo = self._repo(id)
        if repo is None:
            return
        if repo.fields["gated"] and not self.headers.get("Authorization"):
            self._refuse(401, "GatedRepo")
            return
        if revision in repo.earlier:
            repo = replace(repo, sha=revision, files=repo.earlier[revision])
        elif revision not in ("main", repo.sha):
            self._refuse(404, "RevisionNotFound")
            return
        if name not in repo.files:
            self._refuse(404, "EntryNotFound")
            return
        content = repo.files[name]
        common = {"X-Repo-Commit": repo.sha, "Accept-Ranges": "bytes"}
        if not name.endswith((".safetensors", ".bin")):
            if self.hub.redirects_small_files:
                place = f"/api/resolve-cache/models/{id}/{repo.sha}/{name}"
                self._send(307, {**common, "Location": place}, b"")
            else:
                self._small_file(repo, name)
            return
        digest = hashlib.sha256(content).hexdigest()
        linked = "0" * 64 if self._is_fault("etag") else digest
        headers = {
            **common,
            "X-Linked-Etag": f'"{linked}"',
            "X-Linked-Size": str(len(content)),
            "Location": self.hub.sign(digest),
        }
        self._send(302, headers, b"")

    def _small_file(self, repo, name):
        content = repo.files[name]
        etag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        headers = {
            "X-Repo-Commit": repo.sha,
            "Accept-Ranges": "bytes",
            "ETag": f'"{etag}"',
            "Content-Type": "text/plain",
        }
        self._content(content, headers)

    def _storage(self, signature):
        content = self.hub.content(self.path_only.rsplit("/", 1)[-1])
        if content is None or not self.hub.use(signature):
            self._send(403, {"Content-Type": "application/xml"}, b"<Error>AccessDenied</Error>")
            return
        etag = "other" if self._is_fault("etag") else "store-" + self.path_only[-8:]
        self._content(content, {"ETag": f'"{etag}"', "Content-Type": "binary/octet-stream"})

    def _content(self, content, headers):
        """A file or a range of it, with whatever the fault does to it."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.fault is not None and self.fault.kind == "flip":
            content = self._flipped(content, asked, self.fault.after)
        if asked is None or self._is_fault("whole"):
            self._send(200, headers, content)
            return
        begin, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        if begin >= len(content):
            self._send(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
            return
        if self._is_fault("short"):
            end = begin + max(1, (end - begin) // 2)
        shift = 1 if self._is_fault("shifted") else 0
        total = len(content) + (7 if self._is_fault("size") else 0)
        headers = {**headers, "Content-Range": f"bytes {begin + shift}-{end - 1 + shift}/{total}"}
        self._send(206, headers, content[begin:end])

    def _flipped(self, content, asked, place):
        """The content with one bit of the answer's part of it changed."""
        begin, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, len(content))
        end = min(end, len(content))
        changed = bytearray(content)
        if end > begin:
            changed[begin + place % (end - begin)] ^= 1
        return bytes(changed)

    def _is_fault(self, kind):
        return self.fault is not None and self.fault.kind == kind

    def _refuse(self, status, code):
        self._send(status, {"X-Error-Code": code, "X-Error-Message": code}, b"")

    def _json(self, value, *, status=200, headers=None):
        body = json.dumps(value).encode()
        self._send(status, {"Content-Type": "application/json", **(headers or {})}, body)
