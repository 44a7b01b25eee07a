"""One repository as the Hub, or offline the local cache, describes it."""

from __future__ import annotations

from typing import Any

from huggingface_hub.errors import BadRequestError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from ...errors import ModelError
from ..checkpoint import read_json
from .cache import cached_commit, cached_file, cached_files
from .hub_model import HubModel, plain
from .session import HubSession, default_session

_CORE = (
    "sha",
    "tags",
    "cardData",
    "gated",
    "private",
    "siblings",
    "config",
    "library_name",
    "pipeline_tag",
    "downloads",
    "likes",
    "createdAt",
)
EXPAND_SETS: tuple[tuple[str, ...], ...] = (
    (*_CORE, "disabled", "safetensors", "model-index"),
    _CORE,
    (),
)
"""What is asked for of each listed model; the next set where a Hub refuses one with 400."""

FULL_FIELDS = {"full": True, "cardData": True, "fetch_config": True}
"""The question without `expand`, as older servers know it."""

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""What huggingface_hub raises on JSON that is not what it expects."""


def describe(
    repo_id: str, revision: str | None = None, *, session: HubSession | None = None
) -> HubModel:
    """The repository of that id, under its current name, pinned to a commit.

    Offline it is what the local cache holds of it.

    Raises:
        ModelError: `not-found`, `private-or-missing`, `gated`, `disabled`, `unauthorized`,
            `offline`, or the Hub does not answer as it should.
    """
    session = session or default_session()
    try:
        validate_repo_id(repo_id)
    except HFValidationError as err:
        raise ModelError("not-found", f"{repo_id!r} is neither a folder nor a Hub id") from err
    if session.offline:
        return _from_cache(repo_id, revision, session)
    with session.call(repo_id, passes=frozenset({400})).current():
        try:
            return HubModel.from_json(plain(session.api.model_info(repo_id, revision=revision)))
        except BadRequestError as err:
            raise ModelError("hub-bad-answer", f"{repo_id}: refused as a question (400)") from err
        except UNREADABLE:
            return _raw(repo_id, revision, session)


def _raw(repo_id: str, revision: str | None, session: HubSession) -> HubModel:
    """The same answer, without what huggingface_hub demands of it."""
    path = f"/revision/{revision}" if revision else ""
    response = session.send("GET", f"{session.endpoint}/api/models/{repo_id}{path}", {})
    try:
        answer: Any = response.json()
        return HubModel.from_json(answer)
    except UNREADABLE as err:
        raise ModelError("hub-bad-answer", f"{repo_id}: not a model's description") from err


def _from_cache(repo_id: str, revision: str | None, session: HubSession) -> HubModel:
    commit = cached_commit(session.cache_dir, repo_id, revision or "main")
    if commit is None:
        raise ModelError("offline", f"{repo_id}: offline mode, and not in the local cache")
    files = cached_files(session.cache_dir, repo_id, commit)
    config = cached_file(session.cache_dir, repo_id, commit, "config.json")
    raw = {
        "id": repo_id,
        "sha": commit,
        "siblings": [{"rfilename": name} for name in files],
    }
    return HubModel.from_json({**raw, "config": read_json(config) if config else None})
