"""What all models of one run share: the base, recipes, threads and the device."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from ..errors import RequestError
from ..records import Recipe
from .base import Base
from .budget import BaseParts, WantedBytes
from .checkpoint import FEW_BYTES, WHOLE_TENSORS, Checkpoint, ReadPlan
from .delta import ScratchPool
from .family import Wanted
from .fingerprint import Layout
from .hub import HubSession

LONGEST_REASON = 100
"""Characters of what torch says of a device."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cpu_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Torch computes in the calling thread only, until the block ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads in which torch and the libraries below it compute alone, from the first product on.

    `torch.set_num_threads` tells OpenMP and MKL of the calling thread only. A new thread would
    share its first products out among as many threads as the environment says, or MKL finds idle:
    other last bits from one run to the next.
    """
    return ThreadPoolExecutor(
        threads, thread_name_prefix=name, initializer=torch.set_num_threads, initargs=(1,)
    )


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, *, ahead: int = 0
) -> Iterator[Result]:
    """`function` of each item, in the items' order, `threads` of them at a time.

    At most `ahead` items more than `threads` and one are held at any time; with none ahead,
    threads wait for a long item that is to come out first.
    """
    if threads <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    with thread_pool(threads, "deltadex-matrix") as pool:
        try:
            for item in items:
                if len(waiting) >= threads + ahead:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def choose_device(name: str, *, float64: bool = False) -> str:
    """The device that `auto`, `cpu`, `cuda`, `cuda:1`, … stands for on this machine.

    Args:
        float64: It has to compute in float64.

    Raises:
        RequestError: torch does not know it, or does not find it here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as err:
        raise RequestError(
            f"device {name!r}: expected auto, cpu, or cuda; this machine has: {_devices()}"
        ) from err
    if device.type == "cpu":
        return "cpu"
    try:
        torch.zeros(1, dtype=torch.float64 if float64 else torch.float32, device=device).item()
    # Of the kinds of device that torch knows by name, each fails in a way of its own.
    except Exception as err:
        reason = str(err).partition("\n")[0].partition(". ")[0][:LONGEST_REASON]
        raise RequestError(
            f"device {name!r} cannot be used here: {reason}; this machine has: {_devices()}"
        ) from err
    return name


def _devices() -> str:
    graphics = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *graphics, *["mps"] * torch.backends.mps.is_available()])


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

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which opens the base and counts threads for itself."""
        plain = ("wanted", "recipes", "layout", "shapes", "device", "verify")
        return _job_elsewhere, (self.base, {name: getattr(self, name) for name in plain})

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
        return WantedBytes.by(self.base.opened(), share)

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


def _job_elsewhere(base: Base, plain: dict[str, Any]) -> Job:
    parts = base_parts(base, plain["recipes"], verify=plain["verify"])
    return Job(base=base, parts=parts, **plain)


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
