"""What every checkpoint offers, wherever its bytes are: tensor headers, and tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
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

    def rows(self, start: int, stop: int) -> TensorRef:
        """Some rows of it, leading dimensions flattened: shape (stop − start, columns)."""
        columns = self.shape[-1]
        width = (self.stop - self.start) // math.prod(self.shape[:-1])
        return replace(
            self,
            shape=(stop - start, columns),
            start=self.start + start * width,
            stop=self.start + stop * width,
        )


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows `start` to `stop` of a tensor, its leading dimensions flattened."""

    tensor: str
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

    @property
    def concurrent(self) -> bool:
        """Whether several threads may as well read one tensor each as one thread all."""
        ...

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, finite or not."""
        ...

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        """The same for as long as the block lasts, without a copy where that can be had.

        What was read while the file changed is refused at the end of the block.
        """
        ...

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The named tensors in the order that reads them best: by file, then offset.

        Peak: one tensor, plus what a remote reader coalesces.
        """
        ...

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """Some rows of some tensors, (rows, columns), in the order that reads them best."""
        ...

    def close(self) -> None: ...
