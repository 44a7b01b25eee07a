"""How a process is set up that answers many small questions at once."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

KEPT_BYTES = 1 << 30
"""Memory that is given back to the system only beyond this: a search needs tens of megabytes for
some milliseconds, and mapping them anew each time costs more than the search."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt(3)."""

SWITCH_S = 0.0005
"""How long a thread that computes in Python may keep the others waiting. Answers are made in many
short steps between which the interpreter is given away; at Python's own 5 ms half of their time
goes into waiting to get it back."""


def set_up_process() -> None:
    """Have threads take turns quickly, and freed memory used again."""
    sys.setswitchinterval(SWITCH_S)
    _keep_memory()


def _keep_memory() -> None:
    """Have freed memory used again instead of given back, where the C library can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES // 2)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def rest_from_collecting() -> None:
    """Leave what is there now out of every collection of garbage: names of all models are."""
    gc.collect()
    gc.freeze()


def collect_again() -> None:
    """Undo it, for the process to end in order."""
    gc.unfreeze()
