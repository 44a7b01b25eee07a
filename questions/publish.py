"""A family as an index for others: `publish`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import RequestError, SourceError
from ..options import Place, argument, option, record
from ..results import Shown, Table, count, size
from .face.opened import Family, Opened, find_family
from .terminal.command_line import asking

if TYPE_CHECKING:
    from ..store import Publication, Published


HUB = "hf://"


@record
class Publish(Family):
    """Publish a family's fingerprints as an index that others can attach.

    The index holds ids, labels, authors, licences, hashes, pooled vectors and shortened sketches,
    up to 16 KiB per model under the default recipe: no weights, no paths, no models that are
    private on the Hub. A later publication writes only what changed. An upload takes the token from
    HF_TOKEN.

    Returns:
        One row: `models`, `size`, `added`, `dropped`, `left_out`, `bytes`, `bytes_per_model`,
        `written`, `deleted`, `manifest` (SHA-256) and more.

    Raises:
        RequestError: the folder holds an index of another family.
        BadIndex: the index that is there is damaged, or the Hub refuses.
        StoreFull: the folder cannot be written.

    >>> published = db.publish("index", base_name="example/base", exclude=["sst2-1"])
    >>> published[0]["models"], published[0]["left_out"]
    (3, {'removed': 1})
    >>> db.publish("index", base_name="example/base")[0]["changed"]
    False
    """

    stability = "provisional"

    target: Place = argument(
        help="A folder, or `hf://datasets/OWNER/NAME` with a token in the environment."
    )
    _: KW_ONLY
    size: Literal["full", "small"] = option(
        default="full",
        help="With sketches, which rank as well as the catalog, up to 16 KiB per model; or "
        "without, 2 to 4 KiB.",
    )
    exclude: Place | Sequence[str] = option(
        default=(),
        file="existing file",
        help="Remove the models of this list for good: one id per line.",
    )
    base_name: str | None = option(
        default=None, help="Name of the base in the index, e.g. its Hub id."
    )
    licence: str = option(default="other", help="Licence of the index; models keep their own.")
    with_gated: bool = option(default=False, help="Also publish models that are gated on the Hub.")

    def answer(self, db: Opened) -> Table:
        from .. import __version__
        from ..search import published_lengths
        from ..store import Publication, is_licence, may_be_public, publish_index

        if not is_licence(self.licence):
            raise RequestError(
                f"licence {self.licence!r}: give one as the Hub names it, e.g. cc0-1.0"
            )
        family, target = find_family(db._catalog, self.base), str(self.target)
        named = self.base_name or (Path(family).name if Path(family).is_absolute() else family)
        if not may_be_public(named):
            raise RequestError(f"{named!r} cannot be published: name the base with --base-name")
        recipe = db._catalog.find_recipe(self.recipe, family)
        publication = Publication(
            base=family,
            named=named,
            recipe=recipe,
            lengths=partial(published_lengths, recipe) if self.size == "full" else None,
            exclude=_excluded(self.exclude),
            licence=self.licence,
            with_gated=self.with_gated,
            where=target if target.startswith(HUB) else "https://… (or this folder)",
            deltadex=__version__,
        )
        upload: dict[str, Any] = {}
        if target.startswith(HUB):
            done, upload = _publish_to_hub(db, target, publication)
        else:
            folder = Path(self.target).expanduser()
            done = publish_index(db._catalog, folder, publication, db._track)
        return Table(_document(target, publication, done) | upload)


def _publish_to_hub(
    db: Opened, target: str, publication: Publication
) -> tuple[Published, dict[str, Any]]:
    """Publish into a copy of what the Hub has, beside the catalog, and upload what is new.

    The copy is fetched where it is missing. A commit that came between is not overwritten.
    """
    from ..indexer import upload_files
    from ..store import CARD, MANIFEST, publish_index, published_copy

    folder = published_copy(db._catalog.path, target)
    commit, there = _fetch_published(target, folder, db)
    done = publish_index(db._catalog, folder, publication, db._track)
    if commit is not None and not done.changed:
        return done, {"commit": commit, "uploaded_bytes": 0}
    files = [file for file in done.manifest.parts if file.name not in there]
    commit = upload_files(
        target,
        folder,
        [*(file.name for file in files), CARD, MANIFEST],
        deleted=sorted(there - {file.name for file in done.manifest.parts}),
        message=f"{count(done.manifest.models, 'model')} of {publication.named}",
        parent=commit,
    )
    n_bytes = sum(file.bytes for file in files)
    n_bytes += sum((folder / name).stat().st_size for name in (CARD, MANIFEST))
    return done, {"commit": commit, "uploaded_bytes": n_bytes}


def _fetch_published(target: str, folder: Path, db: Opened) -> tuple[str | None, frozenset[str]]:
    """Bring the copy to the Hub's state; its commit and the files of its index, if any."""
    from ..indexer import HubSource, NoIndex, remote_source
    from ..store import MANIFEST, delete_unused, fetch_index, write_atomically

    commit = None
    with suppress(NoIndex):
        source = remote_source(target)
        if isinstance(source, HubSource):
            commit = source.commit
            index, _ = fetch_index(source, folder, db._track)
            write_atomically(folder / MANIFEST, index.manifest.content())
            return commit, frozenset(file.name for file in index.manifest.parts)
    if commit is None:
        delete_unused(folder)
    else:
        (folder / MANIFEST).unlink(missing_ok=True)
    return commit, frozenset()


def _document(target: str, publication: Publication, done: Published) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "target": target,
        "base": manifest.base,
        "recipe": publication.recipe.name,
        "recipe_id": publication.recipe.id,
        "models": manifest.models,
        "size": "full" if manifest.sketches else "small",
        "added": done.added,
        "dropped": done.dropped,
        "left_out": done.left_out,
        "changed": done.changed,
        "parts": len(manifest.parts),
        "bytes": manifest.size_bytes,
        "bytes_per_model": manifest.size_bytes / manifest.models,
        "written": [file.name for file in done.written],
        "written_bytes": sum(file.bytes for file in done.written),
        "deleted": list(done.deleted),
        "serial": manifest.serial,
        "manifest": done.sha256,
    }


def _excluded(exclude: Place | Sequence[str]) -> frozenset[str]:
    """The ids of a list, or of a file with one per line; `#` begins a comment."""
    if not isinstance(exclude, str | Path):
        return frozenset(exclude)
    try:
        text = Path(exclude).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or "not UTF-8"
        raise SourceError(f"{exclude}: cannot be read: {why}") from None
    ids = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return frozenset(filter(None, ids))


def _show_publication(document: Mapping[str, Any]) -> Shown:
    yield f"{document['base']}: {count(document['models'], 'model')} in {document['target']}"
    yield (
        f"{document['added']} added, {document['dropped']} dropped; "
        f"{size(document['written_bytes'])} written of {size(document['bytes'])}, "
        f"{document['bytes_per_model']:.0f} bytes per model ({document['size']})"
    )
    for reason, n in document["left_out"].items():
        yield f"left out: {n} ({reason})"
    if not document["changed"]:
        yield "nothing changed"
    if "commit" in document:
        yield f"{size(document['uploaded_bytes'])} uploaded, commit {document['commit']}"
    yield f"manifest SHA-256 {document['manifest']}"


command = asking(
    Publish,
    _show_publication,
    "publish gpt2-index",
    "publish hf://datasets/someone/gpt2-index --exclude removed.txt",
    prints_table=False,
)
