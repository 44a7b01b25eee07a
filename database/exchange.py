"""Indexes that others can use: published from a catalog, attached to one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadIndex, RequestError, SourceError, offered
from .opened import Opened, Place, Thing
from .tables import AttachedTable, Table

if TYPE_CHECKING:
    from ..records import Recipe
    from ..store import Attachment, IndexSource, Publication, Published

HUB = "hf://"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Exchange(Opened):
    """What a `Database` publishes, and what it searches of others."""

    def publish(
        self,
        target: Place,
        *,
        base: str | None = None,
        recipe: str | None = None,
        exclude: Place | Sequence[str] = (),
        base_name: str | None = None,
        licence: str = "other",
        with_gated: bool = False,
    ) -> Table:
        """Write a family as an index that others can attach; only what changed is written.

        Published are ids, labels, authors, licences, hashes and pooled vectors: no weights, no
        sketches, no paths, no models that are private on the Hub.

        Args:
            target: A folder, or `hf://datasets/OWNER/NAME` with a token in the environment.
            exclude: Ids of models to be removed for good, or a file with one id per line.
            base_name: What the index calls the base; the name of its folder, where it is one.
            licence: Of the index, as a data set's card has it; every model keeps its own.
            with_gated: Whether models that are gated on the Hub are published too.

        Returns:
            One row: `models`, `added`, `dropped`, `left_out`, `bytes`, `bytes_per_model`,
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
        from ..store import is_licence, may_be_public

        if not is_licence(licence):
            raise RequestError(f"licence {licence!r}: give one as the Hub names it, e.g. cc0-1.0")
        family = self.find_family(base)
        named = base_name or (Path(family).name if Path(family).is_absolute() else family)
        if not may_be_public(named):
            raise RequestError(f"{named!r} cannot be published: name the base with --base-name")
        where = str(target) if str(target).startswith(HUB) else "https://… (or this folder)"
        publication = _publication(
            base=family,
            named=named,
            recipe=self._catalog.find_recipe(recipe, family),
            exclude=_excluded(exclude),
            licence=licence,
            with_gated=with_gated,
            where=where,
        )
        if str(target).startswith(HUB):
            from .hub_publication import publish_to_hub

            done, upload = publish_to_hub(
                self._catalog.path, str(target), publication, self._publish_to, self._sized
            )
            return Table({**_document(str(target), publication, done), **upload})
        done = self._publish_to(Path(target).expanduser(), publication)
        return Table(_document(str(target), publication, done))

    def attach(self, source: Place, *, name: str | None = None) -> Table:
        """Search a published index beside this catalog from now on; its files are copied.

        Nothing of it becomes a model of the catalog. Every file is compared with the SHA-256 that
        the index's manifest lists; a fetch that was cut is continued.

        Args:
            source: A folder, an `https://` address, or `hf://datasets/OWNER/NAME`.
            name: What to call it; by default the last part of `source`.

        Returns:
            One row, as of `attached`, with `fetched_bytes`.

        Raises:
            BadIndex: there is none, or it is damaged.
            RequestError: another index has that name.

        >>> _ = db.publish("index", base_name="example/base")
        >>> db.attach("index", name="friends")[0]["models"]
        4
        >>> db.detach("friends")
        """
        from ..store import attached_folder

        text = str(source)
        name = _checked_name(name or _default_name(text))
        known = {attachment.name: attachment for attachment, _ in self._catalog.attachments.all()}
        opened = _open_source(text)
        before = known.get(name)
        if before is not None and before.source != opened.name:
            raise RequestError(f"{name!r} is attached from {before.source}; choose another --name")
        return Table(self._fetch(opened, name, before, attached_folder(self._catalog.path, name)))

    def attached(self) -> AttachedTable:
        """The attached indexes: where each is from, what it holds, when it was fetched.

        >>> len(db.attached())
        0
        """
        return AttachedTable(
            {
                "attached": [
                    {**asdict(attachment), "attached_at": moment}
                    for attachment, moment in self._catalog.attachments.all()
                ]
            }
        )

    def refresh_attached(self, name: str | None = None) -> AttachedTable:
        """Fetch what changed of one attached index, or of all; returns those.

        Raises:
            BadIndex: it is not there any more, is damaged, or older than what is attached.
            RequestError: there is none of that name.

        >>> len(db.refresh_attached())
        0
        """
        from ..store import attached_folder

        rows = []
        for attachment in self._named(name):
            folder = attached_folder(self._catalog.path, attachment.name)
            opened = _open_source(attachment.source)
            rows.append(self._fetch(opened, attachment.name, attachment, folder))
        return AttachedTable({"attached": rows})

    def detach(self, name: str) -> None:
        """Stop searching an attached index, and delete its files.

        Raises:
            RequestError: there is none of that name.

        >>> _ = db.publish("index", base_name="example/base")
        >>> _ = db.attach("index")
        >>> db.detach("index")
        >>> [row["name"] for row in db.attached()]
        []
        """
        from ..store import attached_folder, delete_unused

        (attachment,) = self._named(name)
        self._catalog.attachments.delete(attachment.name)
        delete_unused(attached_folder(self._catalog.path, attachment.name), None)

    def _named(self, name: str | None) -> list[Attachment]:
        attachments = [attachment for attachment, _ in self._catalog.attachments.all()]
        chosen = [attachment for attachment in attachments if name in (None, attachment.name)]
        if name is not None and not chosen:
            names = offered(name, (a.name for a in attachments), "attached")
            raise RequestError(f"no attached index '{name}'{names or '; attached: none'}")
        return chosen

    def _fetch(
        self, source: IndexSource, name: str, before: Attachment | None, folder: Path
    ) -> dict[str, Any]:
        """Fetch an index, and register it where it is not older than what is attached."""
        from ..store import Attachment, delete_unused, fetch_index

        index, fetched = fetch_index(source, folder, self._sized)
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
            bytes=sum(file.bytes for file in manifest.data_files),
        )
        self._catalog.attachments.save(attachment, index.removed)
        delete_unused(folder, manifest, index.sha256)
        return {**asdict(attachment), "fetched_bytes": fetched}

    def _publish_to(self, folder: Path, publication: Publication) -> Published:
        from ..search import measure_published
        from ..store import publish_index

        measure = partial(measure_published, publication.recipe)
        return publish_index(self._catalog, folder, publication, measure, self._sized)

    def _sized(self, things: Iterable[Thing], what: str, total: int) -> Iterator[Thing]:
        return self._track(things, what, total=total)


def _publication(*, recipe: Recipe, **given: Any) -> Publication:
    from .. import __version__
    from ..store import Publication

    return Publication(recipe=recipe, deltadex=__version__, **given)


def _document(target: str, publication: Publication, done: Published) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "target": target,
        "base": manifest.base,
        "recipe": publication.recipe.name,
        "recipe_id": publication.recipe.id,
        "models": manifest.models,
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


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name!r} cannot be the name of an index: use letters, digits, . _ -")
    return name


def _default_name(source: str) -> str:
    last = re.split(r"[/\\]", source.partition("@")[0].rstrip("/\\"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-")[:64] or "index"


def _open_source(source: str) -> IndexSource:
    from ..indexer import is_remote, remote_source
    from ..store import FolderSource

    if is_remote(source):
        return remote_source(source)
    return FolderSource(Path(source).expanduser().resolve())
