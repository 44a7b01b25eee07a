"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...errors import (
    BadFilter,
    DeltadexError,
    EmptyCatalog,
    ModelError,
    RequestError,
    StoreError,
    UnknownModel,
    UnknownRecipe,
)
from .names import Names
from .replies import encode
from .worker import WorkerDied, WorkerFailed, WorkerTooSlow

log = logging.getLogger(__name__)

PROBLEM = "application/problem+json"
DEFECT = "a defect in deltadex; the server's log says more"
_STATUS: tuple[tuple[type[DeltadexError], int, str], ...] = (
    (UnknownModel, 404, "unknown-model"),
    (EmptyCatalog, 404, "empty-catalog"),
    (UnknownRecipe, 422, "unknown-recipe"),
    (BadFilter, 422, "bad-filter"),
    (RequestError, 422, "bad-request"),
    (StoreError, 503, "store"),
    (WorkerTooSlow, 503, "busy"),
    (WorkerDied, 503, "busy"),
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
    if isinstance(error, ModelError):
        return Problem(422, error.code, names.problem_text(error.reason))
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            headers = {"Retry-After": "5"} if status == 503 else {}
            return Problem(status, code, text, headers)
    return Problem(422, "refused", text)


def busy(detail: str, seconds: int = 5) -> Problem:
    """A 503 that says when to ask again."""
    return Problem(503, "busy", detail, {"Retry-After": str(seconds)})


def install(app: FastAPI) -> None:
    """Have the app answer every error as a problem document."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, DeltadexError)
        return as_problem(error, request.app.state.service.names()).response()

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return Problem(422, "invalid", _first_faults(error)).response()

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = str(error.detail)
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid")
        return Problem(error.status_code, code, detail, error.headers).response()

    async def defect(request: Request, error: Exception) -> Response:
        return Problem(500, "internal", DEFECT).response()

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(DeltadexError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, defect)


def _first_faults(error: RequestValidationError) -> str:
    """What was wrong where, of the first few faults; never the value itself."""
    faults = [
        f"{'.'.join(str(part) for part in fault['loc'][1:]) or fault['loc'][0]}: {fault['msg']}"
        for fault in error.errors()[:3]
    ]
    return "; ".join(faults)
