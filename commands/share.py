"""The catalog for others: serve, mcp, export, publish, attach, merge."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from .. import database
from ..errors import RequestError
from ..options import Place, argument, as_kind, option, record
from ..terminal.text import count, plain, size
from .command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    FINISHED,
    Common,
    Engine,
    asking,
    command,
    open_database,
    print_answer,
    print_document,
    show_pairs,
    when_stopped,
)

TAKEN = ("added", "updated", "unchanged", "differing", "data_sets")
"""Counts of what a merge found in its sources and could use."""

CONFLICTS_SHOWN = 20
"""Conflicts that are printed; `--json` lists all."""


@record
class Serving(Engine):
    """Where a service listens, and what it allows."""

    _: KW_ONLY
    host: str = option(default="127.0.0.1", help="The address to listen on.")
    port: int = option(default=8321, least=0, most=65535, help="The port to listen on.")
    writable: bool = option(default=False, help="Models may be added and removed with a token.")
    token_file: Path | None = option(
        default=None,
        file="existing file",
        shown_default="$DELTADEX_TOKEN",
        help="File with the token that writers present.",
    )
    allow_hub: bool = option(default=False, help="Requests may have models fetched from the Hub.")
    share_catalog: bool = option(
        default=False,
        help="Readers may download the catalog's file and run SELECTs over it, which show paths of "
        "this machine; with a token writers always may.",
    )
    allow_hosts: tuple[str, ...] = option(
        "--allow-host", default=(), help="Another name of this service."
    )
    body_limit: int = option(default=64, least=1, help="Largest adapter upload, in MiB.")
    max_seconds: float = option(default=30.0, above=0, help="Seconds that one request may run.")
    root_path: str = option(default="", help="The prefix under which a proxy shows the service.")


@command(Serving, prints_table=False)
def serve(common: Common, serving: Serving) -> None:
    """Answer questions about the catalog over HTTP, for programs and with a page for people.

    It listens on this machine only and changes nothing, unless options say otherwise.

    \b
    Example:
      deltadex serve --port 8321
      DELTADEX_TOKEN=$(cat token) deltadex serve --writable
      deltadex serve --engine qdrant://localhost:6333/bert
    """
    # before anything is loaded that reads it
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        from ..web.service import (
            Service,
            ServiceSettings,
            address,
            ends_in_time,
            listen,
            make_app,
            run_server,
            set_up_process,
        )
    except ModuleNotFoundError as err:
        raise click.UsageError(f"serving needs {err.name}: pip install 'deltadex[serve]'") from err

    set_up_process()
    given = vars(serving) | {
        "db": common.db,
        "token": _token(serving.token_file) if serving.writable else None,
        "body_limit": serving.body_limit << 20,
    }
    del given["writable"], given["token_file"]
    settings = ServiceSettings(**given)
    if not settings.is_local:
        _warn(settings.host)
    with (
        ends_in_time() as ending,
        listen(settings) as listening,
        Service(settings) as service,
    ):
        document = {"address": address(settings, listening), "writable": settings.writable}
        run_server(
            make_app(service),
            settings,
            listening,
            lambda: print_document(document, _show_service, common),
            ending,
        )


@record
class Assisting:
    """Which catalog an assistant asks, and how far it may go."""

    _: KW_ONLY
    url: str | None = option(
        default=None,
        metavar="URL",
        help="Ask the service at this address in place of --db; $DELTADEX_TOKEN is its token, "
        "which `sql` needs.",
    )
    allow_hub: bool = option(
        default=False, help="Tools may have models fetched from the Hugging Face Hub."
    )


@command(Assisting, prints_table=False)
def mcp(common: Common, assisting: Assisting) -> None:
    """Serve the catalog to an assistant, by the Model Context Protocol on stdin and stdout.

    Tools: find_similar, find_trained_on, trace, show and sql; all of them only read. An assistant
    starts this command itself: docs/mcp.md has the lines for its settings.

    \b
    Example:
      deltadex mcp --db family.duckdb
      deltadex mcp --url http://127.0.0.1:8321
    """
    if not assisting.allow_hub:
        # before huggingface_hub is loaded, which reads it
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from ..assistant import Tools, serve
    except ModuleNotFoundError as err:
        raise RequestError(f"mcp needs {err.name}: pip install 'deltadex[mcp]'") from err

    offline = not assisting.allow_hub
    if assisting.url is not None:
        from ..client import connect

        with connect(assisting.url) as db:
            serve(Tools(lambda: nullcontext(db), are_local=False, offline=offline))
        return
    opened = partial(database.open, common.db, read_only=True)
    with opened():
        pass  # what is wrong with it is said now, and not to the assistant
    serve(Tools(opened, are_local=True, offline=offline))


def _token(file: Path | None) -> str:
    token = file.read_text("utf-8") if file is not None else os.environ.get("DELTADEX_TOKEN", "")
    token = token.strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise RequestError(
            "--writable needs a token of at least 16 plain characters: --token-file FILE, or "
            "DELTADEX_TOKEN in the environment"
        )
    return token


def _warn(host: str) -> None:
    for line in (
        f"WARNING: listening on {host}, not only on this machine.",
        "Everybody who reaches this address can read the whole catalog.",
        "There is no encryption: whatever is sent, a token too, can be read on the way.",
        "Put a proxy with TLS and access control in front (docs/service.md).",
    ):
        click.echo(line, err=True)


def _show_service(document: Mapping[str, Any]) -> None:
    mode = "writable with the token" if document["writable"] else "read-only"
    click.echo(f"deltadex serves {document['address']} ({mode}); Ctrl-C ends it")
    sys.stdout.flush()


@record
class AnyExport(database.Export, database.ExportScores):
    """What is written of the catalog, and where; one of three questions."""

    stability = "stable"  # what --to and --scores write is provisional

    target: Any = argument(default=None, file="any")
    _: KW_ONLY
    to: str | None = option(
        default=None,
        metavar="qdrant://HOST[:PORT]/COLLECTION",
        help="Bring one recipe's vectors to Qdrant.",
    )
    scores: bool = option(
        default=False,
        help="Write every query's ranking that `eval` computes into one Parquet file; --exclude, "
        "--with-unlabelled and --way belong to it.",
    )

    def check(self) -> None:
        """Raises `click.UsageError` where options do not belong together."""
        if (self.target is None) == (self.to is None):
            raise click.UsageError("give TARGET, or --to for Qdrant")
        if self.to is not None and (self.scores or self.format != "parquet"):
            raise click.UsageError("--to writes vectors: leave out --scores and --format")
        if self.scores and self.format != "parquet":
            raise click.UsageError("--scores writes Parquet")
        is_default = tuple(self.ways) == database.ExportScores.ways
        if not self.scores and (self.exclude or self.with_unlabelled or not is_default):
            raise click.UsageError("--exclude, --with-unlabelled and --way belong to --scores")


@command(AnyExport, prints_table=False)
def export(common: Common, asked: AnyExport) -> None:
    """Write the catalog to TARGET for other tools, or its vectors to Qdrant with --to.

    An export to Qdrant writes what differs: run it again after models were added, or after it was
    stopped. The API key of a server is read from QDRANT_API_KEY.

    \b
    Example:
      deltadex export ./tables
      deltadex export models.parquet
      deltadex export vectors.safetensors --format safetensors --base bert-base-uncased
      deltadex export --scores scores.parquet --exclude author
      deltadex export --to qdrant://localhost:6333/bert --base bert-base-uncased
    """
    asked.check()
    if asked.to is not None:
        when_stopped(lambda: FINISHED)
        vectors = database.ExportVectors(asked.to, recipe=asked.recipe, base=asked.base)
        print_answer(common, vectors, show_pairs)
        return
    with open_database(common) as db:
        wanted: database.Export | database.ExportScores = as_kind(database.Export, asked)
        if asked.scores:
            wanted = as_kind(database.ExportScores, asked)
        written = wanted.answer(db)
    print_document({"written": [str(path) for path in written]}, show_pairs, common)


def _show_publication(document: Mapping[str, Any]) -> None:
    click.echo(
        plain(f"{document['base']}: {count(document['models'], 'model')} in {document['target']}")
    )
    click.echo(
        f"{document['added']} added, {document['dropped']} dropped; "
        f"{size(document['written_bytes'])} written of {size(document['bytes'])}, "
        f"{document['bytes_per_model']:.0f} bytes per model ({document['size']})"
    )
    for reason, n in document["left_out"].items():
        click.echo(f"left out: {n} ({reason})")
    if not document["changed"]:
        click.echo("nothing changed")
    if "commit" in document:
        click.echo(
            plain(f"{size(document['uploaded_bytes'])} uploaded, commit {document['commit']}")
        )
    click.echo(f"manifest SHA-256 {document['manifest']}")


publish = asking(
    database.Publish,
    _show_publication,
    """Publish a family's fingerprints as an index into TARGET: a folder, or hf://datasets/OWNER/NAME.

    The index holds ids, labels, authors, licences, hashes, pooled vectors and shortened sketches,
    up to 16 KiB per model under the default recipe: no weights, no paths, no models that are
    private on the Hub. A later publication writes only what changed. An upload takes the token
    from HF_TOKEN.
    """,
    "publish gpt2-index",
    "publish hf://datasets/someone/gpt2-index --exclude removed.txt",
    prints_table=False,
)


@record
class Attaching(database.Attach):
    """An index, and what is done with it."""

    source: Any = argument(default=None)
    _: KW_ONLY
    lists: bool = option("--list", default=False, help="List the attached indexes.")
    refresh: bool = option(default=False, help="Fetch what changed, of all or of --name.")
    remove: str | None = option(default=None, metavar="NAME", help="Stop searching this index.")


@command(Attaching, continues=True)
def attach(common: Common, asked: Attaching) -> None:
    """Search a published index beside the catalog: a folder, an https:// address or hf://datasets/OWNER/NAME.

    Its files are copied beside the catalog and compared with the SHA-256 of its manifest.
    `find-similar` then searches it together with the catalog's own models of the same base and
    recipe; no other command does.

    \b
    Example:
      deltadex attach hf://datasets/someone/gpt2-index
      deltadex attach --refresh
      deltadex attach --remove gpt2-index
    """
    if sum(map(bool, (asked.source, asked.lists, asked.refresh, asked.remove))) != 1:
        raise click.UsageError("give one of SOURCE, --list, --refresh, --remove NAME")
    if asked.source:
        print_answer(common, asked, _show_index, read_only=False, create="late")
    elif asked.refresh:
        print_answer(common, database.RefreshAttached(asked.name), _show_indexes, read_only=False)
    else:
        if asked.remove:
            with open_database(common, read_only=False) as db:
                database.Detach(asked.remove).answer(db)
        print_answer(common, database.Attached(), _show_indexes)


def _show_indexes(document: Mapping[str, Any]) -> None:
    if not document["attached"]:
        click.echo("no index is attached")
    for row in document["attached"]:
        _show_index(row)


def _show_index(row: Mapping[str, Any]) -> None:
    fetched = f", {size(row['fetched_bytes'])} fetched" if "fetched_bytes" in row else ""
    click.echo(
        plain(
            f"{row['name']}: {count(row['models'], 'model')} of {row['base']} ({row['recipe']}), "
            f"{size(row['bytes'])}{fetched}, from {row['source']}"
        )
    )


@record
class Merging:
    """The catalogs that are named."""

    catalogs: tuple[Place, ...] = argument(
        several=True, file="existing or address", metavar="TARGET SOURCE..."
    )


@command(Merging, continues=True)
def merge(common: Common, merging: Merging) -> None:
    """Bring all that the SOURCE catalogs know into the catalog TARGET.

    A SOURCE is a catalog, or a folder of parts from `deltadex index --parts`; it is only read.
    What TARGET has stays: where a source has other weights or labels for a model of the same
    base and id, that is listed as a conflict. Merging again adds nothing. With --db every
    catalog named is a source, and the target is --db, which may be new.

    \b
    Example:
      deltadex merge all.duckdb machine-2.duckdb machine-3.duckdb
      deltadex merge machine-1.duckdb machine-2.duckdb --db all.duckdb
      deltadex merge parts/ --db all.duckdb
    """
    db_source = click.get_current_context().get_parameter_source("db")
    is_new = db_source is ParameterSource.COMMANDLINE
    names = merging.catalogs
    target, sources = (common.db, names) if is_new else (Path(names[0]), names[1:])
    if not sources:
        raise click.UsageError(
            f"nothing to merge into {target}: name the catalogs after it, or the target with --db"
        )
    with open_database(common, target, read_only=False, create=is_new and "late") as db:
        table = database.Merge(sources).answer(db)
    print_document(table, _show_merge, common)
    if (document := table.to_json())["damaged"]:
        is_any_taken = any(document[taken] for taken in TAKEN)
        sys.exit(EXIT_SOME_FAILED if is_any_taken else EXIT_NOTHING_DONE)


def _show_merge(document: Mapping[str, Any]) -> None:
    for source in document["sources"]:
        counts = ", ".join(f"{source[key]} {key}" for key in ("added", "updated", "unchanged"))
        differing = f", {source['differing']} of other weights" if source["differing"] else ""
        data = f", data sets added: {source['data_sets']}" if source["data_sets"] else ""
        click.echo(f"{source['source']}: {counts}{differing}{data}")
    click.echo(
        f"{document['target']}: {count(document['models'], 'model')}, {document['seconds']:.1f} s"
    )
    for reason in document["damaged"]:
        click.echo(plain(f"left out: {reason}"))
    _show_conflicts(document["conflicts"])


def _show_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> None:
    if conflicts:
        click.echo(f"\n{count(len(conflicts), 'conflict')} (the target's values were kept):")
    for conflict in conflicts[:CONFLICTS_SHOWN]:
        name = conflict["model"] or conflict["base"]
        click.echo(f"  {plain(name)}: {conflict['about']}")
        ours, theirs = conflict["kept"], conflict["other"]
        for key in ours:
            if ours[key] != theirs[key]:
                click.echo(plain(f"    {key}: {_text(ours[key])}, not {_text(theirs[key])}"))
    if len(conflicts) > CONFLICTS_SHOWN:
        click.echo(f"  … and {len(conflicts) - CONFLICTS_SHOWN} more: --json lists them")


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)
