"""An adapter's folder as PEFT loads it: its settings, and a folder that is written whole."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from ...errors import RequestError, StoreFull
from ...store import abandoned

WEIGHTS, SETTINGS, CARD = "adapter_model.safetensors", "adapter_config.json", "README.md"

PREFIX = "base_model.model."
"""What PEFT puts before the names of the model that it wraps."""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def rank_pattern(ranks: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """The usual rank of some modules, and as `rank_pattern` those of the others."""
    usual = max(sorted(set(ranks.values())), key=list(ranks.values()).count)
    # the pattern that fits first counts, and fits every path that ends so
    longest = sorted(ranks, key=lambda module: (-len(module), module))
    others = tuple(module for module in longest if ranks[module] != usual)
    ends = tuple(f".{module}" for module in others)
    return usual, {m: ranks[m] for m in longest if m in others or m.endswith(ends)}


@contextmanager
def new_folder(target: Path, *, replaces: bool) -> Iterator[Path]:
    """A folder to write, which is `target` once the block ended well, and gone if not. `replaces`:
    the adapter that is there; its other files stay.

    Raises:
        RequestError: something is there already, or the folder above is not.
        StoreFull: the system refuses.
    """
    place = Path(os.path.abspath(target.expanduser()))
    with _refused(target):
        _require_room(place, target, replaces=replaces)
        name = f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.partial"
        partial = place.with_name(name)
        for left in abandoned(place.parent, place.name):
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            for file in partial.iterdir():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            if place.is_dir() and any(place.iterdir()):
                for file in sorted(partial.iterdir(), key=lambda file: file.name == SETTINGS):
                    os.replace(file, place / file.name)
            else:
                os.replace(partial, place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _refused(target: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as err:
        raise StoreFull(f"{target}: {err}; nothing was written") from err
    except OSError as err:
        reason = os.strerror(err.errno) if err.errno else str(err)
        more = "; nothing was written" if err.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StoreFull(f"{target}: {reason}{more}") from err


def _require_room(place: Path, target: Path, *, replaces: bool) -> None:
    if not place.parent.is_dir():
        raise RequestError(f"{target.parent}: no such folder; make it first")
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise RequestError(f"{target}: a file is there already; name a folder")
    files = os.listdir(place)
    if files and not (replaces and SETTINGS in files):
        way = "--force replaces no folder without an adapter_config.json" if replaces else ""
        raise RequestError(f"{target}: not empty; {way or '--force replaces the adapter in it'}")
