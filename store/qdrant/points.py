"""Where exported vectors are, and a collection of points, as Qdrant has it: a key, a vector and a
payload each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qs, quote, unquote, urlsplit

import numpy as np
import xxhash

from ...arrays import Float32, Int64, UInt64
from ...errors import RequestError

DEFAULT_PORT = 6333
API_KEY = "QDRANT_API_KEY"
"""The environment variable of the API key: an address is printed and noted, a key is not."""

FORMS = "edge:DIR or qdrant://HOST[:PORT]/COLLECTION[?https=1]"
_MAX_NAME = 255
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True, slots=True)
class EdgeTarget:
    """A folder that Qdrant Edge, the engine within this process, reads and writes."""

    folder: Path

    def __str__(self) -> str:
        return f"edge:{self.folder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTarget:
    """A collection of a server."""

    host: str
    port: int
    collection: str
    https: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        ending = "?https=1" if self.https else ""
        return f"qdrant://{host}:{self.port}/{quote(self.collection, safe='')}{ending}"


Target = EdgeTarget | ServerTarget


def is_target(text: str) -> bool:
    """Whether a text is meant as a target."""
    return text.startswith(("edge:", "qdrant:"))


def parse_target(text: str) -> Target:
    """The target that a text names; raises `RequestError` if it names none; the message does not
    repeat a text that may hold a key."""
    if text.startswith("edge:"):
        folder = text.removeprefix("edge:")
        if not folder:
            raise RequestError("edge: needs a folder: edge:DIR")
        return EdgeTarget(Path(folder).expanduser().absolute())
    if not text.startswith("qdrant://"):
        raise RequestError(f"not a target of vectors: give {FORMS}")
    if "@" in text:
        raise RequestError(
            f"the address of a Qdrant server holds no key: set {API_KEY} in the environment"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise RequestError(f"not the address of a collection: give {FORMS}") from None
    collection = unquote(parts.path.strip("/"))
    if not host or not collection or "/" in collection or collection in (".", ".."):
        raise RequestError(f"the address needs a host and a collection: {FORMS}")
    if len(collection) > _MAX_NAME or not collection.isprintable():
        raise RequestError(
            f"a collection's name has up to {_MAX_NAME} printable characters: give another one"
        )
    unknown = set(options) - {"https"}
    https = options.get("https", ["0"])[-1].lower()
    if unknown or parts.fragment or https not in (*_YES, *_NO):
        raise RequestError(
            f"the only option of a Qdrant address is https=1; the key is in {API_KEY}"
        )
    return ServerTarget(host=host, port=port, collection=collection, https=https in _YES)


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
Keys = Int64[np.ndarray, " models"]
Vector = Float32[np.ndarray, " dim"]
Vectors = Float32[np.ndarray, "models dim"]
Found = tuple[Int64[np.ndarray, " found"], Float32[np.ndarray, " found"]]
"""Keys and their inner products with a query, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point that was read, without its vector where that was not asked for. Equality is that of
    keys and payloads."""

    key: int
    payload: Payload
    vector: Vector | None = field(default=None, compare=False)

    @classmethod
    def of(cls, key: int, record: Any, with_vector: bool) -> Point:
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

    def upsert(self, keys: Keys, vectors: Vectors, payloads: Sequence[Payload]) -> None:
        """Write points, in place of those of the same keys."""

    def delete(self, keys: Keys) -> None:
        """Remove the points of these keys, where they are there."""

    def page(self, first: int, n: int, *, with_vectors: bool) -> list[Point]:
        """Up to `n` points from key `first` on, by rising key."""

    def count(self) -> int:
        """How many points there are."""

    def nearest(self, query: Vector, n: int, allowed: Keys | None, *, is_exact: bool) -> Found:
        """Keys and inner products of up to `n` points near a vector, the largest first."""

    def build(self) -> None:
        """Have the graph made for what was written, and wait until it is."""

    def seal(self) -> int | None:
        """Bring everything to the disk and note that it is complete; the bytes, where known."""

    def close(self) -> None: ...


def digests(vectors: Vectors) -> UInt64[np.ndarray, " models"]:
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
