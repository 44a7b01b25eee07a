"""Which weights a base has, told without reading them all."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
    folder = Path(base)
    if not folder.is_absolute():
        return cached_commit(run_session().cache_dir, base, "main")
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in ENDINGS and path.is_file():
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
            _take(path, digest)
    return digest.hexdigest()


def _take(path: Path, digest: hashlib._Hash) -> None:
    with path.open("rb") as file:
        digest.update(file.read(WHOLE_BYTES))
        size = path.stat().st_size
        for block in range(BLOCKS) if size > WHOLE_BYTES else ():
            file.seek(WHOLE_BYTES + (size - WHOLE_BYTES) * block // BLOCKS)
            digest.update(file.read(BLOCK_BYTES))
