"""Where exported vectors are, a collection of points, as Qdrant has it (a key, a vector and a
payload each), and candidates from it; from the catalog for the models that the export lacks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qs, quote, unquote, urlsplit

import numpy as np
import xxhash

from ...arrays import Bool, Float32, Int64, UInt64
from ...errors import EngineError, RequestError, StoreDamaged
from ..tables.outcomes import CLOSE, Fetch

log = logging.getLogger(__name__)

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


EXACT_UP_TO = 50_000
"""Points that are all compared with a query, as FAISS's are."""

MOST_MISSING = 20_000
"""Models that are compared in memory because the export lacks them: 160 MB of 2,048 numbers."""

READ_AT_ONCE = 4_096
"""Points of a page without vectors, and vectors of the catalog."""

COUNTED_AGAIN_AFTER_S = 30.0
"""After so long a search looks whether the collection still has as many points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which models of a family the engine answers for.

    Attributes:
        n_points: Of the collection, those of no model among them.
        exported: Keys of the models whose points hold the catalog's vectors, rising.
        missing, vectors: Keys, rising, and vectors of the others.
    """

    n_points: int
    exported: Int64[np.ndarray, " exported"]
    missing: Int64[np.ndarray, " missing"]
    vectors: Float32[np.ndarray, "missing dim"]


class ExportedPoints:
    """A collection, and what is known of its points. Threads share it."""

    def __init__(self, collection: PointCollection) -> None:
        self.collection = collection
        self._lock = threading.Lock()
        self._keys: Int64[np.ndarray, " points"] = np.zeros(0, dtype=np.int64)
        self._digests: UInt64[np.ndarray, " points"] = np.zeros(0, dtype=np.uint64)
        # of the points whose digest is that of the catalog's vector
        self._is_checked: Bool[np.ndarray, " points"] = np.zeros(0, dtype=np.bool_)

    def coverage(self, keys: Keys, dim: int, fetch: Fetch) -> Coverage:
        """Which of a family's models have a point with the vector that the catalog has; raises
        `EngineError` if the collection lacks too many of them."""
        with self._lock:
            self._read_points()
            unchecked = np.intersect1d(keys, self._keys[~self._is_checked])
            for start in range(0, len(unchecked), READ_AT_ONCE):
                present, vectors = fetch(unchecked[start : start + READ_AT_ONCE])
                places = np.searchsorted(self._keys, present)
                self._is_checked[places] = self._digests[places] == digests(vectors)
            exported = np.intersect1d(keys, self._keys[self._is_checked])
            n_points = len(self._keys)
        missing = np.setdiff1d(keys, exported)
        target = self.collection.target
        if len(missing) > MOST_MISSING:
            raise EngineError(
                f"{target} lacks {len(missing):,} of {len(keys):,} models: run "
                f"`deltadex export --to {target}`"
            )
        if len(missing):
            log.warning(
                "%d of %d models are not in %s and are compared in memory; "
                "run `deltadex export --to %s`",
                *(len(missing), len(keys), target, target),
            )
        missing, vectors = fetch(missing)
        return Coverage(
            n_points=n_points,
            exported=exported,
            missing=missing,
            vectors=vectors if len(missing) else np.zeros((0, dim), dtype=np.float32),
        )

    def _read_points(self) -> None:
        """Read the keys and digests of all points; what was checked stays so where it is equal."""
        read = [
            (keys_of(page), digests_of(page))
            for page in pages(self.collection, READ_AT_ONCE, with_vectors=False)
        ]
        keys = np.concatenate([self._keys[:0], *(keys for keys, _ in read)])
        values = np.concatenate([self._digests[:0], *(values for _, values in read)])
        is_checked = np.zeros(len(keys), dtype=np.bool_)
        _, now, before = np.intersect1d(keys, self._keys, return_indices=True)
        is_checked[now] = self._is_checked[before] & (values[now] == self._digests[before])
        self._keys, self._digests, self._is_checked = keys, values, is_checked


class QdrantIndex:
    """The candidates of a family, whose keys rise, from exported points, as of `SearchIndex`."""

    def __init__(self, points: ExportedPoints, keys: Keys, dim: int, fetch: Fetch) -> None:
        self.keys = keys
        self._points, self._dim, self._fetch = points, dim, fetch
        self._coverage = points.coverage(keys, dim, fetch)
        self._counted_at = time.monotonic()
        self._lock = threading.Lock()

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared with a query; else likely ones are."""
        return self._coverage.n_points <= EXACT_UP_TO

    def nearest(
        self, query: Vector, n: int, allowed: Keys | None = None
    ) -> Int64[np.ndarray, " candidates"]:
        """As of `SearchIndex`; of the models that the export lacks the `n` nearest too. Raises
        `EngineError` if the engine fails."""
        coverage = self._current()
        exported, missing = coverage.exported, coverage.missing
        parts: list[Int64[np.ndarray, " part"] | None] = [None]
        if allowed is not None:
            here = exported[_is_in(exported, allowed)]
            starts = range(0, len(here), IDS_AT_ONCE)
            parts = [here[start : start + IDS_AT_ONCE] for start in starts]
        collection = self._points.collection
        n_points = coverage.n_points
        found = [search_points(collection, exported, n_points, query, n, part) for part in parts]
        is_allowed = slice(None) if allowed is None else _is_in(missing, allowed)
        scores = coverage.vectors[is_allowed] @ query
        found.append((missing[is_allowed], scores))
        keys = np.concatenate([keys for keys, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        order = np.argsort(-scores, kind="stable")
        if len(order) > n:
            order = order[scores[order] >= scores[order[n - 1]] - CLOSE]
        return np.asarray(keys[order])

    def _current(self) -> Coverage:
        """What the collection holds; looked at again where its number of points changed."""
        with self._lock:
            if time.monotonic() - self._counted_at > COUNTED_AGAIN_AFTER_S:
                if self._points.collection.count() != self._coverage.n_points:
                    self._coverage = self._points.coverage(self.keys, self._dim, self._fetch)
                self._counted_at = time.monotonic()
            return self._coverage


def search_points(
    collection: PointCollection,
    exported: Int64[np.ndarray, " exported"],
    n_points: int,
    query: Vector,
    n: int,
    allowed: Keys | None = None,
) -> Found:
    """Keys and scores of about the `n` nearest points of models, and of those as good as the last;
    of some exported models alone, whose keys rise. Raises `StoreDamaged` if one is not finite."""
    n_there = n_points if allowed is None else len(allowed)
    is_exact, wanted = n_there <= EXACT_UP_TO, min(2 * n, n_there)
    while True:
        if not wanted:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        keys, scores = collection.nearest(query, wanted, allowed, is_exact=is_exact)
        if not np.isfinite(scores).all():
            raise StoreDamaged(f"{collection.target}: scores that are not finite")
        # points of models that are gone, or were indexed again since
        is_model = _is_in(keys, exported)
        keys, scores, n_found = keys[is_model], scores[is_model], len(keys)
        has_all_ties = len(keys) > n and (not is_exact or scores[-1] < scores[n - 1] - CLOSE)
        if has_all_ties or n_found < wanted or wanted == n_there:
            return keys, scores
        wanted = min(2 * wanted, n_there)


def _is_in(
    keys: Int64[np.ndarray, " keys"], rising: Int64[np.ndarray, " rising"]
) -> Bool[np.ndarray, " keys"]:
    """Which keys are among rising ones."""
    return np.asarray(np.append(rising, -1)[np.searchsorted(rising, keys)] == keys)


class ExportedFamilies:
    """The collections that searches of one open catalog use, by family and recipe."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], ExportedPoints] = {}

    def use(self, base: str, recipe: str, collection: PointCollection) -> None:
        """Take the candidates of a family from a collection."""
        self._points[base, recipe] = ExportedPoints(collection)

    def of(self, base: str, recipe: str) -> ExportedPoints | None:
        """A family's points; None where FAISS has its vectors."""
        return self._points.get((base, recipe))

    @property
    def targets(self) -> dict[tuple[str, str], str]:
        """Where the points are, by base and recipe."""
        return {family: points.collection.target for family, points in self._points.items()}

    def close(self) -> None:
        for points in self._points.values():
            points.collection.close()
        self._points.clear()
