"""Documents as bytes: JSON without NaN, compressed once, with an ETag of the content."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

JSON = "application/json"
PACKED_FROM = 1024
"""Bytes below which packing saves nothing."""


def encode(document: Any) -> bytes:
    """A document as JSON; what is not a finite number is null."""
    try:
        return _dumps(document)
    except ValueError:
        return _dumps(_finite(document))


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document as an answer that no client may store."""
    sent = {"Cache-Control": "no-cache", **(headers or {})}
    return Response(encode(document), status, media_type=JSON, headers=sent)


def computing(
    waited_s: float, *, job: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """A 202 that says when to ask again."""
    after = max(1, min(5, round(waited_s)))
    document = {"status": "computing", "retry_after_s": after} | ({"job": job} if job else {})
    return reply(document, 202, {"Retry-After": str(after), **(headers or {})})


@dataclass(frozen=True, slots=True)
class Packed:
    """The bytes of an answer, plain and compressed, and their ETag."""

    plain: bytes
    packed: bytes | None
    etag: str
    media_type: str

    @classmethod
    def of(cls, plain: bytes, media_type: str = JSON) -> Packed:
        """The bytes, packed where that saves something."""
        packed = gzip.compress(plain, 6, mtime=0) if len(plain) >= PACKED_FROM else None
        etag = f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"'
        return cls(plain, packed, etag, media_type)

    def response(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """The answer to a request, empty where the client has these bytes already."""
        sent = {"ETag": self.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        sent |= dict(headers or {})
        known = request.headers.get("if-none-match", "")
        if self.etag in (tag.strip() for tag in known.split(",")):
            return Response(status_code=304, headers=sent)
        body = self.plain
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body = self.packed
            sent["Content-Encoding"] = "gzip"
        return Response(body, media_type=self.media_type, headers=sent)


def _dumps(document: Any) -> bytes:
    text = json.dumps(
        document, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    # a name of a file may hold bytes that are no text
    return text.encode("utf-8", "backslashreplace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
