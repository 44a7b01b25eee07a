"""Where the bytes of one remote file are: one HEAD gives size, content hash and address."""

from __future__ import annotations

import httpx2

from ...errors import ModelError
from .remote_file import RemoteFile, is_count
from .session import HubSession


def locate(session: HubSession, repo_id: str, commit: str, name: str) -> RemoteFile:
    """Ask the Hub for a file without its bytes.

    Raises:
        ModelError: the file or the answer is not there, or is another commit's.
    """
    what = f"{repo_id}: {name}"
    session.refuse_offline(what)
    with session.call(what, leaves_hub=False).current():
        response = session.send("HEAD", session.file_url(repo_id, commit or "main", name), {})
    headers = response.headers
    require_commit(response, commit, what)
    target = response.next_request
    etag = headers.get("X-Linked-Etag") or headers.get("ETag") or ""
    length = headers.get("X-Linked-Size") or ""
    if not length and target is None:
        length = headers.get("Content-Length") or ""
    if not etag or not is_count(length):
        raise ModelError("hub-bad-answer", f"{what}: the answer has no ETag or no size")
    return RemoteFile(
        what=what,
        size=int(length),
        etag=etag.removeprefix("W/").strip('"'),
        url=str(target.url if target else response.request.url),
        on_hub=target is None,
    )


def require_commit(response: httpx2.Response, commit: str, what: str) -> None:
    """Raise where a file answer is not the Hub's, or speaks of another commit."""
    answered = response.headers.get("X-Repo-Commit")
    if answered is None:
        raise ModelError("hub-bad-answer", f"{what}: the answer is not a Hub's (no X-Repo-Commit)")
    if commit and answered != commit:
        raise ModelError("changed", f"{what}: asked for commit {commit[:12]}, got {answered[:12]}")
