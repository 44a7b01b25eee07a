"""Published indexes that are searched beside the catalog: `attach`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadIndex, RequestError, offered
from ..options import Place, Question, argument, option, record
from ..results import Shown, Table, count, size
from .face.opened import Opened
from .terminal.command_line import Common, command_with, open_database, print_answer

if TYPE_CHECKING:
    from ..store import Attachment, Catalog, IndexSource


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class AttachedTable(Table):
    """Attached indexes: `name`, `source`, `base`, `recipe` (its id), `models`, `bytes`, `serial`
    (how often it was published), `manifest` (SHA-256), `attached_at`."""

    columns = ("name", "source", "base", "recipe", "models", "bytes", "attached_at")
    _key = "attached"


@record
class Attach(Question):
    """Search a published index beside the catalog: a folder, an https:// or an hf:// address.

    Its files are copied beside the catalog and compared with the SHA-256 of its manifest.
    `find-similar` then searches it together with the catalog's own models of the same base and
    recipe; no other command does.

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
        last = re.split(r"[/\\]", text.partition("@")[0].rstrip("/\\"))[-1]
        default = re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-")[:64]
        name = self.name or default or "index"
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
        delete_unused(attached_folder(db._catalog.path, attachment.name))


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
    index, fetched = fetch_index(source, folder, db._track)
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
    delete_unused(folder, index.files)
    return {**asdict(attachment), "fetched_bytes": fetched}


def _open_source(source: str) -> IndexSource:
    from ..indexer import is_remote, remote_source
    from ..store import FolderSource

    if is_remote(source):
        return remote_source(source)
    return FolderSource(Path(source).expanduser().resolve())


@record
class Attaching(Attach):
    __doc__ = Attach.__doc__

    source: Any = argument(default=None)
    _: KW_ONLY
    lists: bool = option("--list", default=False, help="List the attached indexes.")
    refresh: bool = option(default=False, help="Fetch what changed, of all or of --name.")
    remove: str | None = option(default=None, metavar="NAME", help="Stop searching this index.")


def _show_indexes(document: Mapping[str, Any]) -> Shown:
    if not document["attached"]:
        yield "no index is attached"
    for row in document["attached"]:
        yield from _show_index(row)


def _show_index(row: Mapping[str, Any]) -> Shown:
    fetched = f", {size(row['fetched_bytes'])} fetched" if "fetched_bytes" in row else ""
    yield (
        f"{row['name']}: {count(row['models'], 'model')} of {row['base']} ({row['recipe']}), "
        f"{size(row['bytes'])}{fetched}, from {row['source']}"
    )


@command_with(
    Attaching,
    continues=True,
    examples=(
        "attach hf://datasets/someone/gpt2-index",
        "attach --refresh",
        "attach --remove gpt2-index",
    ),
)
def command(common: Common, asked: Attaching) -> None:
    if sum(map(bool, (asked.source, asked.lists, asked.refresh, asked.remove))) != 1:
        raise click.UsageError("give one of SOURCE, --list, --refresh, --remove NAME")
    if asked.source:
        print_answer(common, asked, _show_index, read_only=False, create="late")
    elif asked.refresh:
        print_answer(common, RefreshAttached(asked.name), _show_indexes, read_only=False)
    else:
        if asked.remove:
            with open_database(common, read_only=False) as db:
                Detach(asked.remove).answer(db)
        print_answer(common, Attached(), _show_indexes)
