"""How many bytes a run wants of each model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .base import Base, BaseWeights
from .budget import choose_parts, layer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What of a model's files is read, by the base's own.

    Attributes:
        share: Of every layer matrix; 1 reads whole files.
        base_bytes: Of the base's weight files; 0 where it is not open.
        layer_bytes: Of the base's layer matrices.
        row_bytes: Of the rows that are read of them under a budget.
        header_bytes: Of the base's weight files beside its tensors.
    """

    share: float = 1.0
    base_bytes: int = 0
    layer_bytes: int = 0
    row_bytes: int = 0
    header_bytes: int = 0

    @classmethod
    def by(cls, base: BaseWeights | None, share: float) -> WantedBytes:
        """By a base, as far as it is open."""
        if base is None:
            return cls(share=share)
        tensors = sum(ref.stop - ref.start for ref in base.checkpoint.tensors.values())
        total = base.checkpoint.bytes_total
        return cls(
            share=share,
            base_bytes=total,
            layer_bytes=layer_bytes(base),
            row_bytes=_row_bytes(base, share) if share < 1 else 0,
            header_bytes=max(0, total - tensors),
        )

    @property
    def of_base(self) -> int:
        """Bytes that are read of the base, once."""
        return self.of_full(self.base_bytes)

    def of(self, kind: str, file_bytes: int) -> int:
        """Bytes that are read of a model of this kind, an adapter or a full checkpoint.

        A full checkpoint whose size is not known (0) is taken to be as large as the base.
        """
        if kind == "adapter":
            return file_bytes
        return self.of_full(file_bytes or self.base_bytes)

    def of_full(self, file_bytes: int) -> int:
        """Bytes that are read of a full checkpoint, whose layers are the same share of it as the
        base's."""
        if self.share == 1 or not self.base_bytes:
            return round(self.share * file_bytes)
        rows = self.row_bytes * file_bytes / self.base_bytes
        return min(file_bytes, round(self.header_bytes + rows))


def _row_bytes(base: BaseWeights, share: float) -> int:
    """Bytes of the rows of a base that are read, as they are stored."""
    total = 0
    for key, part in choose_parts(base.placed, share).items():
        placement = base.placed.by_key[key]
        ref = base.checkpoint.tensors[placement.tensor]
        value_bytes = (ref.stop - ref.start) // max(1, math.prod(ref.shape))
        total += (part.stop - part.start) * placement.shape[1 - part.axis] * value_bytes
    return total


ALL_BYTES = WantedBytes()


def wanted_bytes(base: Base, share: float) -> WantedBytes:
    """What a run with this base wants, from what is open of it."""
    return WantedBytes.by(base.opened(), share)
