"""What every checkpoint offers, wherever its bytes are: tensor headers, and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor as its file's header declares it.

    Attributes:
        dtype: Safetensors spelling: F64 F32 F16 BF16 I8 U8 ….
        file: The weight file's name within the checkpoint.
        start: First byte, from the beginning of the file.
        stop: One past the last byte.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int


@runtime_checkable
class Checkpoint(Protocol):
    """The tensors of one model: listed from headers, read one at a time.

    Every reading method raises `ModelError` with a code of `errors.REASONS`.
    """

    @property
    def tensors(self) -> Mapping[str, TensorRef]:
        """Every tensor by name, as the headers declare it."""
        ...

    @property
    def bytes_total(self) -> int:
        """Size of all weight files, in bytes."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far, headers included."""
        ...

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, finite or not."""
        ...

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order that reads them best: by file, then offset.

        Peak: one tensor, plus what a remote reader coalesces.
        """
        ...

    def close(self) -> None: ...
