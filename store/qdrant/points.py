"""A collection of points, as Qdrant has it: a key, a vector and a payload each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xxhash

from ...arrays import Float32, Int64, UInt64

UPSERTED_AT_ONCE = 256
NUMBERS_AT_ONCE = 1 << 19
"""Points of a request, and numbers of their vectors: 10 MB of JSON; servers take 32 MB."""

IDS_AT_ONCE = 50_000
"""Keys of a filter that one request carries."""

HNSW_EF = 256
"""Points that a walk through the graph keeps; the default is 100."""

OVERSAMPLING = 2.0
"""Points that are found by bytes for each that is asked for; their vectors decide the order."""

DIGEST_DIGITS = 16
"""Of a vector's checksum in a payload: a number of 64 bits is none that JSON keeps."""

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point that was read. Equality is that of keys and payloads.

    Attributes:
        vector: None where it was not asked for.
    """

    key: int
    payload: Payload
    vector: Float32[np.ndarray, " dim"] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, key: int, record: Any, *, with_vector: bool) -> Point:
        """The point of an engine's record."""
        vector = np.array(record.vector, dtype=np.float32) if with_vector else None
        return cls(key=key, payload=record.payload or {}, vector=vector)


@runtime_checkable
class PointCollection(Protocol):
    """The points of one family, in a server or a folder. Threads may search it at once.

    Every method raises `EngineError` where the engine fails, and `StoreFull` where it has no space.

    Attributes:
        target: Where it is, for messages.
        dim: Numbers of its vectors; None while there is no such collection.
    """

    target: str
    dim: int | None

    def create(self, dim: int) -> None:
        """Make the collection, for inner products of vectors of that length."""
        ...

    def upsert(
        self,
        keys: Int64[np.ndarray, " models"],
        vectors: Float32[np.ndarray, "models dim"],
        payloads: Sequence[Payload],
    ) -> None:
        """Write points, in place of those of the same keys."""
        ...

    def delete(self, keys: Int64[np.ndarray, " models"]) -> None:
        """Remove the points of these keys, where they are there."""
        ...

    def page(self, first: int, n: int, *, with_vectors: bool) -> list[Point]:
        """Up to `n` points from key `first` on, by rising key."""
        ...

    def count(self) -> int:
        """How many points there are."""
        ...

    def nearest(
        self,
        query: Float32[np.ndarray, " dim"],
        n: int,
        allowed: Int64[np.ndarray, " allowed"] | None,
        *,
        is_exact: bool,
    ) -> tuple[Int64[np.ndarray, " found"], Float32[np.ndarray, " found"]]:
        """Keys and inner products of up to `n` points near a vector, the largest first."""
        ...

    def build(self) -> None:
        """Have the graph made for what was written, and wait until it is."""
        ...

    def seal(self) -> int | None:
        """Bring everything to the disk and note that it is complete; the bytes, where known."""
        ...

    def close(self) -> None: ...


def digests(vectors: Float32[np.ndarray, "models dim"]) -> UInt64[np.ndarray, " models"]:
    """A checksum of each vector's bytes."""
    rows = np.ascontiguousarray(vectors, "<f4")
    return np.array([xxhash.xxh3_64_intdigest(row.tobytes()) for row in rows], dtype=np.uint64)


def digests_of(page: Sequence[Point]) -> UInt64[np.ndarray, " points"]:
    """The checksums that the payloads of some points have; 0 for what is none."""
    return np.array([_number(point.payload.get("digest")) for point in page], dtype=np.uint64)


def keys_of(page: Sequence[Point]) -> Int64[np.ndarray, " points"]:
    """The keys of some points."""
    return np.array([point.key for point in page], dtype=np.int64)


def pages(collection: PointCollection, n: int, *, with_vectors: bool) -> Iterator[list[Point]]:
    """Every point of a collection, by rising key, up to `n` at a time."""
    first = 0
    while page := collection.page(first, n, with_vectors=with_vectors):
        yield page
        first = page[-1].key + 1


def _number(digest: object) -> int:
    try:
        return int(str(digest), 16) if len(str(digest)) == DIGEST_DIGITS else 0
    except ValueError:
        return 0
