"""An index is published on the Hub: its data set is brought up to date in one commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .opened import SizedTrack

if TYPE_CHECKING:
    from ..store import Publication, Published


def publish_to_hub(
    catalog: Path,
    target: str,
    publication: Publication,
    publish: Callable[[Path, Publication], Published],
    track: SizedTrack,
) -> tuple[Published, dict[str, Any]]:
    """Publish into a copy of what the Hub has, beside the catalog, and upload what is new.

    The copy is fetched where it is missing. A commit that came between is not overwritten.

    Raises:
        BadIndex: the index that is there is damaged, or the Hub refuses.
    """
    from ..indexer import upload_files
    from ..store import CARD, MANIFEST, published_copy

    folder = published_copy(catalog, target)
    commit, there = _fetch(target, folder, track)
    done = publish(folder, publication)
    if commit is not None and not done.changed:
        return done, {"commit": commit, "uploaded_bytes": 0}
    files = [file for file in done.manifest.data_files if file.name not in there]
    commit = upload_files(
        target,
        folder,
        [*(file.name for file in files), CARD, MANIFEST],
        deleted=sorted(there - {file.name for file in done.manifest.data_files}),
        message=f"{done.manifest.models} models of {publication.named}",
        parent=commit,
    )
    sizes = [file.bytes for file in (*files, done.manifest.card)]
    sizes.append((folder / MANIFEST).stat().st_size)
    return done, {"commit": commit, "uploaded_bytes": sum(sizes)}


def _fetch(target: str, folder: Path, track: SizedTrack) -> tuple[str | None, frozenset[str]]:
    """Bring the copy to the Hub's state; its commit and the files of its index, if any."""
    from ..indexer import HubSource, NoIndex, remote_source
    from ..store import MANIFEST, delete_unused, fetch_index, write_atomically

    try:
        source = remote_source(target)
    except NoIndex:
        source = None
    if isinstance(source, HubSource):
        try:
            index, _ = fetch_index(source, folder, track)
        except NoIndex:
            index = None
        if index is not None:
            write_atomically(folder / MANIFEST, index.manifest.content())
            return source.commit, frozenset(file.name for file in index.manifest.data_files)
        (folder / MANIFEST).unlink(missing_ok=True)
        return source.commit, frozenset()
    delete_unused(folder, None)
    return None, frozenset()
