"""How a process is set up that answers many small questions at once."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

HEAP_BYTES = 1 << 30
"""Memory that is given back to the system only beyond this: a search needs tens of megabytes for
some milliseconds, and mapping them anew each time costs more than the search."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt(3)."""

SWITCH_S = 0.0005
"""How long a thread that computes in Python may keep the others waiting. Answers are made in many
short steps between which the interpreter is given away; at Python's own 5 ms half of their time
goes into waiting to get it back."""


def set_up_process() -> None:
    """Have threads take turns quickly, and freed memory used again where the C library can."""
    sys.setswitchinterval(SWITCH_S)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, HEAP_BYTES // 2)
        mallopt(M_TRIM_THRESHOLD, HEAP_BYTES)


def rest_from_collecting() -> None:
    """Exclude the present objects from garbage collection, such as the names of all models."""
    gc.collect()
    gc.freeze()


def collect_again() -> None:
    """Undo `rest_from_collecting`, so that the process ends in order."""
    gc.unfreeze()
