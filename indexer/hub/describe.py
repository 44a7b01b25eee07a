"""One repository as the Hub, or offline the local cache, describes it."""

from __future__ import annotations

from typing import TypeGuard
from urllib.parse import quote

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from ...errors import ModelError
from ..checkpoint import read_json
from .cache import cached_commit, cached_file, cached_files
from .hub_model import HubModel
from .session import HubSession, ask, default_session

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

FULL_FIELDS = ("full", "cardData", "config")
"""The question without `expand`, as older servers know it."""


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
    if not is_repo_id(repo_id):
        raise ModelError("not-found", f"{repo_id!r} is neither a folder nor a Hub id")
    if session.offline:
        return _from_cache(repo_id, revision, session)
    path = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{session.endpoint}/api/models/{repo_id}{path}"
    answer, _ = ask(session, session.call(repo_id), url)
    if not isinstance(answer, dict) or not is_repo_id(answer.get("id")):
        raise ModelError("hub-bad-answer", f"{repo_id}: not a model's description")
    return HubModel.from_json(answer)


def is_repo_id(value: object) -> TypeGuard[str]:
    """Whether a value is an id that a repository can have."""
    if not isinstance(value, str):
        return False
    try:
        validate_repo_id(value)
    except HFValidationError:
        return False
    return True


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
