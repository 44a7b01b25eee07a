"""Checkpoints on disk: one file or shards, safetensors or `.bin`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch

from ...errors import ModelError
from .base import Checkpoint, TensorRef
from .config_file import read_json
from .pickled import open_bin
from .safetensors_header import decode, header_length, parse_header


class SafetensorsFile:
    """One safetensors file, read by position into fresh memory.

    Not mapped: a file that is cut short meanwhile gives a short read, not a dead process.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as err:
            raise ModelError("unreadable", f"{path.name}: {err.strerror}") from err
        self.bytes_read = 0
        try:
            self.bytes_total = os.fstat(self._descriptor).st_size
            length = header_length(
                bytes(self._read(0, min(8, self.bytes_total))),
                file=path.name,
                file_size=self.bytes_total,
            )
            head = bytes(self._read(0, 8 + length))
            refs = parse_header(head, file=path.name, file_size=self.bytes_total)
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorRef] = {ref.name: ref for ref in refs}

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype."""
        ref = self.tensors.get(name)
        if ref is None:
            raise ModelError("missing-tensor", f"{self._name}: no tensor {name!r}")
        return decode(self._read(ref.start, ref.stop), ref)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors by offset."""
        for name in sorted(names, key=lambda n: self.tensors[n].start):
            yield name, self.read(name)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, start: int, stop: int) -> bytearray:
        buffer = bytearray(stop - start)
        view, done = memoryview(buffer), 0
        while done < len(buffer):
            try:
                got = os.preadv(self._descriptor, [view[done:]], start + done)
            except OSError as err:
                raise ModelError("unreadable", f"{self._name}: {err.strerror}") from err
            if got == 0:
                raise ModelError("truncated", f"{self._name}: ends at byte {start + done}")
            done += got
        self.bytes_read += len(buffer)
        return buffer


class ShardedCheckpoint:
    """Several files as one checkpoint, opened together so that every claim is checked."""

    def __init__(self, shards: Mapping[str, Checkpoint], weight_map: Mapping[str, str]) -> None:
        self._shards = dict(shards)
        for name, shard in weight_map.items():
            if name not in self._shards[shard].tensors:
                raise ModelError("missing-tensor", f"{shard}: no tensor {name!r}, which the index names")
        self._shard_of = dict(weight_map)
        self.tensors: Mapping[str, TensorRef] = {
            name: self._shards[shard].tensors[name] for name, shard in weight_map.items()
        }
        self.bytes_total = sum(s.bytes_total for s in self._shards.values())

    @property
    def bytes_read(self) -> int:
        return sum(s.bytes_read for s in self._shards.values())

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype."""
        if name not in self._shard_of:
            raise ModelError("missing-tensor", f"no tensor {name!r}")
        return self._shards[self._shard_of[name]].read(name)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors shard by shard."""
        wanted = set(names)
        for file, shard in sorted(self._shards.items()):
            yield from shard.stream([n for n in wanted if self._shard_of[n] == file])

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()


def open_local(folder: Path) -> Checkpoint:
    """The full checkpoint in a transformers folder; safetensors before `.bin`.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    names = _list(folder)
    for index, single in (
        ("model.safetensors.index.json", "model.safetensors"),
        ("pytorch_model.bin.index.json", "pytorch_model.bin"),
    ):
        if single in names:
            return _open_file(folder / single)
        if index in names:
            return _open_shards(folder, index)
    others = [n for n in names if n.endswith(".safetensors") and not n.startswith("adapter_")]
    if len(others) == 1:
        return _open_file(folder / others[0])
    found = f"{len(others)} safetensors files and no index" if others else "no weight file"
    raise ModelError("no-weights", f"{folder.name}: {found}; expected model.safetensors")


def open_adapter_weights(folder: Path) -> Checkpoint:
    """The weights of a PEFT adapter folder; safetensors before `.bin`, as PEFT reads them.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    names = _list(folder)
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if name in names:
            return _open_file(folder / name)
    raise ModelError("no-weights", f"{folder.name}: no adapter_model.safetensors or .bin")


def disagreement(folder: Path) -> str | None:
    """One line where an adapter's two weight files hold different tensors."""
    first, second = folder / "adapter_model.safetensors", folder / "adapter_model.bin"
    if not first.exists() or not second.exists():
        return None
    try:
        checkpoints = [_open_file(first), _open_file(second)]
    except ModelError as err:
        return f"adapter_model.bin was not read ({err.code}); adapter_model.safetensors was"
    with ExitStack() as stack:
        for checkpoint in checkpoints:
            stack.callback(checkpoint.close)
        one, two = checkpoints
        same = one.tensors.keys() == two.tensors.keys() and all(
            torch.equal(one.read(name), two.read(name)) for name in one.tensors
        )
    return None if same else "adapter_model.bin disagrees with adapter_model.safetensors, which was read"


def _open_file(path: Path) -> Checkpoint:
    return SafetensorsFile(path) if path.suffix == ".safetensors" else open_bin(path)


def _open_shards(folder: Path, index: str) -> Checkpoint:
    weight_map = read_json(folder / index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError("bad-config", f"{index}: no weight_map")
    shards: dict[str, Checkpoint] = {}
    try:
        for file in sorted({str(f) for f in weight_map.values()}):
            if Path(file).name != file or not file.endswith((".safetensors", ".bin")):
                raise ModelError("bad-config", f"{index}: {file!r} is not a weight file's name")
            if not (folder / file).exists():
                raise ModelError("missing-shard", f"{index} names {file}, which is not there")
            shards[file] = _open_file(folder / file)
        return ShardedCheckpoint(shards, {str(k): str(v) for k, v in weight_map.items()})
    except ModelError:
        for shard in shards.values():
            shard.close()
        raise


def _list(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError as err:
        raise ModelError("not-found", f"{folder}: no such folder") from err
    except OSError as err:
        raise ModelError("unreadable", f"{folder}: {err.strerror}") from err
