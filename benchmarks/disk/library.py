"""The library of `calls.c`: compiled here, loaded before libc in processes that are watched."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("calls.c")
FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")


class Unavailable(Exception):
    """Calls cannot be watched on this machine; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A call that fails.

    Attributes:
        call: Its number among the recorded calls, from 1.
        error: The error's number.
        is_lasting: Later calls that take space fail too.
    """

    call: int
    error: int
    is_lasting: bool = False


def build(folder: Path) -> Path:
    """The library, compiled into a folder.

    Raises:
        Unavailable: no Linux, or no C compiler that works.
    """
    if sys.platform != "linux":
        raise Unavailable("calls are watched on Linux only")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Unavailable("no C compiler (cc) here")
    target = folder / "calls.so"
    command = [compiler, *FLAGS, "-o", str(target), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{SOURCE.name} does not compile here: {done.stderr.strip()[:300]}")
    return target


def begin(folder: Path, marks: Path, record: Path, fault: Fault | None = None) -> None:
    """Record this process's calls on the files of a folder from now on.

    Args:
        marks: A file; what is written to it is a mark in the record.
        record: Where the entries go.
    """
    library = ctypes.CDLL(None)
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    fails = (fault.call, fault.error, fault.is_lasting) if fault else (0, 0, False)
    library.disk_calls_begin.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_int,
    ]
    library.disk_calls_begin(os.fsencode(folder), os.fsencode(marks), file, *fails)
