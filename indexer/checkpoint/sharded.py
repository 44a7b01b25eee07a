"""Several weight files as one checkpoint, and the index that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import torch

from ...errors import ModelError
from .base import Checkpoint, RowBlock, TensorRef
from .config_file import read_json
from .safetensors_header import shown

_SUFFIXES = (".safetensors", ".bin")


class ShardedCheckpoint:
    """Several files as one checkpoint, opened together so that every claim is checked."""

    def __init__(self, shards: Mapping[str, Checkpoint], weight_map: Mapping[str, str]) -> None:
        for name, file in weight_map.items():
            if name not in shards[file].tensors:
                line = f"no tensor {shown(name)}, which the index places there"
                raise ModelError("missing-tensor", f"{file}: {line}")
        self._shards = dict(shards)
        self._file_of = dict(weight_map)
        self.tensors: Mapping[str, TensorRef] = {
            name: shards[file].tensors[name] for name, file in weight_map.items()
        }
        self.bytes_total = sum(shard.bytes_total for shard in shards.values())
        self.concurrent = all(shard.concurrent for shard in shards.values())

    @property
    def bytes_read(self) -> int:
        return sum(shard.bytes_read for shard in self._shards.values())

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype."""
        return self._shards[self._file(name)].read(name)

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """One tensor for as long as the block lasts."""
        return self._shards[self._file(name)].view(name)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors shard by shard, each in that file's best order."""
        by_file: dict[str, list[str]] = {}
        for name in names:
            by_file.setdefault(self._file(name), []).append(name)
        for file in sorted(by_file):
            yield from self._shards[file].stream(by_file[file])

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows shard by shard, each in that file's best order."""
        by_file: dict[str, list[RowBlock]] = {}
        for block in blocks:
            by_file.setdefault(self._file(block.tensor), []).append(block)
        for file in sorted(by_file):
            yield from self._shards[file].stream_rows(by_file[file])

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()

    def _file(self, name: str) -> str:
        file = self._file_of.get(name)
        if file is None:
            raise ModelError("missing-tensor", f"the index has no tensor {shown(name)}")
        return file


def open_shards(index: Path, open_file: Callable[[Path], Checkpoint]) -> ShardedCheckpoint:
    """The checkpoint that an index file describes; every file it names beside it.

    Raises:
        ModelError: `bad-config`, `missing-shard`, `missing-tensor`, or a shard's own.
    """
    weight_map = _weight_map(index)
    with ExitStack() as opened:
        shards: dict[str, Checkpoint] = {}
        for file in sorted(set(weight_map.values())):
            shards[file] = open_file(index.parent / file)
            opened.callback(shards[file].close)
        checkpoint = ShardedCheckpoint(shards, weight_map)
        opened.pop_all()
    return checkpoint


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError("bad-config", f"{index.name}: no weight_map")
    for file in set(map(_as_file_name, weight_map.values())):
        if file is None:
            line = "weight_map names something that is not a weight file beside it"
            raise ModelError("bad-config", f"{index.name}: {line}")
        if not os.path.exists(index.parent / file):
            line = f"names {shown(file)}, which is not there; fetch it"
            raise ModelError("missing-shard", f"{index.name}: {line}")
    return dict(weight_map)


def _as_file_name(value: object) -> str | None:
    """The value if it names a weight file in the index's own folder."""
    if not isinstance(value, str) or not value.endswith(_SUFFIXES):
        return None
    return value if value.isprintable() and not {"/", "\\"} & set(value) else None
