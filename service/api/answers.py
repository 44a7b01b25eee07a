"""Answers: documents and files as bytes with an ETag, errors as problem documents (RFC 9457), and
what a service says of itself to language models."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from ... import errors
from ...questions.face.serving import HOW_TO_READ
from ...questions.face.worker import WorkerDied, WorkerFailed, WorkerOutOfMemory, WorkerTooSlow
from ...results import printable
from .catalog import Names
from .settings import PREFIX

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
    """A document, or its bytes, as an answer that no client may store."""
    content = document if isinstance(document, bytes) else encode(document)
    sent = {"Cache-Control": "no-cache", **(headers or {})}
    return Response(content, status, media_type=JSON, headers=sent)


@dataclass(frozen=True, slots=True)
class Packed:
    """The bytes of an answer, plain and compressed, and their ETag; a `stale` one is of an earlier
    state of the catalog."""

    plain: bytes
    packed: bytes | None
    etag: str
    media_type: str
    stale: bool = False

    @classmethod
    def of(cls, plain: bytes, media_type: str = JSON) -> Packed:
        """The bytes, packed where that saves something."""
        packed = gzip.compress(plain, 6, mtime=0) if len(plain) >= PACKED_FROM else None
        etag = f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"'
        return cls(plain, packed, etag, media_type)

    def response(self, request: Request) -> Response:
        """The answer to a request, empty where the client has these bytes already."""
        sent = {"ETag": self.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if self.stale:
            sent["Deltadex-Stale"] = "true"
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


log = logging.getLogger(__name__)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PROBLEM = "application/problem+json"
DEFECT = "a defect in deltadex; the server's log says more"
NO_PATTERN = "no id or name with a control character is asked about here"
NO_ENGINE = "the engine that gives candidates does not answer; the server's log says more"
_NOT_THERE = (errors.UnknownModel, errors.UnknownBase, errors.EmptyCatalog)
_BUSY = (WorkerTooSlow, WorkerDied, WorkerOutOfMemory)


class Problem(Exception):
    """An answer that is an error: status, code, sentence, headers."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, code, detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers = dict(headers or {})

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": printable(self.detail),
            "code": self.code,
        }

    def response(self) -> Response:
        document = encode(self.to_json())
        return Response(document, self.status, media_type=PROBLEM, headers=self.headers)


def as_problem(error: errors.DeltadexError, names: Names) -> Problem:
    """An error of ours as a client may read it."""
    text = names.problem_text(str(error))
    if isinstance(error, WorkerFailed):
        log.error("a defect in deltadex:\n%s", error)
        return Problem(500, "internal", DEFECT)
    if isinstance(error, errors.EngineError):
        # its message has an address or a path
        log.error("%s", error)
        return busy(NO_ENGINE, code="engine")
    if isinstance(error, errors.ModelError):
        return Problem(422, error.code, names.problem_text(error.reason))
    if isinstance(error, errors.StudyError):
        return Problem(422, "needs-base", text)
    if isinstance(error, _BUSY):
        return busy(text)
    if isinstance(error, errors.StoreError):
        return busy(text, code=errors.code_of(error))
    return Problem(404 if isinstance(error, _NOT_THERE) else 422, errors.code_of(error), text)


def busy(detail: str, seconds: int = 5, code: str = "busy") -> Problem:
    """A 503 that says when to ask again."""
    return Problem(503, code, detail, {"Retry-After": str(seconds)})


def stopping() -> Problem:
    """The 503 of a request that the end of the service cuts off."""
    return busy("the service is being stopped: send it again")


def invalid(faults: Sequence[Any], within: tuple[str, ...] = ()) -> Problem:
    """A 422 with what was wrong where, of the first few of pydantic's faults; never the value
    itself. `within`: the part of a request that their places are in, where these do not name it."""
    lines = []
    for fault in faults[:3]:
        place = (*within, *fault["loc"])
        said = NO_PATTERN if fault["type"] == "string_pattern_mismatch" else fault["msg"]
        lines.append(f"{'.'.join(map(str, place[1:])) or place[0]}: {said}")
    return Problem(422, "invalid", "; ".join(lines))


def install_problems(app: FastAPI) -> None:
    """Have the app answer every error as a problem document."""

    async def answer(request: Request, error: Exception) -> Response:
        match error:
            case Problem():
                problem = error
            case errors.DeltadexError():
                problem = as_problem(error, request.app.state.service.known_names())
            case RequestValidationError():
                problem = invalid(error.errors())
            case HTTPException(status_code=status, detail=detail, headers=headers):
                code = {404: "not-found", 405: "method-not-allowed"}.get(status, "invalid")
                problem = Problem(status, code, str(detail), headers)
            case _:
                problem = Problem(500, "internal", DEFECT)
        if problem.status == 405:
            problem.headers["Allow"] = _allowed_methods(request)
        return problem.response()

    for kind in (Problem, errors.DeltadexError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _allowed_methods(request: Request) -> str:
    """The methods of a request's path, as the header `Allow` lists them."""

    def matches(method: str) -> bool:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)

    return ", ".join(filter(matches, METHODS))


MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


_SCRIPTS = re.compile(r'(?:<script src="static/[\w.]+" defer></script>\n)+')
_NAME = re.compile(r'static/([\w.]+)"')
_ALL_SCRIPTS = "page.js"


class PageFiles:
    """Files by name, in memory; a name that is not among them is not looked for on the disk.

    The page's deferred scripts are one file: fifty requests take a browser a third of a second.
    """

    def __init__(self, *folders: Traversable) -> None:
        found = {
            file.name: file.read_bytes()
            for folder in folders
            for file in folder.iterdir()
            if PurePosixPath(file.name).suffix in MEDIA_TYPES and file.is_file()
        }
        page = found.get("index.html", b"").decode("utf-8")
        if names := [name for part in _SCRIPTS.findall(page) for name in _NAME.findall(part)]:
            found[_ALL_SCRIPTS] = b"".join(map(found.__getitem__, names))
            one = f'<script src="static/{_ALL_SCRIPTS}" defer></script>\n'
            found["index.html"] = _SCRIPTS.sub(one, page).encode("utf-8")
        self._files = {
            name: Packed.of(content, MEDIA_TYPES[PurePosixPath(name).suffix])
            for name, content in found.items()
        }

    def answer(self, name: str, request: Request) -> Response:
        if name not in self._files:
            raise Problem(404, "not-found", "no such file; the API is under /api/v1")
        return self._files[name].response(request)


ABOUT = f"""# deltadex

> A vector database of fine-tuned models: it finds models that were trained on the same data, by
> what changed in their weights. This is a service over one catalog.

{HOW_TO_READ}
Models are named by their ids, letter by letter; `base` is needed only if there are several
families. 202 means: ask again after `Retry-After` seconds. `deltadex mcp --url` serves the same to
assistants, and `deltadex.connect(url)` to Python.

## Documents

- [OpenAPI](api/v1/openapi.json): every request, answer and limit
- [Requests](api/v1/docs): the same as a page
- [Families](api/v1/families): what this catalog holds

## Requests

"""


def llms_txt(document: Mapping[str, Any]) -> str:
    """The requests of an OpenAPI document, a line for each, below what deltadex is."""
    text = ABOUT
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
            query = f"?{'&'.join(f'{name}=' for name in names)}" if names else ""
            says = operation["description"].split("\n\n")[0].replace("\n", " ").rstrip(".")
            token = "; with the token" if "security" in operation else ""
            text += (
                f"- `{method.upper()} {path.removeprefix(f'{PREFIX}/')}{query}`: {says}{token}\n"
            )
    return text
