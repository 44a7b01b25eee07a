"""Published indexes on the Hub and on web servers: fetched by ranges, uploaded in one commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from ...errors import BadIndex, ModelError
from .models import is_repo_id
from .session import RETRIED, Call, HubSession, default_session, hub_client, request_json

HUB = "hf://datasets/"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

_RANGE = re.compile(r"bytes ([0-9]{1,15})-[0-9]{1,15}/(?:[0-9]{1,15}|\*)")


MISSING = ("private-or-missing", "not-found")
"""Reason codes of what is not there, or not for this user."""


class NoIndex(BadIndex):
    """There is no published index at an address."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Make a `ModelError` in the block a `BadIndex`."""
    try:
        yield
    except ModelError as err:
        raise (NoIndex if err.code in MISSING else BadIndex)(err.reason) from None


def is_remote(source: str) -> bool:
    return "://" in source


@dataclass(kw_only=True)
class WebSource:
    """An index at an address; no token is sent there."""

    name: str
    url: str = field(init=False)
    session: HubSession = field(default_factory=lambda: HubSession(token=False))

    def __post_init__(self) -> None:
        self.url = self.name.rstrip("/")

    def read(self, file: str, limit: int) -> bytes:
        call = self.session.call(f"{self.name}: {file}", max_bytes=limit)
        with _refusals(), call.current(expected_bytes=limit):
            response = self.session.send("GET", f"{self.url}/{file}", {})
        if response.status_code != 200:
            raise BadIndex(f"{call.what}: the server answers {response.status_code}")
        return response.content

    def stream(self, file: str, size: int) -> Iterator[bytes]:
        call, start = self.session.call(f"{self.name}: {file}", max_bytes=size), 0
        with _refusals(), call.current(expected_bytes=size):
            while start < size:
                before = start
                for piece in self._pieces(call, file, start, size):
                    start += len(piece)
                    yield piece
                if start < size:
                    line = f"{call.what}: the answer ends at byte {start} of {size}; run again"
                    line += " later: whole files are kept"
                    call.failed(ModelError("hub-unreachable", line), brought=start - before)

    def _pieces(self, call: Call, file: str, start: int, size: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-{size - 1}"} if start else {}
        response = self.session.send("GET", f"{self.url}/{file}", headers, stream=True)
        try:
            skipped = start if response.status_code == 200 else 0
            match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            is_range = response.status_code == 206 and match and int(match[1]) == start
            if response.status_code != 200 and not is_range:
                raise BadIndex(f"{call.what}: another range than was requested")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise BadIndex(f"{call.what}: a range in a compressed form")
            for piece in response.iter_raw():
                rest = piece[skipped:]
                skipped -= len(piece) - len(rest)
                if rest:
                    yield rest
        except RETRIED:
            return  # the rest is requested again
        finally:
            response.close()


@dataclass(kw_only=True)
class HubSource(WebSource):
    """An index in a data set of the Hub, at the commit that its name has now."""

    repo: str
    revision: str = "main"
    session: HubSession = field(default_factory=lambda: default_session())
    commit: str = ""

    def __post_init__(self) -> None:
        url = f"{self.session.endpoint}/api/datasets/{self.repo}/revision/{self.revision}"
        with _refusals():
            self.session.refuse_offline(self.name)
            answer, _ = request_json(self.session, self.session.call(self.name), url)
        commit = answer.get("sha") if isinstance(answer, dict) else None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise BadIndex(f"{self.name}: not a data set's description")
        self.commit = commit
        self.url = f"{self.session.endpoint}/datasets/{self.repo}/resolve/{commit}"


def remote_source(source: str) -> WebSource:
    """The index at `hf://datasets/OWNER/NAME[@REVISION]` or at an `https://` address, or a
    `BadIndex`."""
    if source.startswith(HUB):
        repo, revision = split_repo(source)
        return HubSource(name=source, repo=repo, revision=revision)
    try:
        url = httpx2.URL(source)
    except httpx2.InvalidURL:
        raise BadIndex("not an address that can be asked; give it as https://host/folder") from None
    is_safe = url.scheme == "https" or (url.scheme == "http" and url.host in LOOPBACK)
    if not is_safe or url.query or url.fragment or url.userinfo:
        raise BadIndex(
            f"{url.scheme}://{url.host}: give a folder, hf://datasets/OWNER/NAME, or an https:// "
            "address without user and query"
        )
    return WebSource(name=source)


def split_repo(source: str) -> tuple[str, str]:
    """(OWNER/NAME, revision) of an address of the Hub, or a `BadIndex`."""
    repo, _, revision = source.removeprefix(HUB).rstrip("/").partition("@")
    if repo.count("/") != 1 or not is_repo_id(repo) or not re.fullmatch(r"[\w.-]*", revision):
        raise BadIndex(f"'{source}' is not hf://datasets/OWNER/NAME")
    return repo, revision or "main"


def upload_files(
    target: str,
    folder: Path,
    files: Sequence[str],
    *,
    deleted: Sequence[str],
    message: str,
    parent: str | None,
) -> str:
    """Bring files into a data set of the Hub, made where it does not exist, in one commit, which is
    returned. `parent`: the commit that this one must follow; a `BadIndex` if another came first, or
    the Hub refuses."""
    session, (repo, revision) = default_session(), split_repo(target)
    hub_client()
    disable_progress_bars()  # they are printed with --quiet and --json too
    api = HfApi(endpoint=session.endpoint, token=session.token, library_name="deltadex")
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        *(CommitOperationAdd(path_in_repo=f, path_or_fileobj=str(folder / f)) for f in files),
        *(CommitOperationDelete(path_in_repo=f) for f in deleted),
    ]
    with _refusals():
        session.refuse_offline(target)
    try:
        if parent is None:
            api.create_repo(repo, repo_type="dataset", exist_ok=True)
        done = api.create_commit(
            repo,
            operations,
            commit_message=message,
            repo_type="dataset",
            revision=revision,
            parent_commit=parent,
        )
    except HfHubHTTPError as err:
        status = err.response.status_code if err.response is not None else "no status"
        why = "publish again later"
        if status in (401, 403):
            why = "set HF_TOKEN to a token that may write there"
        elif status in (409, 412):
            why = "another commit came first; publish again"
        raise BadIndex(f"{target}: the Hub refuses the upload ({status}): {why}") from None
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as err:
        line = f"{type(err).__name__}; publish again"
        raise BadIndex(f"{target}: the upload failed: {line}") from None
    return str(done.oid)
