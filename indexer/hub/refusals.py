"""What a refusing answer of the Hub means, as a reason code and one line."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from ...errors import ModelError

_COUNT = re.compile(r"[0-9]{1,15}")

DISABLED = "Access to this resource is disabled."
BAD_TOKEN = "Invalid credentials in Authorization header"

_BY_ERROR_CODE = {
    "GatedRepo": (
        "gated",
        "the repository is gated; ask for access on its page and set HF_TOKEN",
    ),
    "RepoNotFound": ("private-or-missing", "no such repository, or a private one"),
    "RevisionNotFound": ("not-found", "no such revision"),
    "EntryNotFound": ("not-found", "no such file in the repository"),
}


def is_count(text: str) -> bool:
    """Whether a header's text is a number of bytes or seconds that can be true."""
    return _COUNT.fullmatch(text) is not None


def refusal(response: httpx2.Response, what: str) -> ModelError:
    """The error that an answer with a status of 400 or more stands for."""
    status, headers = response.status_code, response.headers
    if headers.get("X-Error-Message") == DISABLED or status == 451:
        return ModelError("disabled", f"{what}: the Hub has disabled the repository")
    if headers.get("X-Error-Message") == BAD_TOKEN:
        return ModelError(
            "unauthorized", f"{what}: the Hub does not know the token; check HF_TOKEN"
        )
    known = _BY_ERROR_CODE.get(headers.get("X-Error-Code", ""))
    if known is not None:
        return ModelError(known[0], f"{what}: {known[1]}")
    if status in (401, 404):
        return ModelError("private-or-missing", f"{what}: not there, or not for you ({status})")
    if status == 403:
        return ModelError(
            "unauthorized", f"{what}: access is refused (403); check HF_TOKEN's rights"
        )
    if status == 429:
        return ModelError(
            "rate-limited", f"{what}: too many requests; run again later, or set HF_TOKEN"
        )
    if status == 408 or status >= 500:
        return ModelError("hub-unreachable", f"{what}: the Hub answers {status}; run again later")
    return ModelError("hub-bad-answer", f"{what}: the Hub answers {status}")


def asked_wait_s(response: httpx2.Response) -> float | None:
    """Seconds that the answer asks to wait, by `RateLimit` or `Retry-After`."""
    if response.status_code == 429:
        with suppress(ValueError, OverflowError):
            limit = parse_ratelimit_headers(response.headers)
            if limit is not None and limit.remaining == 0:
                return float(limit.reset_in_seconds)
    value = response.headers.get("Retry-After", "").strip()
    if is_count(value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
