"""Points (a key, a vector and a payload each) in a collection of a Qdrant server; only this module
imports its client, when one is used."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

import numpy as np

from ...arrays import Float32, Int64
from ...errors import EngineError, RecipeMismatch, RequestError, StoreError, StoreFull

DEFAULT_PORT, MOST_PORT = 6333, 65_535
API_KEY = "QDRANT_API_KEY"
"""The environment variable of the API key: an address is printed and noted, a key is not."""

Payload = Mapping[str, Any]
Keys = Int64[np.ndarray, " models"]
Some = Int64[np.ndarray, " _"]
"""Keys of some models, of any number."""

Vector = Float32[np.ndarray, " dim"]
Vectors = Float32[np.ndarray, "models dim"]
Found = tuple[Int64[np.ndarray, " found"], Float32[np.ndarray, " found"]]
"""Keys and their inner products with a query, the largest first."""

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_S = 30
"""Of one request."""

HNSW_EF = 256
"""Points that a walk through the graph keeps; the default is 100."""

OVERSAMPLING = 2.0
"""Points that are found by bytes for each that is asked for; their vectors decide the order."""


def parse_target(target: str) -> tuple[str, str]:
    """The address of the server, and the name of the collection; raises `RequestError` if a target
    names none; the message does not repeat a text that may hold a key."""
    form = "qdrant://HOST[:PORT]/COLLECTION[?https=1]"
    if "@" in target:
        raise RequestError(f"no key in an address: give {form}, and the key in {API_KEY}")
    host = r"([\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?"
    parts = re.fullmatch(rf"qdrant://{host}/([^/?#]+)/?(\?https=[01])?", target)
    if not parts or int(parts[2] or 0) > MOST_PORT or not unquote(parts[3]).isprintable():
        raise RequestError(f"not the address of a collection: give {form}")
    scheme = "https" if parts[4] == "?https=1" else "http"
    return f"{scheme}://{parts[1]}:{parts[2] or DEFAULT_PORT}", unquote(parts[3])


class PointCollection:
    """The points of one family in a collection of a server. Threads may search it at once.

    Every method raises `EngineError` where the server fails, and `StoreFull` where it has no space.
    """

    def __init__(self, target: str) -> None:
        """Look at the collection, with the key of the environment; there may be none yet. Raises
        `RequestError` if a target names none, or Qdrant's client is not installed."""
        try:
            from qdrant_client import QdrantClient
        except ModuleNotFoundError as err:
            raise RequestError("this needs qdrant-client: pip install 'deltadex[qdrant]'") from err
        self.target = target
        url, self._name = parse_target(target)
        key = os.environ.get(API_KEY) or None
        with warnings.catch_warnings(action="ignore"):
            # of keys without TLS: our documentation says so
            self._client = QdrantClient(
                url, api_key=key, timeout=TIMEOUT_S, check_compatibility=False
            )
        self.exists = self._ask(self._client.collection_exists, self._name)

    def create(self, dim: int) -> None:
        """Make the collection, for inner products of vectors of that length."""
        from qdrant_client import models

        codes = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        self._ask(
            self._client.create_collection,
            self._name,
            models.VectorParams(size=dim, distance=models.Distance.DOT, on_disk=True),
            quantization_config=models.ScalarQuantization(scalar=codes),
        )
        self.exists = True

    def upsert(self, keys: Keys, vectors: Vectors, payloads: Sequence[Payload]) -> None:
        """Write points, in place of those of the same keys."""
        from qdrant_client import models

        points = [
            models.PointStruct(id=key, vector=vector, payload=dict(payload))
            for key, vector, payload in zip(keys.tolist(), vectors.tolist(), payloads, strict=True)
        ]
        self._ask(self._client.upsert, self._name, points)

    def delete(self, keys: Keys) -> None:
        """Remove the points of these keys, where they are there."""
        self._ask(self._client.delete, self._name, keys.tolist())

    def family(self) -> tuple[str, str] | None:
        """Base and recipe of the points; None where there are none."""
        for payload in next(self.pages(1)).values() if self.exists else ():
            return str(payload["base"]), str(payload["recipe"])
        return None

    def pages(self, n: int) -> Iterator[dict[Any, Payload]]:
        """The payload of every point, by rising key, up to `n` at a time. Raises `RecipeMismatch`
        if one is of another program."""
        first: Any = 0
        while first is not None:
            records, first = self._ask(self._client.scroll, self._name, offset=first, limit=n)
            page: dict[Any, Payload] = {record.id: record.payload or {} for record in records}
            if not all({"base", "recipe", "digest"} <= set(payload) for payload in page.values()):
                raise RecipeMismatch(f"{self.target} holds points of another program: name another")
            yield page

    def count(self, *, is_exact: bool) -> int:
        """How many points there are; Qdrant's estimate, without a filter, reads none of them."""
        return self._ask(self._client.count, self._name, exact=is_exact).count

    def nearest(self, query: Vector, n: int, allowed: Keys | None, *, is_exact: bool) -> Found:
        """Keys and inner products of up to `n` points near a vector, the largest first."""
        from qdrant_client import models

        these = None
        if allowed is not None:
            these = models.Filter(must=[models.HasIdCondition(has_id=allowed.tolist())])
        codes = models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
        how = models.SearchParams(exact=is_exact, hnsw_ef=max(HNSW_EF, n), quantization=codes)
        points = self._ask(
            self._client.query_points,
            self._name,
            query.tolist(),
            limit=n,
            query_filter=these,
            search_params=how,
            with_payload=False,
        ).points
        keys = np.array([point.id for point in points], dtype=np.int64)
        return keys, np.array([point.score for point in points], dtype=np.float32)

    def close(self) -> None:
        self._client.close()

    def _ask(self, request: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

        try:
            return request(*given, **named)
        except UnexpectedResponse as err:
            raise self._refusal(err) from err
        except (ApiException, QdrantException, ValueError, AssertionError) as err:
            # the last two: the client's checks of an answer that is none of Qdrant's
            raise EngineError(
                f"{self.target}: no usable answer ({type(getattr(err, 'source', err)).__name__}): "
                "check the address, and whether a Qdrant server listens there"
            ) from err

    def _refusal(self, err: Any) -> StoreError:
        """The server's answer in one line, without the key."""
        try:
            text = str(err.structured()["status"]["error"])
        except (ValueError, KeyError, TypeError):
            text = err.reason_phrase
        line = " ".join(text.replace(os.environ.get(API_KEY) or "\0", "…").split())[:200]
        if err.status_code == HTTPStatus.INSUFFICIENT_STORAGE or "No space left" in line:
            return StoreFull(f"{self.target}: the server has no space left ({line})")
        is_refused = err.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        remedy = f": set {API_KEY} in the environment" if is_refused else ""
        return EngineError(f"{self.target}: the server answers {err.status_code} ({line}){remedy}")
