"""Checkpoints on disk: which of a folder's files are the weights, and opening them."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import torch

from ...errors import ModelError
from .base import Checkpoint
from .pickled import open_bin
from .safetensors_file import SafetensorsFile
from .sharded import open_shards

_FULL = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""In the order in which transformers looks for them."""

_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
"""In the order in which PEFT looks for them."""

_SHARD = re.compile(r"-\d{5}-of-(?!00001)\d{5}\.safetensors$")


def open_local(folder: Path) -> Checkpoint:
    """The full checkpoint in a transformers folder; safetensors before `.bin`.

    Where none of the usual names is there, a safetensors file that stands alone.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    names = _list(folder)
    for name in _FULL:
        if name in names and name.endswith(".json"):
            return open_shards(folder / name, _open_file)
        if name in names:
            return _open_file(folder / name)
    return _open_file(folder / _only_file(folder.name, names))


def open_adapter_weights(folder: Path) -> Checkpoint:
    """The weights of a PEFT adapter folder; safetensors before `.bin`, as PEFT reads them.

    Raises:
        ModelError: with the code of whatever is wrong.
    """
    names = _list(folder)
    for name in _ADAPTER:
        if name in names:
            return _open_file(folder / name)
    raise ModelError("no-weights", f"{folder.name}: no {_ADAPTER[0]} or {_ADAPTER[1]}")


def disagreement(folder: Path) -> str | None:
    """One line where an adapter's two weight files hold different tensors, byte for byte.

    Peak: one tensor pair.

    Raises:
        ModelError: the safetensors file, which counts, cannot be read.
    """
    first, second = (folder / name for name in _ADAPTER)
    if not first.exists() or not second.exists():
        return None
    with closing(_open_file(first)) as read:
        try:
            with closing(_open_file(second)) as other:
                if _same_tensors(read, other):
                    return None
        except ModelError as err:
            return f"{second.name} could not be compared ({err.code}); {first.name} was read"
    return f"{second.name} disagrees with {first.name}, which was read"


def _only_file(folder: str, names: set[str]) -> str:
    """The one safetensors file of a folder without any of the usual names."""
    found = sorted(n for n in names if n.endswith(".safetensors") and not n.startswith("adapter_"))
    if any(_SHARD.search(name) for name in found):
        line = f"{len(found)} shards, but no model.safetensors.index.json; fetch it"
        raise ModelError("missing-shard", f"{folder}: {line}")
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} safetensors files" if found else "no weight file"
    raise ModelError("no-weights", f"{folder}: {what}; expected model.safetensors")


def _open_file(path: Path) -> Checkpoint:
    """One weight file; never a pipe, which would be waited for, or a dangling link."""
    try:
        is_file = path.is_file()
    except OSError as err:
        raise ModelError("unreadable", f"{path.name}: {err.strerror}") from err
    if not is_file:
        raise ModelError("unreadable", f"{path.name}: not a file, or a link to nowhere")
    return SafetensorsFile(path) if path.suffix == ".safetensors" else open_bin(path)


def _same_tensors(one: Checkpoint, two: Checkpoint) -> bool:
    return one.tensors.keys() == two.tensors.keys() and all(
        _same_bytes(one.read(name), two.read(name)) for name in one.tensors
    )


def _same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether they are equal as stored, NaN included."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    first, second = (t.reshape(-1).view(torch.uint8) for t in (one, two))
    return bool(torch.equal(first, second))


def _list(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError) as err:
        raise ModelError("not-found", f"{folder}: no such folder") from err
    except OSError as err:
        raise ModelError("unreadable", f"{folder}: {err.strerror}") from err
