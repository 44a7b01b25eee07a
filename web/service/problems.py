"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from ...errors import (
    BadFilter,
    DeltadexError,
    EmptyCatalog,
    EngineError,
    ModelError,
    RequestError,
    StoreError,
    UnknownModel,
    UnknownRecipe,
)
from .names import Names
from .replies import encode
from .worker import WorkerDied, WorkerFailed, WorkerOutOfMemory, WorkerTooSlow

log = logging.getLogger(__name__)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PROBLEM = "application/problem+json"
DEFECT = "a defect in deltadex; the server's log says more"
NO_ENGINE = "the engine that gives candidates does not answer; the server's log says more"
_STATUS: tuple[tuple[type[DeltadexError], int, str], ...] = (
    (UnknownModel, 404, "unknown-model"),
    (EmptyCatalog, 404, "empty-catalog"),
    (UnknownRecipe, 422, "unknown-recipe"),
    (BadFilter, 422, "bad-filter"),
    (RequestError, 422, "bad-request"),
    (StoreError, 503, "store"),
    (WorkerTooSlow, 503, "busy"),
    (WorkerDied, 503, "busy"),
    (WorkerOutOfMemory, 503, "busy"),
)


class Problem(Exception):
    """An answer that is an error: status, code, sentence, headers."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, code, detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})

    def to_json(self) -> dict[str, Any]:
        """The problem document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }

    def response(self) -> Response:
        """The same as an answer."""
        return Response(
            encode(self.to_json()), self.status, media_type=PROBLEM, headers=self.headers
        )


def as_problem(error: DeltadexError, names: Names) -> Problem:
    """An error of ours as a client may read it."""
    text = names.problem_text(str(error))
    if isinstance(error, WorkerFailed):
        log.error("a defect in deltadex:\n%s", error)
        return Problem(500, "internal", DEFECT)
    if isinstance(error, EngineError):
        # its message has an address or a path
        log.error("%s", error)
        return busy(NO_ENGINE, code="engine")
    if isinstance(error, ModelError):
        return Problem(422, error.code, names.problem_text(error.reason))
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            headers = {"Retry-After": "5"} if status == 503 else {}
            return Problem(status, code, text, headers)
    return Problem(422, "refused", text)


def busy(detail: str, seconds: int = 5, code: str = "busy") -> Problem:
    """A 503 that says when to ask again."""
    return Problem(503, code, detail, {"Retry-After": str(seconds)})


def stopping() -> Problem:
    """The 503 of a request that the end of the service cuts off."""
    return busy("the service is being stopped: send it again")


def invalid(faults: Sequence[Any], within: tuple[str, ...] = ()) -> Problem:
    """A 422 with what was wrong where, of the first few faults; never the value itself.

    Args:
        faults: As pydantic lists them.
        within: The part of a request that their places are in, where these do not name it.
    """
    places = [(*within, *fault["loc"]) for fault in faults[:3]]
    lines = [
        f"{'.'.join(map(str, place[1:])) or place[0]}: {fault['msg']}"
        for place, fault in zip(places, faults, strict=False)
    ]
    return Problem(422, "invalid", "; ".join(lines))


def install(app: FastAPI) -> None:
    """Have the app answer every error as a problem document."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = _problem_of(error, request.app.state.service.names)
        if problem.status == 405:
            problem.headers["Allow"] = _allowed_methods(request)
        return problem.response()

    for kind in (Problem, DeltadexError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _allowed_methods(request: Request) -> str:
    """The methods of a request's path, as the header `Allow` lists them."""
    routes = request.app.router.routes

    def matches(method: str) -> bool:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    return ", ".join(filter(matches, METHODS))


def _problem_of(error: Exception, names: Callable[[], Names]) -> Problem:
    match error:
        case Problem():
            return error
        case DeltadexError():
            return as_problem(error, names())
        case RequestValidationError():
            return invalid(error.errors())
        case HTTPException(status_code=status, detail=detail, headers=headers):
            code = {404: "not-found", 405: "method-not-allowed"}.get(status, "invalid")
            return Problem(status, code, str(detail), headers)
    return Problem(500, "internal", DEFECT)
