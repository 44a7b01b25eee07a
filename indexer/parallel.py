"""Where matrices are computed: the device, and threads side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from ..errors import RequestError

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
    """The devices that torch finds, as a list for people."""
    graphics = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *graphics, *["mps"] * torch.backends.mps.is_available()])
