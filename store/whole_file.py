"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreFull


def write_whole(target: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one.

    Raises:
        StoreFull: the system refuses.
    """
    with whole(target) as temporary:
        temporary.write_bytes(data)


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A file to write that takes the place of `target` once it is complete and on the disk.

    Raises:
        StoreFull: the system refuses.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as err:
        raise StoreFull(f"{target}: {err.strerror}") from err
    finally:
        temporary.unlink(missing_ok=True)
