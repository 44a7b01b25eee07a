"""Which weights a base has, told without reading them all."""

from __future__ import annotations

import hashlib
from contextlib import closing, suppress
from pathlib import Path

from ..errors import ModelError
from .checkpoint.files import LocalFile, ModelFolder
from .hub import cached_commit, run_session

WHOLE_BYTES = 1 << 20
"""Files up to this size are read whole; of larger ones `BLOCKS` blocks, evenly spaced."""

BLOCKS, BLOCK_BYTES = 4096, 256
ENDINGS = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja")
"""Of settings, weights and vocabularies."""


def base_version(base: str) -> str | None:
    """A hash of a folder's files, or the commit of a Hub id in this machine's cache; None without.

    Reads at most 2 MiB of a file: a fine-tune of the weights changes it, a change of a few numbers
    may not.
    """
    path = Path(base)
    if not path.is_absolute():
        return cached_commit(run_session().cache_dir, base, "main")
    if not path.is_dir():
        return None
    folder, digest = ModelFolder.at(path), hashlib.sha256()
    for name in sorted(folder.names()):
        # a file that cannot be opened is said when the base is loaded
        with suppress(ModelError, OSError):
            if name.endswith(ENDINGS):
                _take(folder.source(name), digest)
    return digest.hexdigest()


def _take(file: LocalFile, digest: hashlib._Hash) -> None:
    with closing(file):
        size = file.size
        digest.update(f"{file.name}\0{size}\0".encode("utf-8", "replace"))
        digest.update(file.read(0, min(size, WHOLE_BYTES)))
        for block in range(BLOCKS) if size > WHOLE_BYTES else ():
            start = WHOLE_BYTES + (size - WHOLE_BYTES) * block // BLOCKS
            digest.update(file.read(start, min(size, start + BLOCK_BYTES)))
