"""A few rows of every layer matrix of several models of one base, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import torch

from ..store import Catalog
from .architecture import Key, require_same_layers
from .base import Base, place_checkpoint, resolve_base, wanted_base
from .checkpoint import FEW_BYTES
from .delta import MatrixUpdate, dense
from .family import find_member
from .job import MOST_SHARE, BaseParts, IndexJob, read_parts, single_torch_thread
from .updates import collect_adapter

ROW_SHARE = 0.01
LEAST_ENTRIES = 20_000
"""Entries from which ratios show a spike in every matrix: of toy models more rows are read."""

MOST_ENTRIES = 500_000
"""Entries that are read of each model: of 50 million, a hundredth; of more, fewer."""


@dataclass(slots=True)
class RowSample:
    """The same rows of models of one base, (rows, in) by slot and part, in their stored types."""

    base: Base
    parts: BaseParts
    shapes: dict[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Of every tensor of the full models that were read, by source."""

    @classmethod
    def of_base(cls, catalog: Catalog, base: str) -> RowSample:
        """Raises `BaseError` where the base's files cannot be read."""
        opened = resolve_base(catalog, base)
        opened.plan = FEW_BYTES
        entries = sum(p.shape[0] * p.shape[1] for p in opened.weights().placed.placements)
        share = min(max(ROW_SHARE, LEAST_ENTRIES / max(1, entries)), MOST_ENTRIES / max(1, entries))
        share = min(share, MOST_SHARE)
        return cls(opened, BaseParts(opened, share))

    @property
    def modules(self) -> Mapping[Key, str]:
        """The name of the module that holds each matrix, as in the base's files."""
        return {p.key: p.module for p in self.base.weights().placed.placements}

    def of_the_base(self) -> dict[Key, torch.Tensor]:
        return {key: self.parts.matrix(key)[0] for key in sorted(self.parts.parts)}

    @single_torch_thread()
    def read(self, source: str) -> dict[Key, torch.Tensor]:
        """Those of the model in a folder or of a Hub id; of an adapter, added to the base's.

        Raises:
            ModelError: it cannot be read, or has not the base's layers.
        """
        member = find_member(source, self.base.name)
        if member.refusal is not None:
            raise member.refusal
        member = member.with_config()
        with closing(member.checkpoint(FEW_BYTES)) as checkpoint:
            if not member.is_adapter:
                self.shapes[source] = {n: tuple(ref.shape) for n, ref in checkpoint.tensors.items()}
                placed = place_checkpoint(checkpoint, member.config)
                placed.require_known()
                require_same_layers(placed, self.base.weights().placed)
                read = read_parts(checkpoint, placed.placements, self.parts.parts)
                return {placement.key: rows.clone() for placement, rows in read}
            job = IndexJob(
                base=self.base,
                wanted=wanted_base(self.base),
                recipes=(),
                layout=(),
                parts=self.parts,
            )
            keeper = _Deltas()
            collect_adapter(member, checkpoint, job, keeper)
        rows = self.of_the_base()
        for key, delta in keeper.deltas.items():
            rows[key] = (rows[key].float() + delta).to(rows[key].dtype)
        return rows


@dataclass(slots=True)
class _Deltas:
    deltas: dict[Key, torch.Tensor] = field(default_factory=dict)

    def measure(self, update: MatrixUpdate) -> tuple[Key, torch.Tensor | None]:
        key, delta = (update.slot, update.part), update.delta
        return key, None if delta is None else dense(delta).clone()

    def take(self, measured: tuple[Key, torch.Tensor | None]) -> None:
        if measured[1] is not None:
            self.deltas[measured[0]] = measured[1]
