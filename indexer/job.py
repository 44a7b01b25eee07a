"""What all models of one run share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..records import Recipe
from .base import Base
from .budget import BaseParts
from .checkpoint import FEW_BYTES, WHOLE_TENSORS, ReadPlan
from .delta import ScratchPool
from .family import Wanted
from .fingerprint import Layout
from .hub import HubSession
from .wanted_bytes import WantedBytes, wanted_bytes


class Cancelled(Exception):
    """The run is being stopped; the model at hand is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The base, the recipes, and how many matrices are compared where.

    Attributes:
        threads: Matrices of one model at work at once.
        parts: What is read of every matrix under a budget; None reads all.
        verify: Read whole files also under a budget, and those again that were not verified.
        device: Where updates are compressed, as torch names it.
    """

    base: Base
    wanted: Wanted
    recipes: Sequence[Recipe]
    layout: Layout
    threads: int = 1
    device: str = "cpu"
    parts: BaseParts | None = None
    verify: bool = False
    scratch: ScratchPool = field(default_factory=ScratchPool)

    @property
    def session(self) -> HubSession:
        """The Hub that base and models are read from; cancelling it stops the run."""
        return self.base.session

    @property
    def plan(self) -> ReadPlan:
        """How much of a file is read, and how much one read of a remote one brings."""
        plan = WHOLE_TENSORS if self.parts is None else FEW_BYTES
        return replace(plan, whole=self.parts is None or self.verify)

    @property
    def wanted_bytes(self) -> WantedBytes:
        """How much of a model's files is read, as far as the base is open."""
        share = 1.0 if self.parts is None or self.verify else self.parts.share
        return wanted_bytes(self.base, share)

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` once the run is being stopped."""
        if self.session.cancelled.is_set():
            raise Cancelled
