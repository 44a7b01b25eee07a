"""What holds for every path: HEAD is answered as GET is, and nothing that was sent is ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from fastapi import Request, params
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import offered
from .problems import Problem

MAX_SHOWN = 40
"""Characters of an unknown name that are compared, and shown."""


class HeadAsGet:
    """Answers HEAD with the head of the answer to GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receive, without_body)
        finally:
            scope["route"] = as_get.get("route")


async def refuse_unknown(request: Request) -> None:
    """Refuse what the route would ignore: an unknown parameter or form field, one given twice.

    Raises:
        Problem: 422.
    """
    declared = request.scope["route"].dependant
    known = [field.alias for field in declared.query_params]
    refuse_unknown_names(request.query_params.multi_items(), known)
    fields = [f.alias for f in declared.body_params if isinstance(f.field_info, params.Form)]
    if fields:
        refuse_unknown_names((await request.form()).multi_items(), fields)


def refuse_unknown_names(given: Collection[tuple[str, Any]], known: Collection[str]) -> None:
    """Refuse names and values of which one is not known, or comes twice; raises the same."""
    for name, times in Counter(name for name, _ in given).items():
        if name not in known:
            raise Problem(422, "invalid", unknown(name, known))
        if times > 1:
            raise Problem(422, "invalid", f"{name}: given {times} times; give it once")


def unknown(name: str, known: Collection[str]) -> str:
    """A sentence about a name that is none of those known, with the nearest of them."""
    shown = name[:MAX_SHOWN]
    return f"{shown!r} is unknown{offered(shown, known) or '; there are: none'}"


class Sent(BaseModel):
    """What a client sends as JSON or as a form: no other keys than those declared."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_unknown_key(cls, sent: Any) -> Any:
        for name in sent if isinstance(sent, dict) else ():
            if name not in cls.model_fields:
                fault = unknown(str(name), cls.model_fields)
                raise PydanticCustomError("unknown_key", "{fault}", {"fault": fault})
        return sent
