"""The catalog over HTTP: `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import Any

import click

from ..errors import RequestError
from ..options import option, record
from ..questions.terminal.command_line import Common, Engine, command_with, print_document
from .api.settings import MIN_TOKEN, ServiceSettings


@record
class Writing:
    """Who may change the catalog."""

    _: KW_ONLY
    writable: bool = option(default=False, help="Models may be added and removed with a token.")
    token_file: Path | None = option(
        default=None,
        file="existing file",
        shown_default="$DELTADEX_TOKEN",
        help="File with the token that writers present.",
    )


@command_with(ServiceSettings, Writing, Engine, prints_table=False)
def command(common: Common, settings: ServiceSettings, writing: Writing, engine: Engine) -> None:
    """Answer questions about the catalog over HTTP, for programs and with a page for people.

    It listens on this machine only and changes nothing, unless options say otherwise.

    \b
    Example:
      deltadex serve --port 8321
      DELTADEX_TOKEN=$(cat token) deltadex serve --writable
      deltadex serve --engine qdrant://localhost:6333/bert
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything is loaded that reads it
    try:
        from .api import server
        from .api.searchers import set_up_process
        from .api.service import Service
    except ModuleNotFoundError as err:
        raise click.UsageError(f"serving needs {err.name}: pip install 'deltadex[serve]'") from err

    set_up_process()
    if writing.writable:
        settings = replace(settings, token=_token(writing.token_file))
    if not settings.is_local:
        _warn(settings.host)
    with (
        server.ends_in_time() as ending,
        server.listen(settings) as listening,
        Service(settings) as service,
    ):
        document = {"address": server.address(settings, listening), "writable": settings.writable}
        server.run_server(
            server.make_app(service),
            settings,
            listening,
            lambda: print_document(document, _show_service, common),
            ending,
        )


def _token(file: Path | None) -> str:
    token = file.read_text("utf-8") if file is not None else os.environ.get("DELTADEX_TOKEN", "")
    token = token.strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
        raise RequestError(
            f"--writable needs a token of at least {MIN_TOKEN} plain characters: "
            "--token-file FILE, or DELTADEX_TOKEN in the environment"
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
