"""Where the Hub is, who asks, and how patiently: what all calls of a run share; JSON answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import constants, get_token, hf_hub_url, is_offline_mode
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from ...errors import ModelError
from .call import Call, origin_of
from .client import hub_client
from .patience import Patience

_PACKED = {"Accept-Encoding": "gzip"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(kw_only=True)
class HubSession:
    """One Hub as one user; the defaults are huggingface_hub's own, from the environment.

    Attributes:
        token: None takes HF_TOKEN or the saved one; False sends none.
        cache_dir: Where files that were downloaded before lie.
        cancelled: Set it to end every wait of this session.
        expand_level: How many sets of properties this Hub has refused to list.
    """

    endpoint: str = field(default_factory=lambda: constants.ENDPOINT)
    token: str | bool | None = field(default=None, repr=False)
    cache_dir: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))
    patience: Patience = field(default_factory=Patience)
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    expand_level: int = 0

    def __post_init__(self) -> None:
        self.endpoint = self.endpoint.rstrip("/")

    @cached_property
    def headers(self) -> dict[str, str]:
        """Request headers, the token included where there is one.

        Raises:
            ModelError: `unauthorized` where a token was promised but cannot be had.
        """
        token = self.token
        if token is None:
            token = not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
        try:
            token = (get_token() or False) if token is True else token
        except (OSError, ValueError) as err:
            raise ModelError("unauthorized", f"no token: {type(err).__name__}") from None
        with self.call("the request's headers").current():
            return build_hf_headers(token=token, library_name="deltadex")

    @property
    def has_token(self) -> bool:
        return "authorization" in self.headers

    def call(
        self,
        what: str,
        *,
        passes: frozenset[int] = frozenset(),
        leaves_hub: bool = True,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Call:
        """A call to come, named `what` in messages."""
        hub_client()
        return Call(
            what=what,
            origin=origin_of(httpx2.URL(self.endpoint)),
            patience=self.patience,
            passes=passes,
            leaves_hub=leaves_hub,
            cancelled=self.cancelled,
            on_bytes=on_bytes,
        )

    def send(
        self, method: str, url: str, headers: dict[str, str], *, stream: bool = False
    ) -> httpx2.Response:
        """The answer to one request inside the current call."""
        client = hub_client()
        headers = {**self.headers, "Accept-Encoding": "identity", **headers}
        return client.send(client.build_request(method, url, headers=headers), stream=stream)

    def file_url(self, repo_id: str, revision: str, name: str) -> str:
        """The address under which the Hub hands out one file of one commit."""
        return hf_hub_url(repo_id, name, revision=revision, endpoint=self.endpoint)

    @property
    def offline(self) -> bool:
        """Whether nothing may be asked of the Hub (HF_HUB_OFFLINE)."""
        return is_offline_mode()

    def refuse_offline(self, what: str) -> None:
        """Raise where nothing may be asked of the Hub."""
        if self.offline:
            line = "offline mode (HF_HUB_OFFLINE), and not in the local cache"
            raise ModelError("offline", f"{what}: {line}")


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


@cache
def default_session() -> HubSession:
    """The session that the environment describes."""
    return HubSession()


def cancel_with(event: threading.Event) -> None:
    """Let `event` end every wait of the default session."""
    default_session().cancelled = event
