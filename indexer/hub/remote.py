"""Checkpoints on the Hub: their weight files chosen, opened, and named by content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ...errors import ModelError
from ..checkpoint import Checkpoint, read_json
from ..checkpoint.sharded import ShardedCheckpoint
from .byte_sources import ByteSource, LocalBytes
from .cache import cached_file, cached_sha256
from .describe import describe
from .hub_model import HubModel
from .locate import locate
from .ranged import FIRST_OF_FEW, FIRST_READ, RangedFile, RangedSafetensors
from .ranged_bin import RangedBin
from .remote_bytes import RemoteBytes
from .session import HubSession, default_session
from .small_files import read_small_file
from .weight_files import adapter_file, full_file


class IndexedShards(ShardedCheckpoint):
    """Shards whose index was fetched too, and counts among the bytes read."""

    def __init__(
        self,
        shards: Mapping[str, Checkpoint],
        weight_map: Mapping[str, str],
        index_bytes: int,
    ) -> None:
        super().__init__(shards, weight_map)
        self._index_bytes = index_bytes

    @property
    def bytes_read(self) -> int:
        return self._index_bytes + super().bytes_read


def open_hub_model(
    model: HubModel,
    *,
    subfolder: str = "",
    session: HubSession | None = None,
    few_bytes: bool = False,
) -> Checkpoint:
    """A full checkpoint, headers read, tensors to be fetched by range when asked for.

    Files in the local cache are read there. `few_bytes`: rather one request more than bytes
    of no use.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    session = session or default_session()
    model = _with_files(model, session)
    name = full_file(model.files or (), subfolder)
    if name is None:
        line = f"{model.id}: no weight file; expected model.safetensors"
        raise ModelError("no-weights", line)
    path = _inside(subfolder, name)
    if not name.endswith(".index.json"):
        return _open(session, model, path, few_bytes=few_bytes)
    return _open_shards(session, model, path, subfolder, few_bytes)


def open_hub_adapter(
    model: HubModel, *, subfolder: str = "", session: HubSession | None = None
) -> Checkpoint:
    """An adapter's weights; its small tensors are fetched many at a time.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    session = session or default_session()
    model = _with_files(model, session)
    name = adapter_file(model.files or (), subfolder)
    if name is None:
        raise ModelError("no-weights", f"{model.id}: no adapter_model.safetensors or .bin")
    return _open(session, model, _inside(subfolder, name), ahead=True)


def content_sha256(
    model: HubModel, *, subfolder: str = "", session: HubSession | None = None
) -> str | None:
    """The hash of the weight files' content, before a byte of them is read.

    One file: its own SHA-256, as `checkpoint.file_sha256` gives it. Shards: the SHA-256 of
    their hexadecimal hashes, sorted, one a line. None where the Hub does not know it.
    Costs one HEAD a file, which opening the model then does not need.

    Raises:
        ModelError: the files cannot be asked for.
    """
    session = session or default_session()
    model = _with_files(model, session)
    choose = adapter_file if model.kind == "adapter" else full_file
    name = choose(model.files or (), subfolder)
    if name is None:
        return None
    path = _inside(subfolder, name)
    if name.endswith(".index.json"):
        shards = sorted(set(_weight_map(session, model, path)[0].values()))
        hashes = [_hash(session, model, _inside(subfolder, shard)) for shard in shards]
        known = sorted(h for h in hashes if h is not None)
        if len(known) < len(shards):
            return None
        return hashlib.sha256("\n".join(known).encode()).hexdigest()
    return _hash(session, model, path)


def _open(
    session: HubSession,
    model: HubModel,
    path: str,
    *,
    ahead: bool = False,
    few_bytes: bool = False,
) -> RangedFile:
    source = _source(session, model, path)
    if path.endswith(".safetensors"):
        first_read = FIRST_OF_FEW if few_bytes else FIRST_READ
        return RangedSafetensors(source, ahead=ahead, first_read=first_read)
    return RangedBin(source, ahead=ahead)


def _open_shards(
    session: HubSession, model: HubModel, index: str, subfolder: str, few_bytes: bool
) -> Checkpoint:
    weight_map, index_bytes = _weight_map(session, model, index)
    shards: dict[str, Checkpoint] = {}
    for shard in sorted(set(weight_map.values())):
        path = _inside(subfolder, shard)
        if path not in (model.files or ()):
            line = f"{model.id}: {index} names {shard}, which is not there"
            raise ModelError("missing-shard", line)
        shards[shard] = _open(session, model, path, few_bytes=few_bytes)
    return IndexedShards(shards, weight_map, index_bytes)


def _weight_map(session: HubSession, model: HubModel, index: str) -> tuple[dict[str, str], int]:
    """Shard file by tensor name, and the size of the index."""
    content = read_small_file(model, index, session=session)
    weight_map = read_json(content, name=index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError("bad-config", f"{model.id}: {index}: no weight_map")
    for file in weight_map.values():
        plain = isinstance(file, str) and Path(file).name == file
        if not plain or not file.endswith((".safetensors", ".bin")):
            line = f"{model.id}: {index}: {file!r} is not a weight file's name"
            raise ModelError("bad-config", line)
    return {str(name): file for name, file in weight_map.items()}, len(content)


def _source(session: HubSession, model: HubModel, path: str) -> ByteSource:
    local = cached_file(session.cache_dir, model.id, model.sha, path)
    if local is not None:
        return LocalBytes(local, path)
    return RemoteBytes(session, model.id, model.sha, path)


def _hash(session: HubSession, model: HubModel, path: str) -> str | None:
    local = cached_file(session.cache_dir, model.id, model.sha, path)
    if local is not None:
        return cached_sha256(local)
    file = locate(session, model.id, model.sha, path)
    session.located[model.id, model.sha, path] = file
    return file.sha256


def _with_files(model: HubModel, session: HubSession) -> HubModel:
    if model.files is not None and model.sha:
        return model
    return describe(model.id, model.sha or None, session=session)


def _inside(subfolder: str, name: str) -> str:
    return f"{subfolder.strip('/')}/{name}" if subfolder.strip("/") else name
