"""What all models of one run share: the base, what is read of each model, threads, the device."""

from __future__ import annotations

import math
import os
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import torch

from ..errors import BaseError, ModelError, RequestError
from ..records import Recipe
from ..results import size
from .architecture import Key, PlacedModel, Placement
from .base import Base, BaseWeights, find_embedding
from .checkpoint import FEW_BYTES, WHOLE_TENSORS, Checkpoint, ReadPlan, RowBlock, TensorRef
from .delta import Delta, DenseDelta, LowRankDelta, ScratchPool, flaw_of, frobenius
from .family import Member, Wanted
from .fingerprint import Layout
from .hub import HubSession
from .lexicon import LexiconOnce

FOR_CONTENT = 0.92
"""Share of a budget that is spent on matrices: headers and requests take the rest."""

LEAST_SHARE, MOST_SHARE = 1e-4, 0.5
"""Below, there is hardly a row to read; above, reading everything costs little more."""

_SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[kmg]i?b)\s*", re.IGNORECASE)


def parse_budget(text: str, layer_bytes: int) -> float:
    """The share of the layer matrices' bytes that `2%` or `20MB` allows, to two digits, or a
    `RequestError`."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise RequestError(f"budget {text!r}: expected a share such as 2% or a size such as 20MB")
    number, unit = float(match[1]), match[2].lower()
    share = number / 100 if unit == "%" else number * _SIZES[unit] / layer_bytes
    if share > MOST_SHARE:
        raise RequestError(
            f"budget {text}: that is {share:.0%} of the layers' {size(layer_bytes)}; at "
            f"most {MOST_SHARE:.0%} is read by rows: leave --budget out to read all"
        )
    if share < LEAST_SHARE:
        raise RequestError(f"budget {text}: less than {LEAST_SHARE:.2%} of the layers says nothing")
    digits = 1 - math.floor(math.log10(share))
    scale = 10.0**digits
    return math.floor(share * scale + 1e-9) / scale


def layer_bytes(base: BaseWeights, share: float = 1.0) -> int:
    """Bytes of the layer matrices; of the part of each that a `share` below 1 reads."""
    parts = choose_parts(base.placed, share) if share < 1 else {}
    total = 0
    for placement in base.placed.placements:
        ref, part = base.checkpoint.tensors[placement.tensor], parts.get(placement.key)
        n_values = math.prod(placement.shape)
        if part is not None:
            n_values = (part.stop - part.start) * placement.shape[1 - part.axis]
        total += n_values * ((ref.stop - ref.start) // max(1, math.prod(ref.shape)))
    return total


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Some rows (`axis` 0) or columns (1) of one slot's (out, in) matrix."""

    axis: int
    start: int
    stop: int

    def cut(self, delta: Delta) -> Delta:
        if isinstance(delta, DenseDelta):
            return DenseDelta(delta.matrix.narrow(self.axis, self.start, self.stop - self.start))
        if self.axis == 0:
            return LowRankDelta(delta.left[self.start : self.stop], delta.right)
        return LowRankDelta(delta.left, delta.right[:, self.start : self.stop])


def choose_parts(placed: PlacedModel, share: float) -> dict[Key, ReadPart]:
    """The part of every slot of a base: one block of stored rows, at a matrix's end or start in
    turn, by the modules' names, mostly the files' order: one's last rows and the next one's first
    are one request."""
    parts: dict[Key, ReadPart] = {}
    in_order = sorted(placed.placements, key=lambda p: (p.module, p.index or 0, p.row_numbers[0]))
    places: dict[object, int] = {}
    for placement in in_order:
        # Parts that share stored rows, as columns of one in × out matrix, share the block.
        block = (placement.module, placement.index) if placement.transposed else placement.key
        number = places.setdefault(block, len(places))
        axis = 1 if placement.transposed else 0
        size = placement.shape[axis]
        rows = max(1, math.floor(size * share * FOR_CONTENT))
        start = 0 if number % 2 else size - rows
        parts[placement.key] = ReadPart(axis, start, start + rows)
    return parts


def read_parts(
    checkpoint: Checkpoint, placements: Sequence[Placement], parts: Mapping[Key, ReadPart]
) -> Iterator[tuple[Placement, torch.Tensor]]:
    """Each placement's part as a matrix in its stored type, (out, in), as the bytes come in."""
    users: dict[tuple[RowBlock, ...], list[Placement]] = defaultdict(list)
    for p in placements:  # whose blocks are the same, or have no row in common
        users[tuple(_blocks(p, parts[p.key], checkpoint.tensors[p.tensor]))].append(p)
    groups = list(users.items())
    owners = {block: n for n, (blocks, _) in enumerate(groups) for block in blocks}
    held: dict[int, dict[RowBlock, torch.Tensor]] = defaultdict(dict)
    for arrived, rows in checkpoint.stream_rows(list(owners)):
        own, (blocks, members) = held[owners[arrived]], groups[owners[arrived]]
        own[arrived] = rows
        if len(own) == len(blocks):
            stored = torch.cat([own.pop(block) for block in blocks])
            for p in members:
                yield p, p.cut_rows(stored.T) if p.transposed else stored


@dataclass
class BaseParts:
    """Which part of every matrix is read, and the base's own: as much memory as that. Safe between
    threads."""

    base: Base
    share: float
    _matrices: dict[Key, tuple[torch.Tensor, float]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def parts(self) -> Mapping[Key, ReadPart]:
        """The part of every slot; a `BaseError` where the base, which has its shape, is closed."""
        return choose_parts(self.base.weights().placed, self.share)

    def matrix(self, key: Key) -> tuple[torch.Tensor, float]:
        """The base's part in its stored type, and its Frobenius norm; or a `BaseError`."""
        with self._lock:
            if self._matrices is None:
                try:
                    self._matrices = self._read()
                except BaseError:
                    if not self.base.kept.forget():
                        raise
                if self._matrices is None:  # outside: the error's frames hold what was read
                    self._matrices = self._read()
                self.base.say_what_was_kept()
            return self._matrices[key]

    def _read(self) -> dict[Key, tuple[torch.Tensor, float]]:
        base = self.base.weights()
        matrices: dict[Key, tuple[torch.Tensor, float]] = {}
        try:
            read = read_parts(base.checkpoint, base.placed.placements, self.parts)
            for placement, matrix in read:
                norm = frobenius(matrix)
                if flaw := flaw_of(norm, matrix):
                    raise ModelError("non-finite", f"tensor {placement.tensor!r} {flaw}")
                matrices[placement.key] = matrix, norm
        except ModelError as err:
            raise BaseError(f"base {self.base.name}: {err.reason}") from err
        return matrices


def _blocks(placement: Placement, part: ReadPart, ref: TensorRef) -> Iterator[RowBlock]:
    if placement.transposed != (part.axis == 1):
        line = f"tensor {placement.tensor!r} is stored the other way round than the base's"
        raise ModelError("layer-mismatch", f"{line}: index it without a budget")
    first = (placement.index or 0) * (ref.shape[-2] if len(ref.shape) > 2 else 0)
    if placement.transposed:
        yield RowBlock(placement.tensor, first + part.start, first + part.stop)
        return
    chosen = placement.row_numbers[part.start : part.stop]
    if chosen[-1] - chosen[0] + 1 == len(chosen):  # they rise
        yield RowBlock(placement.tensor, first + chosen[0], first + chosen[-1] + 1)
        return
    for _, run in groupby(enumerate(chosen), key=lambda pair: pair[1] - pair[0]):
        members = [row for _, row in run]
        yield RowBlock(placement.tensor, first + members[0], first + members[-1] + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBytes:
    """What of a model's files is read, by the base's own; 0 where the base is not open.
    `row_bytes`: of the rows that are read under a budget; `embedding_bytes`: of the input
    embedding; `header_bytes`: of the files beside their tensors."""

    share: float = 1.0
    base_bytes: int = 0
    layer_bytes: int = 0
    row_bytes: int = 0
    embedding_bytes: int = 0
    header_bytes: int = 0

    @classmethod
    def by(cls, base: BaseWeights | None, share: float, *, footprints: bool = False) -> WantedBytes:
        if base is None:
            return cls(share=share)
        tensors = sum(ref.stop - ref.start for ref in base.checkpoint.tensors.values())
        rows = layer_bytes(base, share) if share < 1 else 0
        embedding = find_embedding(base.checkpoint.tensors, base.config) if footprints else None
        of_it = 0 if embedding is None else round(share * (embedding.stop - embedding.start))
        total = base.checkpoint.bytes_total
        return cls(
            share=share,
            base_bytes=total,
            layer_bytes=layer_bytes(base),
            row_bytes=rows + of_it if rows else 0,
            embedding_bytes=of_it,
            header_bytes=max(0, total - tensors),
        )

    def of(self, kind: str, file_bytes: int) -> int:
        """Bytes that are read of an adapter or of a full checkpoint, of whose layers it is the same
        share as of the base's; one of unknown size is as large as the base."""
        if kind == "adapter":
            return file_bytes
        file_bytes = file_bytes or self.base_bytes
        if self.share == 1 or not self.base_bytes:
            return round(self.share * file_bytes)
        rows = self.row_bytes * file_bytes / self.base_bytes
        return min(file_bytes, round(self.header_bytes + rows))


LONGEST_REASON = 100
"""Characters of what torch says of a device."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cpu_count() -> int:
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
    """Threads in which torch and the libraries below it compute alone, from the first product on:
    `torch.set_num_threads` tells OpenMP and MKL of the calling thread only, and a new one would
    share its first products out, with other last bits from one run to the next."""
    return ThreadPoolExecutor(
        threads, thread_name_prefix=name, initializer=torch.set_num_threads, initargs=(1,)
    )


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, *, ahead: int = 0
) -> Iterator[Result]:
    """`function` of each item, in order, `threads` at a time; at most `ahead` items more than
    `threads` and one are held at any time."""
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
    """The device that `auto`, `cpu`, `cuda`, … stands for on this machine, or a `RequestError`."""
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
    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._open: dict[str, Checkpoint] = {}
        self._closed_bytes = 0
        self._lock = threading.Lock()

    def expect(self, sizes: Mapping[str, int]) -> None:
        with self._lock:
            self._expected.update(sizes)

    def opened(self, id: str, checkpoint: Checkpoint) -> None:
        with self._lock:
            self._open[id] = checkpoint

    def closed(self, id: str) -> None:
        with self._lock:
            self._expected.pop(id, None)
            if (checkpoint := self._open.pop(id, None)) is not None:
                self._closed_bytes += checkpoint.bytes_read

    def bytes(self) -> tuple[int, int]:
        with self._lock:
            now = {id: checkpoint.bytes_read for id, checkpoint in self._open.items()}
            rest = sum(self._expected.values())
            rest -= sum(min(n, self._expected.get(id, 0)) for id, n in now.items())
            return self._closed_bytes + sum(now.values()), rest


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob:
    """The base, the recipes, and how many matrices are compared where. `shapes`: (out, in) by slot,
    of the family's models, where they are enough to tell strangers; `stored`: however few they are;
    `parts`: what is read of every matrix under a budget; `verify`: read
    whole files also under a budget, and those again that were not verified; `footprints`: whether
    input embeddings are read; `lexicon`: the words to which updates answer; `originals`: models on
    disk of which others may be roundings."""

    base: Base
    wanted: Wanted = field(default_factory=lambda: Wanted(names=()))
    recipes: Sequence[Recipe] = ()
    layout: Layout = ()
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    threads: int = 1
    device: str = "cpu"
    parts: BaseParts | None = None
    verify: bool = False
    footprints: bool = False
    lexicon: LexiconOnce = field(default_factory=LexiconOnce)
    originals: Sequence[Member] = ()
    scratch: ScratchPool = field(default_factory=ScratchPool)
    meter: Meter = field(default_factory=Meter)

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which opens the base and counts threads for itself."""
        plain = ("wanted", "recipes", "layout", "shapes", "stored", "device", "verify")
        values = {name: getattr(self, name) for name in (*plain, "footprints")}
        return _job_elsewhere, (self.base, values)

    @property
    def session(self) -> HubSession:
        return self.base.session

    @property
    def plan(self) -> ReadPlan:
        """How much of a file is read, and how much one read of a remote one brings."""
        plan = WHOLE_TENSORS if self.parts is None else FEW_BYTES
        return replace(plan, whole=self.parts is None or self.verify)

    @property
    def wanted_bytes(self) -> WantedBytes:
        share = 1.0 if self.parts is None or self.verify else self.parts.share
        return WantedBytes.by(self.base.opened(), share, footprints=self.footprints)

    def bytes_read(self) -> tuple[int, int]:
        """Bytes of models and of a remote base that have come, and all that will have."""
        come, rest = self.meter.bytes()
        fetched = self.base.bytes_fetched
        of_base = self.wanted_bytes.of("full", 0) if fetched else 0
        return come + fetched, come + rest + max(fetched, of_base)


def _job_elsewhere(base: Base, plain: dict[str, Any]) -> IndexJob:
    parts = base_parts(base, plain["recipes"], verify=plain["verify"])
    return IndexJob(base=base, parts=parts, **plain)


def base_parts(base: Base, recipes: Sequence[Recipe], *, verify: bool = False) -> BaseParts | None:
    """What is read of every matrix under the recipes' budget, which all must share."""
    shares = {recipe.share for recipe in recipes}
    if shares == {1.0}:
        return None
    if len(shares) > 1:
        raise RequestError("one run reads one share: give --budget, and one recipe at a time")
    base.plan = replace(FEW_BYTES, whole=verify)
    return BaseParts(base, shares.pop())
