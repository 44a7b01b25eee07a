"""A repository's files: small ones whole, weights by ranges, and how large they are."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property

import httpx2

from ...errors import ModelError
from ..checkpoint import (
    ALL_TENSORS,
    DTYPES,
    WHOLE_TENSORS,
    ByteSource,
    Checkpoint,
    ModelFolder,
    ReadPlan,
    choose_weights,
    open_weights,
    shard_files,
)
from .call import Patience, origin_of
from .hub_model import HubModel, describe
from .kept_ranges import KeptRanges, RangeFolder
from .remote_bytes import RemoteBytes, RemoteFile, VerifiedBytes, locate, require_commit
from .session import HubSession, cached_file, default_session

MAX_SMALL_FILE = 16 << 20

_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")


def read_small_file(
    model: HubModel,
    name: str,
    *,
    session: HubSession | None = None,
    max_bytes: int = MAX_SMALL_FILE,
    patience: Patience | None = None,
) -> bytes:
    """A small file's content at the model's commit, from the local cache or the Hub.

    Nothing is written to disk. A content that does not match its ETag is requested
    again.

    Args:
        max_bytes: A larger file is refused.
        patience: Limits of the call; those of the session by default.
    """
    session = session or default_session()
    what = f"{model.id}: {name}"
    path = cached_file(session.cache_dir, model.id, model.sha, name)
    if path is not None:
        content = ModelFolder.at(path.parent).start(path.name, max_bytes + 1)
        if len(content) > max_bytes:
            raise ModelError("hub-bad-answer", f"{what}: larger than {max_bytes} bytes")
        return content
    session.refuse_offline(what)
    call = session.call(what)
    call.max_bytes = max_bytes
    call.patience = patience or call.patience
    url = session.file_url(model.id, model.sha or "main", name)
    with call.current(expected_bytes=max_bytes):
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


class HubWeights:
    """The weight files of one model at one commit; each file is located once.

    Files in the local cache are read there.
    """

    def __init__(
        self,
        model: HubModel,
        plan: ReadPlan = WHOLE_TENSORS,
        *,
        adapter: bool | None = None,
        session: HubSession | None = None,
        kept: RangeFolder | None = None,
    ) -> None:
        """A model's weights.

        Args:
            adapter: Whether an adapter's are wanted; None for what the model is.
            kept: Where ranges are kept, of files that are not read whole; None keeps none.
        """
        self._described = model
        self._adapter = model.kind == "adapter" if adapter is None else adapter
        self._session = session or default_session()
        self._kept = kept
        self._located: dict[str, RemoteFile] = {}
        self._plan = ALL_TENSORS if self._adapter else plan

    def sha256(self) -> str | None:
        """The hash of the files' content, before a byte of them is read.

        One file: its own SHA-256, as `checkpoint.file_sha256` gives it. Shards: the SHA-256 of
        their hexadecimal hashes, sorted, one a line. None where the Hub does not know it.
        Costs one HEAD a file, which opening them then does not need.
        """
        name = self._name
        if name is None:
            return None
        if not name.endswith(".index.json"):
            return self._hash(name)
        hashes = [self._hash(shard) for shard in shard_files(self.content(name), name)]
        known = sorted(value for value in hashes if value is not None)
        if len(known) < len(hashes):
            return None
        return hashlib.sha256("\n".join(known).encode()).hexdigest()

    def open(self) -> Checkpoint:
        """The checkpoint, headers read; an adapter's small tensors are fetched many at a time."""
        if self._name is None:
            expected = "adapter_model.safetensors or .bin" if self._adapter else "model.safetensors"
            line = f"no weight file; expected {expected}"
            raise ModelError("no-weights", f"{self._described.id}: {line}")
        return open_weights(self, self._name)

    def has(self, file: str) -> bool:
        return file in (self._model.files or ())

    def content(self, file: str) -> bytes:
        return read_small_file(self._model, file, session=self._session)

    def source(self, file: str) -> ByteSource:
        """A weight file, cached or to be read by ranges; of a whole file, the hash is compared."""
        cached = cached_file(self._session.cache_dir, self._model.id, self._model.sha, file)
        if cached is not None:
            return ModelFolder.at(cached.parent, whole=self._plan.whole).source(cached.name)
        located = self._locate(file)
        remote = RemoteBytes(self._session, located, self._plan)
        if self._plan.whole and located.sha256:
            return VerifiedBytes(remote, located.sha256)
        if self._kept is not None and not self._plan.whole:
            return KeptRanges(remote, located, self._kept)
        return remote

    @cached_property
    def _model(self) -> HubModel:
        """The description with its files and commit; requested where the listing lacks them."""
        model = self._described
        if model.files is not None and model.sha:
            return model
        return describe(model.id, model.sha or None, session=self._session)

    @cached_property
    def _name(self) -> str | None:
        return choose_weights(self._model.files or (), adapter=self._adapter)

    def _hash(self, file: str) -> str | None:
        cached = cached_file(self._session.cache_dir, self._model.id, self._model.sha, file)
        if cached is not None:
            return ModelFolder.at(cached.parent).listed_sha256(cached.name)
        return self._locate(file).sha256

    def _locate(self, path: str) -> RemoteFile:
        if path not in self._located:
            self._located[path] = locate(self._session, self._model.id, self._model.sha, path)
        return self._located[path]


def stated_bytes(model: HubModel) -> int | None:
    """Bytes of the parameters that the listing counts, by type; None where it counts none.

    Headers are not in it, nor tensors of a type whose width is not known.
    """
    if not model.dtypes:
        return None
    n_bytes = 0
    for dtype, n in model.dtypes.items():
        if dtype not in DTYPES and not dtype.startswith("F8"):
            return None
        n_bytes += n * (DTYPES[dtype].itemsize if dtype in DTYPES else 1)
    return n_bytes


def request_bytes(model: HubModel, session: HubSession) -> int:
    """The size of the weight file by a HEAD request, or that of all shards by their index.

    Raises:
        ModelError: `no-weights`, or what the request runs into.
    """
    name = choose_weights(model.files or (), adapter=model.kind == "adapter")
    if name is None:
        raise ModelError("no-weights", f"{model.id}: no weight file")
    if not name.endswith(".json"):
        return locate(session, model.id, model.sha, name).size
    try:
        index = json.loads(read_small_file(model, name, session=session))
        size = index["metadata"]["total_size"]
    except (ValueError, RecursionError, KeyError, TypeError):
        size = None
    if not isinstance(size, (int, float)) or not 0 < size < 1 << 60:
        raise ModelError("bad-header", f"{model.id}: {name} does not say how large its shards are")
    return int(size)
