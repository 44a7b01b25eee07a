"""Small files of a repository: config.json, adapter_config.json, README.md."""

from __future__ import annotations

from ...errors import ModelError
from .cache import cached_file
from .hub_model import HubModel
from .locate import require_commit
from .session import HubSession, default_session

MAX_SMALL_FILE = 16 << 20
"""Bytes."""


def read_small_file(model: HubModel, name: str, *, session: HubSession | None = None) -> bytes:
    """A small file's content at the model's commit, from the local cache or the Hub.

    Nothing is written to disk.

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
    with call.current(expected_bytes=MAX_SMALL_FILE):
        url = session.file_url(model.id, model.sha or "main", name)
        response = session.send("GET", url, {})
    require_commit(next(iter(response.history), response), model.sha, what)
    return response.content


def _bounded(content: bytes, what: str) -> bytes:
    if len(content) > MAX_SMALL_FILE:
        raise ModelError("hub-bad-answer", f"{what}: larger than {MAX_SMALL_FILE} bytes")
    return content
