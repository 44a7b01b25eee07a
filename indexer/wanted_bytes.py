"""How many bytes a run wants of each model."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Base, BaseWeights
from .budget import FOR_CONTENT, layer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What of a model's files is read, by the base's own.

    Attributes:
        share: Of every layer matrix; 1 reads whole files.
        base_bytes: Of the base's weight files; 0 where it is not open.
        layer_bytes: Of the base's layer matrices.
        header_bytes: Of the base's weight files beside its tensors.
    """

    share: float = 1.0
    base_bytes: int = 0
    layer_bytes: int = 0
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
        width = file_bytes / self.base_bytes
        rows = FOR_CONTENT * self.share * self.layer_bytes * width
        return min(file_bytes, round(self.header_bytes + rows))


ALL_BYTES = WantedBytes()


def wanted_bytes(base: Base, share: float) -> WantedBytes:
    """What a run with this base wants, from what is open of it."""
    return WantedBytes.by(base.opened(), share)
