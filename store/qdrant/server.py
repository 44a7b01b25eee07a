"""Points in a collection of a Qdrant server, by its client."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from ...errors import EngineError, RecipeMismatch, StoreError, StoreFull
from .index import (
    API_KEY,
    HNSW_EF,
    OVERSAMPLING,
    Found,
    Keys,
    Payload,
    Point,
    ServerTarget,
    Vector,
    Vectors,
)

T = TypeVar("T")

TIMEOUT_S = 30
"""Of one request."""

TRIES_AFTER_S = (0.5, 2.0)
"""Waits before a request is made again: every one of them may be made twice."""

SEARCHED_AGAIN_AFTER_S = (0.1,)
"""The same of a search, which somebody waits for."""

BUILT_WITHIN_S = 3600.0
"""How long the server's graph is waited for; a search before that is exact, and slower."""

INDEXED_FIELDS = ("base", "recipe", "model", "kind", "dataset", "author", "run")
"""Payload that users of the collection filter by."""

_AGAIN = (429, 502, 503, 504)


class ServerCollection:
    """A `PointCollection` of a server."""

    def __init__(self, client: QdrantClient, name: str, target: str) -> None:
        """Look at the collection; one that is not there is still to be made.

        Raises:
            EngineError: the server does not answer, or refuses the key.
            RecipeMismatch: the collection is not one of vectors for inner products.
        """
        self._client, self._name, self.target = client, name, target
        self.dim: int | None = None
        if self._ask(lambda: client.collection_exists(name)):
            self.dim = self._dim_of(self._info())

    @classmethod
    def at(cls, target: ServerTarget) -> ServerCollection:
        """The collection at an address, with the key of the environment; raises as `__init__`."""
        with warnings.catch_warnings():
            # of keys without TLS: our documentation says so
            warnings.simplefilter("ignore", UserWarning)
            client = QdrantClient(
                host=target.host,
                port=target.port,
                https=target.https,
                api_key=os.environ.get(API_KEY) or None,
                timeout=TIMEOUT_S,
                check_compatibility=False,
            )
        return cls(client, target.collection, str(target))

    def create(self, dim: int) -> None:
        vectors = models.VectorParams(size=dim, distance=models.Distance.DOT, on_disk=True)
        codes = models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        )
        self._ask(
            lambda: self._client.create_collection(
                self._name,
                vectors_config=vectors,
                quantization_config=codes,
                on_disk_payload=True,
            )
        )
        self.dim = dim
        with warnings.catch_warnings():
            # without a server they have no effect
            warnings.simplefilter("ignore", UserWarning)
            for field in INDEXED_FIELDS:
                self._ask(
                    lambda field=field: self._client.create_payload_index(  # type: ignore[misc]
                        self._name, field, models.PayloadSchemaType.KEYWORD
                    )
                )

    def upsert(self, keys: Keys, vectors: Vectors, payloads: Sequence[Payload]) -> None:
        rows = zip(keys.tolist(), vectors.tolist(), payloads, strict=True)
        points = [
            models.PointStruct(id=key, vector=vector, payload=dict(payload))
            for key, vector, payload in rows
        ]
        self._ask(lambda: self._client.upsert(self._name, points, wait=True))

    def delete(self, keys: Keys) -> None:
        ids = models.PointIdsList(points=keys.tolist())
        self._ask(lambda: self._client.delete(self._name, ids, wait=True))

    def page(self, first: int, n: int, *, with_vectors: bool) -> list[Point]:
        records, _ = self._ask(
            lambda: self._client.scroll(
                self._name, offset=first, limit=n, with_payload=True, with_vectors=with_vectors
            )
        )
        return [Point.of(self._key(record.id), record, with_vectors) for record in records]

    def count(self) -> int:
        return int(self._ask(lambda: self._client.count(self._name, exact=True)).count)

    def nearest(self, query: Vector, n: int, allowed: Keys | None, *, is_exact: bool) -> Found:
        of_these = None
        if allowed is not None:
            of_these = models.Filter(must=[models.HasIdCondition(has_id=allowed.tolist())])
        parameters = models.SearchParams(
            exact=is_exact,
            hnsw_ef=max(HNSW_EF, n),
            quantization=models.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING),
        )
        points = self._ask(
            lambda: self._client.query_points(
                self._name,
                query=query.tolist(),
                limit=n,
                query_filter=of_these,
                search_params=parameters,
                with_payload=False,
            ),
            SEARCHED_AGAIN_AFTER_S,
        ).points
        keys = np.array([self._key(point.id) for point in points], dtype=np.int64)
        return keys, np.array([point.score for point in points], dtype=np.float32)

    def build(self) -> None:
        given_up_at, wait = time.monotonic() + BUILT_WITHIN_S, 0.1
        while time.monotonic() < given_up_at:
            status = self._info().status
            if status == models.CollectionStatus.RED:
                raise EngineError(f"{self.target}: the server says that the collection is damaged")
            if status != models.CollectionStatus.YELLOW:
                return
            time.sleep(wait)
            wait = min(2 * wait, 5.0)

    def seal(self) -> int | None:
        return None

    def close(self) -> None:
        self._client.close()

    def _info(self) -> models.CollectionInfo:
        return self._ask(lambda: self._client.get_collection(self._name))

    def _dim_of(self, info: models.CollectionInfo) -> int:
        vectors = info.config.params.vectors
        if not isinstance(vectors, models.VectorParams) or vectors.distance != models.Distance.DOT:
            raise RecipeMismatch(
                f"{self.target}: not a collection that `deltadex export` made (its vectors are "
                "named, or not compared by inner product): give the name of another collection"
            )
        return int(vectors.size)

    def _key(self, id: object) -> int:
        if not isinstance(id, int):
            raise RecipeMismatch(
                f"{self.target}: has points whose ids are no numbers, as of another program: give "
                "the name of another collection"
            )
        return id

    def _ask(self, request: Callable[[], T], waits: Sequence[float] | None = None) -> T:
        """The server's answer; what may pass is waited for, what does not is one line."""
        for wait in (*(TRIES_AFTER_S if waits is None else waits), None):
            try:
                return request()
            except (UnexpectedResponse, ResponseHandlingException, QdrantException) as err:
                if wait is None or not _may_pass(err):
                    raise self._error(err) from err
                time.sleep(wait)
            except (ValueError, AssertionError) as err:
                # the client's checks of an answer that is none of Qdrant's
                raise self._error(err) from err
        raise AssertionError("the last try returns or raises")

    def _error(self, err: Exception) -> StoreError:
        if isinstance(err, (ResponseHandlingException, ValueError, AssertionError)):
            cause = type(getattr(err, "source", err)).__name__
            return EngineError(
                f"{self.target}: no usable answer ({cause}): check the address, and whether a "
                "Qdrant server listens there"
            )
        if not isinstance(err, UnexpectedResponse):
            line = str(err).splitlines()[0] if str(err) else type(err).__name__
            return EngineError(f"{self.target}: {_without_key(line)}")
        if err.status_code in (401, 403):
            return EngineError(
                f"{self.target}: the server refuses the key ({err.status_code}): set {API_KEY} in "
                "the environment"
            )
        if err.status_code == HTTPStatus.NOT_FOUND:
            return EngineError(
                f"{self.target}: no such collection: run `deltadex export --to {self.target}`"
            )
        line = _without_key(_said(err))
        if err.status_code == HTTPStatus.INSUFFICIENT_STORAGE or "No space left" in line:
            return StoreFull(f"{self.target}: the server has no space left ({line})")
        return EngineError(f"{self.target}: the server answers {err.status_code} ({line})")


def _may_pass(err: Exception) -> bool:
    if isinstance(err, UnexpectedResponse):
        return err.status_code in _AGAIN
    return isinstance(err, (ResponseHandlingException, QdrantException))


def _said(err: UnexpectedResponse) -> str:
    """The message of an answer, in one line."""
    try:
        text = str(err.structured()["status"]["error"])
    except (ValueError, KeyError, TypeError):
        text = err.reason_phrase or "no message"
    return " ".join(text.split())[:200]


def _without_key(line: str) -> str:
    key = os.environ.get(API_KEY)
    return line.replace(key, "…") if key else line
