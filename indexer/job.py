"""What all models of one run share."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import RequestError
from ..records import Recipe
from .base import Base
from .budget import BaseParts, WantedBytes, wanted_bytes
from .checkpoint import FEW_BYTES, WHOLE_TENSORS, Checkpoint, ReadPlan
from .delta import ScratchPool
from .family import Wanted
from .fingerprint import Layout
from .hub import HubSession, RequestBudget, run_session


class Meter:
    """Counts what models at work have read. Safe between threads."""

    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._open: dict[str, Checkpoint] = {}
        self._closed_bytes = 0
        self._lock = threading.Lock()

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Bytes to come of each model, by id."""
        with self._lock:
            self._expected.update(sizes)

    def opened(self, id: str, checkpoint: Checkpoint) -> None:
        """A model is being read."""
        with self._lock:
            self._open[id] = checkpoint

    def closed(self, id: str) -> None:
        """Nothing more comes of a model, whether it was read or not."""
        with self._lock:
            self._expected.pop(id, None)
            if (checkpoint := self._open.pop(id, None)) is not None:
                self._closed_bytes += checkpoint.bytes_read

    def bytes(self) -> tuple[int, int]:
        """Those that have come, and those that are still to come."""
        with self._lock:
            now = {id: checkpoint.bytes_read for id, checkpoint in self._open.items()}
            rest = sum(self._expected.values())
            rest -= sum(min(n, self._expected.get(id, 0)) for id, n in now.items())
            return self._closed_bytes + sum(now.values()), rest


class Cancelled(Exception):
    """The run is being stopped; the model at hand is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The base, the recipes, and how many matrices are compared where.

    Attributes:
        shapes: (out, in) by slot, of the family's models; none where too little is known.
        threads: Matrices of one model at work at once.
        parts: What is read of every matrix under a budget; None reads all.
        verify: Read whole files also under a budget, and those again that were not verified.
        device: Where updates are compressed, as torch names it.
    """

    base: Base
    wanted: Wanted
    recipes: Sequence[Recipe]
    layout: Layout
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    threads: int = 1
    device: str = "cpu"
    parts: BaseParts | None = None
    verify: bool = False
    scratch: ScratchPool = field(default_factory=ScratchPool)
    meter: Meter = field(default_factory=Meter)

    def spec(self) -> JobSpec:
        """The same work for another process."""
        return JobSpec(
            base=self.base.name,
            folder=self.base.folder,
            aliases=self.base.aliases,
            wanted=self.wanted,
            recipes=tuple(self.recipes),
            layout=self.layout,
            shapes=self.shapes,
            device=self.device,
            verify=self.verify,
            endpoint=self.session.endpoint,
        )

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

    def bytes_read(self) -> tuple[int, int]:
        """Bytes of models and of a remote base that have come, and all that will have."""
        come, rest = self.meter.bytes()
        fetched = self.base.bytes_fetched
        of_base = self.wanted_bytes.of_base if fetched else 0
        return come + fetched, come + rest + max(fetched, of_base)

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` once the run is being stopped."""
        if self.session.cancelled.is_set():
            raise Cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as plain values: what another process, or another machine, opens for itself.

    Attributes:
        base: The family's name; its weights are opened where they are needed.
        endpoint: The Hub's address. The token is the other process's own.
    """

    base: str
    folder: Path | None
    aliases: tuple[str, ...]
    wanted: Wanted
    recipes: tuple[Recipe, ...]
    layout: Layout
    shapes: Mapping[str, tuple[int, int]]
    device: str
    verify: bool
    endpoint: str

    def open(self, budget: RequestBudget, *, threads: int = 1) -> Job:
        """The job in this process, whose requests to the Hub are counted by `budget`."""
        session = replace(run_session(), endpoint=self.endpoint, budget=budget)
        base = Base(name=self.base, folder=self.folder, aliases=self.aliases, session=session)
        return Job(
            base=base,
            wanted=self.wanted,
            recipes=self.recipes,
            layout=self.layout,
            shapes=self.shapes,
            threads=threads,
            device=self.device,
            parts=base_parts(base, self.recipes, verify=self.verify),
            verify=self.verify,
        )


def base_parts(base: Base, recipes: Sequence[Recipe], *, verify: bool = False) -> BaseParts | None:
    """What is read of every matrix under the recipes' budget.

    Raises:
        RequestError: one recipe has a budget, another has not.
    """
    shares = {recipe.share for recipe in recipes}
    if shares == {1.0}:
        return None
    if len(shares) > 1:
        raise RequestError("one run reads one share: give --budget, and one recipe at a time")
    base.plan = replace(FEW_BYTES, whole=verify)
    return BaseParts(base, shares.pop())
