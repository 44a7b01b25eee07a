"""Files that huggingface_hub downloaded before: where they lie on this disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.file_download import repo_folder_name

_COMMIT = re.compile(r"^[0-9a-f]{40}$")


def cached_file(cache_dir: Path, repo_id: str, commit: str, name: str) -> Path | None:
    """The local copy of one file of one commit; None where there is none."""
    if not _COMMIT.match(commit):
        return None
    try:
        path = try_to_load_from_cache(repo_id, name, cache_dir=cache_dir, revision=commit)
    except (ValueError, OSError):
        return None
    return Path(path) if isinstance(path, str) else None


def cached_files(cache_dir: Path, repo_id: str, commit: str) -> list[str]:
    """Names of every cached file of one commit."""
    snapshot = _repo_folder(cache_dir, repo_id) / "snapshots" / commit
    return sorted(
        (Path(folder) / name).relative_to(snapshot).as_posix()
        for folder, _, names in os.walk(snapshot)
        for name in names
    )


def cached_commit(cache_dir: Path, repo_id: str, revision: str) -> str | None:
    """The commit that a revision meant when it was last downloaded."""
    folder = _repo_folder(cache_dir, repo_id)
    if _COMMIT.match(revision):
        return revision if (folder / "snapshots" / revision).is_dir() else None
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return None
    return commit if (folder / "snapshots" / commit).is_dir() else None


def _repo_folder(cache_dir: Path, repo_id: str) -> Path:
    return cache_dir / repo_folder_name(repo_id=repo_id, repo_type="model")
