"""Small files of a repository: config.json, adapter_config.json, README.md."""

from __future__ import annotations

import hashlib
import re

import httpx2

from ...errors import ModelError
from .cache import cached_file
from .call import origin_of
from .hub_model import HubModel
from .remote_bytes import require_commit
from .session import HubSession, default_session

MAX_SMALL_FILE = 16 << 20
"""Bytes."""

_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")


def read_small_file(model: HubModel, name: str, *, session: HubSession | None = None) -> bytes:
    """A small file's content at the model's commit, from the local cache or the Hub.

    Nothing is written to disk. A content that is not the one which its ETag names is asked
    for again.

    Raises:
        ModelError: `not-found`, `changed`, `offline`, or the Hub refuses or does not answer
            as it should; more than `MAX_SMALL_FILE` is not as it should.
    """
    session = session or default_session()
    what = f"{model.id}: {name}"
    path = cached_file(session.cache_dir, model.id, model.sha, name)
    if path is not None:
        try:
            with path.open("rb") as file:
                return _bounded(file.read(MAX_SMALL_FILE + 1), what)
        except OSError as err:
            raise ModelError("unreadable", f"{what}: {err.strerror}") from err
    session.refuse_offline(what)
    call = session.call(what)
    call.max_bytes = MAX_SMALL_FILE
    url = session.file_url(model.id, model.sha or "main", name)
    with call.current(expected_bytes=MAX_SMALL_FILE):
        while True:
            response = session.send("GET", url, {})
            require_commit(next(iter(response.history), response), model.sha, what)
            if response.status_code == 200 and _is_content_of(response, call.origin):
                return response.content
            call.failed(ModelError("hub-bad-answer", f"{what}: another content than it should be"))


def _is_content_of(response: httpx2.Response, hub: tuple[str, str, int]) -> bool:
    """Whether a file's content has the hash that the Hub gave as its ETag, if it gave one.

    The Hub names small files by their Git blob, stored ones by SHA-256, some mirrors by SHA-1.
    """
    named = _named_hash(response, hub)
    if named is None:
        return True
    content = response.content
    if len(named) == 64:
        return hashlib.sha256(content).hexdigest() == named
    blob = b"blob %d\0" % len(content) + content
    return named in (
        hashlib.sha1(data, usedforsecurity=False).hexdigest() for data in (blob, content)
    )


def _named_hash(response: httpx2.Response, hub: tuple[str, str, int]) -> str | None:
    answers = [r for r in (*response.history, response) if origin_of(r.request.url) == hub]
    for header in ("X-Linked-Etag", "ETag"):
        for answer in reversed(answers):
            etag = answer.headers.get(header, "").removeprefix("W/").strip('"')
            if _HASH.fullmatch(etag):
                return etag
    return None


def _bounded(content: bytes, what: str) -> bytes:
    if len(content) > MAX_SMALL_FILE:
        raise ModelError("hub-bad-answer", f"{what}: larger than {MAX_SMALL_FILE} bytes")
    return content
