"""The catalog's contents elsewhere: other catalogs, files, engines, indexes that others attach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..errors import BadIndex, RequestError, SourceError, offered
from ..options import Place, Question, Stability, argument, option, record
from .opened import Family, Opened, find_family
from .questions import Retrieval
from .tables import AttachedTable, Table

if TYPE_CHECKING:
    from ..store import Attachment, Catalog, IndexSource, Publication, Published

HUB = "hf://"

SizedTrack = Callable[[Iterable[Any], str, int], Iterator[Any]]
"""Passes on things of which the number is known, and shows how far they are."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@record
class Merge(Question):
    """Bring all that other catalogs know into this one, which wins where they differ.

    Returns:
        One row: counts, `sources`, `conflicts`, and `damaged` parts, which were left out.

    Raises:
        RequestError: a source is this catalog.

    >>> db.merge("other.duckdb")[0]["unchanged"]
    4
    """

    sources: tuple[Place, ...] = argument(
        several=True,
        help="Catalogs, or folders and fsspec addresses of parts (`index(..., parts=...)`).",
    )

    def answer(self, db: Opened) -> Table:
        from ..store import merge_catalogs

        merged = merge_catalogs(
            db._catalog,
            self.sources,
            tracked=lambda batches: db._track(batches, "merging", total=len(batches)),
        )
        return Table(merged.to_json())


@record
class Export(Family):
    """Write the catalog into files for other tools.

    >>> [path.name for path in db.export("v.safetensors", format="safetensors")]
    ['v.safetensors']
    """

    target: Place = argument(help="Folder or file to write.", file="any")
    _: KW_ONLY
    format: Literal["parquet", "safetensors"] = option(
        default="parquet",
        help="Write tables into a folder (the models alone into a file named .parquet), or one "
        "recipe's vectors into a file.",
    )

    def answer(self, db: Opened) -> list[Path]:
        from ..store import write_parquet, write_safetensors

        catalog, target = db._catalog, Path(self.target)
        if self.format == "parquet":
            return write_parquet(catalog, target)
        return [write_safetensors(catalog, target, catalog.find_base(self.base), self.recipe)]


@record
class ExportVectors(Family):
    """Bring a family's vectors under a recipe to Qdrant.

    Only differences are written: a second export, or one after another that was killed, is
    quick. `open(path, engine="qdrant")` then searches them.

    Returns:
        One row: `target`, `base`, `recipe`, `models`, `added`, `removed`, `newest_key`, `seconds`.

    Raises:
        StoreError: the server is not reached, full, or holds other vectors.
        RequestError: the target is not understood, or Qdrant's client not installed.
    """

    stability = "provisional"

    target: str = argument(
        help="`qdrant://HOST[:PORT]/COLLECTION[?https=1]`; the server's API key is read from the "
        "environment (`QDRANT_API_KEY`)."
    )

    def answer(self, db: Opened) -> Table:
        from ..store import export_vectors

        family = find_family(db._catalog, self.base)
        exported = export_vectors(
            db._catalog,
            self.target,
            base=family,
            recipe=db._catalog.find_recipe(self.recipe, family),
            tracked=_sized(db),
        )
        return Table(exported)


@record
class ExportScores(Retrieval):
    """Write what `evaluate` ranks into a Parquet file: a row for each query and candidate.

    Raises:
        RequestError: the name does not end in `.parquet`; else as `evaluate`.

    >>> [path.name for path in db.export_scores("scores.parquet", exclude="author")]
    ['scores.parquet']
    """

    stability: ClassVar[Stability] = "provisional"

    target: Place = argument(help="The Parquet file to write.")
    _: KW_ONLY
    recipe: str | None = option(default=None, help="Name or id of a recipe.")
    ways: Sequence[str] = option(
        "--way",
        default=("normalised",),
        help="Way of scoring, as `eval --compare` has it; may be repeated.",
    )

    def answer(self, db: Opened) -> list[Path]:
        from ..search import rankings
        from ..store import write_tables

        target = Path(self.target)
        if target.suffix.lower() != ".parquet":
            raise RequestError(f"{target}: scores are a Parquet file; end its name in .parquet")
        found = rankings(
            db._catalog,
            recipe=self.recipe,
            base=db._catalog.find_base(self.base),
            exclude=self.exclude,
            with_unlabelled=self.with_unlabelled,
            ways=self.ways,
        )
        return [write_tables(target, (table for one in found for table in one.tables()))]


@record
class Backup(Question):
    """Copy the catalog as it is now into a file, which is a catalog itself.

    Returns:
        One row: `written`, `models`, `bytes`, `sha256`, `seconds`.

    Raises:
        RequestError: the target is there already, or has no folder.

    >>> db.backup("copy.duckdb")[0]["models"]
    4
    """

    target: Place = argument(file="any", help="The file to write.")
    _: KW_ONLY
    force: bool = option(default=False, help="Replace TARGET if it is there.")

    def answer(self, db: Opened) -> Table:
        from ..store import back_up

        return Table(back_up(db._catalog, Path(self.target), replace=self.force).to_json())

    def received(self, receive: Callable[[Path], str]) -> Table:
        """The same of a copy that another machine made: `receive` writes its file, and returns its
        SHA-256."""
        from ..store import receive_backup

        return Table(receive_backup(Path(self.target), receive, replace=self.force).to_json())


@record
class Publish(Family):
    """Write a family as an index that others can attach; only what changed is written.

    Published are ids, labels, authors, licences, hashes, pooled vectors and shortened sketches:
    no weights, no paths, no models that are private on the Hub.

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
        from ..store import Publication, is_licence, may_be_public

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
            done = _publish_to(db, Path(self.target).expanduser(), publication)
        return Table(_document(target, publication, done) | upload)


@record
class Attach(Question):
    """Search a published index beside this catalog from now on; its files are copied.

    Nothing of it becomes a model of the catalog. Every file is compared with the SHA-256 that
    the index's manifest lists; files that came whole are not fetched again.

    Returns:
        One row, as of `attached`, with `fetched_bytes`.

    Raises:
        BadIndex: there is none, or it is damaged.
        RequestError: another index has that name.

    >>> _ = db.publish("index", base_name="example/base")
    >>> db.attach("index", name="friends")[0]["models"]
    4
    >>> db.attached.remove("friends")
    """

    stability = "provisional"

    source: Place = argument(help="A folder, an `https://` address, or `hf://datasets/OWNER/NAME`.")
    _: KW_ONLY
    name: str | None = option(
        default=None, shown_default="the last part of its source", help="Name for the index."
    )

    def answer(self, db: Opened) -> Table:
        text = str(self.source)
        name = self.name or _default_name(text)
        if not _NAME.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot be the name of an index: use letters, digits, . _ -"
            )
        known = {attachment.name: attachment for attachment, _ in db._catalog.attachments.all()}
        opened = _open_source(text)
        before = known.get(name)
        if before is not None and before.source != opened.name:
            raise RequestError(f"{name!r} is attached from {before.source}; choose another --name")
        return Table(_fetch(db, opened, name, before))


@record
class Attached(Question):
    """The attached indexes: where each is from, what it holds, when it was fetched.

    >>> len(db.attached())
    0
    """

    stability = "provisional"

    def answer(self, db: Opened) -> AttachedTable:
        every = db._catalog.attachments.all()
        rows = [asdict(attachment) | {"attached_at": moment} for attachment, moment in every]
        return AttachedTable({"attached": rows})


@record
class RefreshAttached(Question):
    """Fetch what changed of one attached index, or of all; returns those.

    Raises:
        BadIndex: it is not there any more, is damaged, or older than what is attached.
        RequestError: there is none of that name.

    >>> len(db.attached.refresh())
    0
    """

    stability = "provisional"

    name: str | None = argument(default=None, help="Name of the index.")

    def answer(self, db: Opened) -> AttachedTable:
        chosen = _named(db._catalog, self.name)
        rows = [_fetch(db, _open_source(known.source), known.name, known) for known in chosen]
        return AttachedTable({"attached": rows})


@record
class Detach(Question):
    """Stop searching an attached index, and delete its files.

    Raises:
        RequestError: there is none of that name.

    >>> _ = db.publish("index", base_name="example/base")
    >>> _ = db.attach("index")
    >>> db.attached.remove("index")
    >>> [row["name"] for row in db.attached()]
    []
    """

    stability = "provisional"

    name: str = argument(help="Name of the index.")

    def answer(self, db: Opened) -> None:
        from ..store import attached_folder, delete_unused

        (attachment,) = _named(db._catalog, self.name)
        db._catalog.attachments.delete(attachment.name)
        delete_unused(attached_folder(db._catalog.path, attachment.name), None)


def _named(catalog: Catalog, name: str | None) -> list[Attachment]:
    attachments = [attachment for attachment, _ in catalog.attachments.all()]
    chosen = [attachment for attachment in attachments if name in (None, attachment.name)]
    if name is not None and not chosen:
        names = offered(name, (a.name for a in attachments), "attached")
        raise RequestError(f"no attached index '{name}'{names or '; attached: none'}")
    return chosen


def _fetch(db: Opened, source: IndexSource, name: str, before: Attachment | None) -> dict[str, Any]:
    """Fetch an index, and register it where it is not older than what is attached."""
    from ..store import Attachment, attached_folder, delete_unused, fetch_index

    folder = attached_folder(db._catalog.path, name)
    index, fetched = fetch_index(source, folder, _sized(db))
    manifest = index.manifest
    if before is not None:
        if before.index_id != manifest.index:
            raise BadIndex(
                f"{source.name} holds another index now; `deltadex attach --remove {name}`, "
                "and attach it again if that is wanted"
            )
        if manifest.serial < before.serial:
            raise BadIndex(
                f"{source.name} holds an older copy (publication {manifest.serial}, attached "
                f"is {before.serial}): models that were removed since would come back; "
                "nothing was changed"
            )
    attachment = Attachment(
        name=name,
        source=source.name,
        base=manifest.base,
        recipe=manifest.recipe.id,
        index_id=manifest.index,
        serial=manifest.serial,
        manifest=index.sha256,
        models=manifest.models,
        bytes=manifest.size_bytes,
    )
    db._catalog.attachments.save(attachment)
    delete_unused(folder, manifest, index.sha256)
    return {**asdict(attachment), "fetched_bytes": fetched}


def _publish_to(db: Opened, folder: Path, publication: Publication) -> Published:
    from ..store import publish_index

    return publish_index(db._catalog, folder, publication, _sized(db))


def _sized(db: Opened) -> SizedTrack:
    return lambda things, what, total: db._track(things, what, total=total)


def _publish_to_hub(
    db: Opened, target: str, publication: Publication
) -> tuple[Published, dict[str, Any]]:
    """Publish into a copy of what the Hub has, beside the catalog, and upload what is new.

    The copy is fetched where it is missing. A commit that came between is not overwritten.
    """
    from ..indexer import upload_files
    from ..store import CARD, MANIFEST, published_copy

    folder = published_copy(db._catalog.path, target)
    commit, there = _fetch_published(target, folder, _sized(db))
    done = _publish_to(db, folder, publication)
    if commit is not None and not done.changed:
        return done, {"commit": commit, "uploaded_bytes": 0}
    files = [file for file in done.manifest.parts if file.name not in there]
    commit = upload_files(
        target,
        folder,
        [*(file.name for file in files), CARD, MANIFEST],
        deleted=sorted(there - {file.name for file in done.manifest.parts}),
        message=f"{done.manifest.models} models of {publication.named}",
        parent=commit,
    )
    n_bytes = sum(file.bytes for file in files)
    n_bytes += sum((folder / name).stat().st_size for name in (CARD, MANIFEST))
    return done, {"commit": commit, "uploaded_bytes": n_bytes}


def _fetch_published(
    target: str, folder: Path, track: SizedTrack
) -> tuple[str | None, frozenset[str]]:
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
            return source.commit, frozenset(file.name for file in index.manifest.parts)
        (folder / MANIFEST).unlink(missing_ok=True)
        return source.commit, frozenset()
    delete_unused(folder, None)
    return None, frozenset()


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


def _default_name(source: str) -> str:
    last = re.split(r"[/\\]", source.partition("@")[0].rstrip("/\\"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-")[:64] or "index"


def _open_source(source: str) -> IndexSource:
    from ..indexer import is_remote, remote_source
    from ..store import FolderSource

    if is_remote(source):
        return remote_source(source)
    return FolderSource(Path(source).expanduser().resolve())
