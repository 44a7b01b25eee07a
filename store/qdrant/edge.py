"""Points in a folder of Qdrant Edge, the engine of Qdrant within this process.

The engine maps its files into memory: where the disk is full, or a file shorter than it was, the
system ends the process at an access (SIGBUS). So space is asked for before it is written, and the
files of a complete export are compared with the sizes and checksums that the note beside them has.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as engine
import xxhash
from filelock import FileLock, Timeout

from ...errors import EngineError, StoreError, StoreFull
from ...results import size
from ..files import make_folder, refused_as, write_atomically
from .index import HNSW_EF, OVERSAMPLING, Found, Keys, Payload, Point, Vector, Vectors

NOTE = "deltadex.json"
FORMAT = 1
LOCK = "deltadex.lock"
SEGMENTS, UNFINISHED = "segments", "temp_segments"
OWN_NAMES = (SEGMENTS, UNFINISHED, "wal", "edge_config.json")

SPARE_BYTES = 256 << 20
"""Free space below which nothing is written: a log's segment has 32 MB, a page of payloads too."""

GRAPH_SHARE = 1.6
"""Bytes of an optimised copy for each byte of a vector: the vector, its code and its links."""

HNSW_LINKS, HNSW_EF_CONSTRUCT, FULL_SCAN_KB = 16, 100, 10_000
"""Qdrant's defaults."""


class EdgeCollection:
    """A `PointCollection` in a folder. One process has it open at a time."""

    def __init__(self, folder: Path) -> None:
        """Open the folder; a folder that is empty or not there is a collection still to be made.
        Raises `EngineError` if its files are damaged, not ours, or another process has it open."""
        self.target, self._folder = f"edge:{folder}", folder
        self.dim: int | None = None
        self._shard: engine.EdgeShard | None = None
        # whichever thread closes it
        self._lock = FileLock(folder / LOCK, thread_local=False)
        note = self._note()
        if note is None:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise EngineError(
                    f"{self.target}: not a folder of vectors that `deltadex export` wrote; "
                    "give a new or empty folder"
                )
            return
        self._claim()
        try:
            self._load(note)
        except BaseException:
            self._lock.release()
            raise

    def _load(self, note: dict[str, Any]) -> None:
        if note["state"] == "creating":
            with self._guarded():
                self._remove(*OWN_NAMES, NOTE)
            return
        if note["state"] == "complete":
            self._check_files(note["files"])
        with self._guarded():
            # of a graph whose making was killed: the engine leaves them
            self._remove(UNFINISHED)
            self._shard = engine.EdgeShard.load(str(self._folder))
        self._state, self.dim = note["state"], int(note["dim"])

    def create(self, dim: int) -> None:
        make_folder(self._folder)
        self._claim()
        self._check_space(0)
        self.dim = dim
        self._write_note("creating")
        config = engine.EdgeConfig(
            vectors=engine.EdgeVectorParams(
                size=dim,
                distance=engine.Distance.Dot,
                on_disk=True,
                quantization_config=engine.ScalarQuantizationConfig(
                    engine.ScalarType.Int8, always_ram=True
                ),
            ),
            hnsw_config=engine.HnswIndexConfig(
                m=HNSW_LINKS, ef_construct=HNSW_EF_CONSTRUCT, full_scan_threshold=FULL_SCAN_KB
            ),
        )
        with self._guarded():
            self._shard = engine.EdgeShard.create(str(self._folder), config)
        self._write_note("writing")

    def upsert(self, keys: Keys, vectors: Vectors, payloads: Sequence[Payload]) -> None:
        self._begin_writing(vectors.nbytes)
        rows = zip(keys.tolist(), vectors.tolist(), payloads, strict=True)
        points = [engine.Point(key, vector, dict(payload)) for key, vector, payload in rows]
        with self._guarded():
            self._open.update(engine.UpdateOperation.upsert_points(points))

    def delete(self, keys: Keys) -> None:
        self._begin_writing(0)
        with self._guarded():
            self._open.update(engine.UpdateOperation.delete_points(keys.tolist()))

    def page(self, first: int, n: int, *, with_vectors: bool) -> list[Point]:
        request = engine.ScrollRequest(
            offset=first, limit=n, with_payload=True, with_vector=with_vectors
        )
        with self._guarded():
            records, _ = self._open.scroll(request)
            return [Point.of(_key(record.id), record, with_vectors) for record in records]

    def count(self) -> int:
        with self._guarded():
            return self._open.count(engine.CountRequest(exact=True))

    def nearest(self, query: Vector, n: int, allowed: Keys | None, *, is_exact: bool) -> Found:
        of_these = None
        if allowed is not None:
            of_these = engine.Filter(must=[engine.HasIdCondition(set(allowed.tolist()))])
        request = engine.QueryRequest(
            limit=n,
            query=engine.Query.Nearest(query.tolist()),
            filter=of_these,
            params=engine.SearchParams(
                exact=is_exact,
                hnsw_ef=max(HNSW_EF, n),
                quantization=engine.QuantizationSearchParams(
                    rescore=True, oversampling=OVERSAMPLING
                ),
            ),
        )
        with self._guarded():
            points = self._open.query(request)
        keys = np.array([_key(point.id) for point in points], dtype=np.int64)
        return keys, np.array([point.score for point in points], dtype=np.float32)

    def build(self) -> None:
        if self._state == "complete":
            return
        assert self.dim is not None
        self._check_space(int(GRAPH_SHARE * self.count() * self.dim * 4))
        with self._guarded():
            self._open.flush()
            self._open.optimize()

    def seal(self) -> int:
        with self._guarded():
            if self._state != "complete":
                self._open.flush()
                self._open.close()
                # which applies and removes the journals of payloads: from then on nothing changes
                self._shard = engine.EdgeShard.load(str(self._folder))
                self._write_note("complete")
            files = (path for path in self._folder.rglob("*") if path.is_file())
            return sum(_disk_bytes(path) for path in files)

    def close(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            with self._guarded():
                shard.close()
        self._lock.release()

    @property
    def _open(self) -> engine.EdgeShard:
        if self._shard is None:
            raise EngineError(f"{self.target}: holds nothing, or was closed")
        return self._shard

    def _begin_writing(self, n_bytes: int) -> None:
        self._check_space(n_bytes)
        if self._state == "complete":
            self._write_note("writing")

    def _check_space(self, n_bytes: int) -> None:
        free, needed = shutil.disk_usage(self._folder).free, n_bytes + SPARE_BYTES
        if free < needed:
            raise StoreFull(
                f"{self.target}: the disk has {size(free)} free, and {size(needed)} are "
                "needed; free some and run the same command again"
            )

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What the engine raises, as errors of ours; its panics are no `Exception`."""
        try:
            yield
        except StoreError:
            raise
        except BaseException as err:
            is_panic = type(err).__name__ == "PanicException"
            if not is_panic and not isinstance(err, Exception):
                raise
            if "No space left" in str(err) or "StorageFull" in str(err):
                raise StoreFull(f"{self.target}: no space left on the disk") from err
            lines = str(err).splitlines()
            line = lines[0].removeprefix("Service runtime error: ")[:200] if lines else "no message"
            raise EngineError(
                f"{self.target}: the engine cannot read or write it ({line}): remove the folder "
                "and run `deltadex export` again"
            ) from err

    def _note(self) -> dict[str, Any] | None:
        path = self._folder / NOTE
        try:
            note = json.loads(path.read_text("utf-8"))
            is_ours = note["format"] == FORMAT and {"state", "dim", "files"} <= set(note)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as err:
            raise EngineError(f"{path}: {err.strerror}") from err
        except (ValueError, KeyError, TypeError):
            is_ours = False
        if not is_ours:
            raise EngineError(
                f"{path}: damaged, or of another version of deltadex: remove the folder and run "
                "`deltadex export` again"
            )
        return dict(note)

    def _write_note(self, state: str) -> None:
        files = _checksums(self._folder) if state == "complete" else {}
        note = {"format": FORMAT, "dim": self.dim, "state": state, "files": files}
        write_atomically(self._folder / NOTE, json.dumps(note).encode())
        self._state = state

    def _check_files(self, noted: dict[str, list[Any]]) -> None:
        with refused_as(EngineError, self.target):
            here = _checksums(self._folder)
        if here != noted:
            name = min(name for name in {*here, *noted} if here.get(name) != noted.get(name))
            raise EngineError(
                f"{self.target}: {name} is damaged or missing, or was changed by another program: "
                "remove the folder and run `deltadex export` again"
            )

    def _claim(self) -> None:
        """Keep other processes out until `close`."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise EngineError(
                f"{self.target}: another process has it open; stop that one first"
            ) from None
        except OSError as err:
            raise EngineError(f"{self._folder / LOCK}: {err.strerror}") from err

    def _remove(self, *names: str) -> None:
        for name in names:
            path = self._folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _checksums(folder: Path) -> dict[str, list[Any]]:
    """Bytes and checksum of every file of the engine's segments, by path within the folder."""
    files = sorted(path for path in (folder / SEGMENTS).rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, _checksum(path)]
        for path in files
    }


def _checksum(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, xxhash.xxh3_64).hexdigest()


def _disk_bytes(path: Path) -> int:
    """Bytes that a file takes on the disk: the engine's files have holes."""
    status = path.stat()
    return getattr(status, "st_blocks", -(-status.st_size // 512)) * 512


def _key(id: object) -> int:
    if not isinstance(id, int):
        raise EngineError(f"a point has the id {str(id)[:40]!r}, which no model has")
    return id
