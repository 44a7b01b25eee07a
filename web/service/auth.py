"""Who may write."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from .problems import Problem
from .settings import ServiceSettings


def require_writer(request: Request, settings: ServiceSettings) -> None:
    """Pass those who present the operator's token.

    Raises:
        Problem: 403 where nobody writes, 401 without the right token.
    """
    if settings.token is None:
        raise Problem(
            403, "read-only", "this service is read-only; `deltadex serve --writable` opens it"
        )
    scheme, _, presented = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(presented.strip().encode(), settings.token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Problem(
            401,
            "unauthorized",
            "writing needs the header `Authorization: Bearer TOKEN` with the operator's token",
            {"WWW-Authenticate": 'Bearer realm="deltadex"'},
        )
