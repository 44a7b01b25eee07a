"""`deltadex serve`: a catalog as a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import RequestError
from ..terminal.options import Common, engine_option, option, takes
from .output import print_document

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where the service listens, and what it allows."""

    host: str = option("--host", default="127.0.0.1", help="The address to listen on.")
    port: int = option("--port", type=click.IntRange(0, 65535), default=8321, help="Its port.")
    writable: bool = option("--writable", help="Models may be added and removed with a token.")
    token_file: Path | None = option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Holds the token that writers present.  [default: $DELTADEX_TOKEN]",
    )
    allow_hub: bool = option("--allow-hub", help="Requests may have models fetched from the Hub.")
    allow_hosts: tuple[str, ...] = option(
        "--allow-host", multiple=True, help="Another name of this service."
    )
    body_limit: int = option(
        "--body-limit",
        type=click.IntRange(min=1),
        default=64,
        help="Largest adapter upload, in MiB.",
    )
    max_seconds: float = option(
        "--max-seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        help="Run time of one request.",
    )
    engine: str = engine_option()
    root_path: str = option(
        "--root-path",
        default="",
        show_default=False,
        help="The prefix under which a proxy shows the service.",
    )


@click.command()
@takes(Serving)
def serve(common: Common, serving: Serving) -> None:
    """Answer questions about the catalog over HTTP, for programs and with a page for people.

    It listens on this machine only and changes nothing, unless options say otherwise.

    \b
    Example:
      deltadex serve --port 8321
      DELTADEX_TOKEN=$(cat token) deltadex serve --writable
      deltadex serve --engine edge:./vectors
    """
    # before anything is loaded that reads it
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        from ..web.service import (
            Service,
            ServiceSettings,
            address,
            listen,
            make_app,
            run_server,
            set_up_process,
        )
    except ModuleNotFoundError as err:
        raise click.UsageError(f"serving needs {err.name}: pip install 'deltadex[serve]'") from err

    set_up_process()
    settings = ServiceSettings(
        db=common.db,
        token=_token(serving.token_file) if serving.writable else None,
        host=serving.host,
        port=serving.port,
        allow_hub=serving.allow_hub,
        allow_hosts=serving.allow_hosts,
        body_limit=serving.body_limit * MIB,
        max_seconds=serving.max_seconds,
        root_path=serving.root_path,
        engine=serving.engine,
    )
    if not settings.is_local:
        _warn(settings.host)
    with listen(settings) as listening, Service(settings) as service:
        document = {"address": address(settings, listening), "writable": settings.writable}
        run_server(
            make_app(service),
            settings,
            listening,
            lambda: print_document(document, _show, common),
        )


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


def _show(document: Mapping[str, Any]) -> None:
    mode = "writable with the token" if document["writable"] else "read-only"
    click.echo(f"deltadex serves {document['address']} ({mode}); Ctrl-C ends it")
    sys.stdout.flush()
