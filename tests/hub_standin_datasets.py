"""The stand-in Hub's data sets: described, downloaded, created, and committed to."""

import base64
import hashlib
import json
import re

from hub_standin_wire import Wire

LFS_ENDINGS = (".parquet", ".bin", ".safetensors")


class Datasets(Wire):
    """Answers about data sets; everything that writes needs a token."""

    def do_POST(self):
        self._begin()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._may_write():
            return
        path = self.path_only
        if path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/preupload/[^/]+", path):
            self._preupload(match[1], json.loads(body))
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._batch(json.loads(body))
        elif match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/[^/]+", path):
            self._commit(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"")

    def do_PUT(self):
        self._begin()
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        digest = self.path_only.rsplit("/", 1)[-1]
        is_whole = hashlib.sha256(content).hexdigest() == digest
        if is_whole:
            self.hub.uploads[digest] = content
        self._send(200 if is_whole else 400, {}, b"")

    def answer_dataset(self):
        """Answer a GET or HEAD about a data set; False for any other."""
        path = self.path_only
        if match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            repo = self._dataset(match[1])
            if repo is not None:
                self._json({"id": repo.id, "sha": repo.sha, "private": False, "siblings": []})
        elif match := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo = self._dataset(match[1])
            if repo is not None:
                self._file(repo, match[2], match[3])
        else:
            return False
        return True

    def _file(self, repo, revision, name):
        if revision not in ("main", repo.sha) or name not in repo.files:
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"")
            return
        content = repo.files[name]
        if name.endswith(LFS_ENDINGS):
            digest = hashlib.sha256(content).hexdigest()
            self._send(302, {"Location": self.hub.sign(digest), "X-Repo-Commit": repo.sha}, b"")
        else:
            self._content(content, {"X-Repo-Commit": repo.sha, "Content-Type": "text/plain"})

    def _dataset(self, id):
        repo = self.hub.datasets.get(id)
        if repo is None:
            self._send(404, {"X-Error-Code": "RepoNotFound"}, b"")
        return repo

    def _may_write(self):
        if self.headers.get("Authorization"):
            return True
        self._send(401, {"X-Error-Message": "Invalid username or password."}, b"")
        return False

    def _create(self, wanted):
        id = f"{wanted['organization']}/{wanted['name']}"
        self.hub.add_dataset(id)
        self._json({"url": f"{self.hub.endpoint}/datasets/{id}", "id": id, "name": id})

    def _preupload(self, id, wanted):
        if self._dataset(id) is not None:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LFS_ENDINGS) else "regular",
                    "shouldIgnore": False,
                }
                for file in wanted["files"]
            ]
            self._json({"files": files, "commitOid": ""})

    def _batch(self, wanted):
        objects = []
        for wanted_object in wanted["objects"]:
            digest = wanted_object["oid"]
            known = self.hub.content(digest) is not None
            upload = {"href": f"{self.hub.address('cdn')}/upload/{digest}"}
            objects.append({**wanted_object, **({} if known else {"actions": {"upload": upload}})})
        self._json({"transfer": "basic", "objects": objects})

    def _commit(self, id, lines):
        repo = self._dataset(id)
        if repo is None:
            return
        parent = lines[0]["value"].get("parentCommit")
        if parent not in (None, repo.sha):
            self._send(412, {"X-Error-Message": "A commit has happened since."}, b"")
            return
        files = dict(repo.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repo.files = files
        repo.sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        url = f"{self.hub.endpoint}/datasets/{id}/commit/{repo.sha}"
        self._json({"commitUrl": url, "commitOid": repo.sha, "success": True})
