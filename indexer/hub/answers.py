"""The Hub's answers in JSON: asked for once more where they are cut or garbled."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from ...errors import ModelError
from .call import Call
from .session import HubSession

_PACKED = {"Accept-Encoding": "gzip"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def ask(session: HubSession, call: Call, url: str) -> tuple[Any, httpx2.Response]:
    """The JSON value at an address of the Hub, and the answer that held it.

    Statuses that `call` passes are handed on with None as their value. Text that cannot be
    written as UTF-8 is mended.

    Raises:
        ModelError: the Hub refuses, does not answer, or does not answer in JSON.
    """
    with call.current():
        while True:
            response = session.send("GET", url, _PACKED)
            if response.status_code in call.passes:
                return None, response
            try:
                return _value(response), response
            except (ValueError, RecursionError):
                call.failed(ModelError("hub-bad-answer", f"{call.what}: an answer that is no JSON"))


def _value(response: httpx2.Response) -> Any:
    if response.status_code != 200:
        raise ValueError(response.status_code)
    text = response.content.decode("utf-8")
    value = json.loads(text)
    if _SURROGATE.search(text) is None:
        return value
    mended = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(mended.decode("utf-16", "replace"))
