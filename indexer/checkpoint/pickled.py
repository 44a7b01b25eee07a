"""`.bin` files: torch's zip form, tensors only, mapped; nothing is ever unpickled otherwise."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import ModelError
from .base import TensorRef
from .safetensors_header import DTYPES

_SPELLING = {dtype: name for name, dtype in DTYPES.items()}
_NESTED = ("state_dict", "model", "module")


class PickledCheckpoint:
    """The tensors of one zip-form `.bin`, mapped from disk or already in memory.

    A TensorRef here has no place in the file: start is 0, stop its size.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], file: str, bytes_total: int) -> None:
        self._tensors = dict(tensors)
        self.bytes_total = bytes_total
        self.bytes_read = 0
        self.tensors: Mapping[str, TensorRef] = {
            name: TensorRef(
                name=name,
                dtype=_SPELLING.get(t.dtype, str(t.dtype)),
                shape=tuple(t.shape),
                file=file,
                start=0,
                stop=t.numel() * t.itemsize,
            )
            for name, t in self._tensors.items()
        }

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError("missing-tensor", f"no tensor {name!r}")
        self.bytes_read += self.tensors[name].stop
        return tensor.clone(memory_format=torch.contiguous_format)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order of the file's own list."""
        wanted = set(names)
        for name in self._tensors:
            if name in wanted:
                yield name, self.read(name)

    def close(self) -> None:
        self._tensors.clear()


def open_bin(path: Path) -> PickledCheckpoint:
    """A `.bin` on disk, mapped.

    Raises:
        ModelError: `legacy-pickle`, `unsafe-pickle`, `truncated`, `unreadable`.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            _refuse_other_forms(file, path.name, size)
        return PickledCheckpoint(_load(path, path.name, mmap=True), path.name, size)
    except OSError as err:
        raise ModelError("unreadable", f"{path.name}: {err.strerror or err}") from err


def open_bin_bytes(data: bytes, file: str) -> PickledCheckpoint:
    """A `.bin` that is in memory already.

    Raises:
        ModelError: as `open_bin`.
    """
    _refuse_other_forms(io.BytesIO(data), file, len(data))
    return PickledCheckpoint(_load(io.BytesIO(data), file, mmap=False), file, len(data))


def _refuse_other_forms(file: Any, name: str, size: int) -> None:
    start = file.read(4)
    if zipfile.is_zipfile(file):
        return
    if start == b"PK\x03\x04" or size == 0:
        raise ModelError("truncated", f"{name}: the archive ends early")
    raise ModelError(
        "legacy-pickle", f"{name}: not torch's zip form; it would have to be unpickled, save it again"
    )


def _load(source: Any, name: str, *, mmap: bool) -> dict[str, torch.Tensor]:
    try:
        state = torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as err:
        line = next((x for x in str(err).splitlines() if "GLOBAL" in x or "class" in x), "")
        raise ModelError(
            "unsafe-pickle", f"{name}: holds more than tensors. {line.strip()[:160]}".rstrip()
        ) from err
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError) as err:
        line = str(err).splitlines()[0][:160] if str(err) else type(err).__name__
        raise ModelError("truncated", f"{name}: the archive cannot be read: {line}") from err
    for key in _NESTED:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise ModelError("unsafe-pickle", f"{name}: holds a {type(state).__name__}, not tensors")
    return {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, torch.Tensor)}
