"""The catalog for an assistant: `mcp`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import KW_ONLY
from functools import partial

from ..errors import RequestError
from ..options import option, record
from ..questions.face.database import open as open_catalog
from ..questions.terminal.command_line import Common, command_with


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


@command_with(Assisting, prints_table=False)
def command(common: Common, assisting: Assisting) -> None:
    """Serve the catalog to an assistant, by the Model Context Protocol on stdin and stdout.

    Tools: find_models, find_similar, find_trained_on, trace, show, sql and words; all of them only
    read. An assistant starts this command itself: docs/mcp.md has the lines for its settings.

    \b
    Example:
      deltadex mcp --db family.duckdb
      deltadex mcp --url http://127.0.0.1:8321
    """
    if not assisting.allow_hub:
        # before huggingface_hub is loaded, which reads it
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from .assistant import Tools, serve
    except ModuleNotFoundError as err:
        raise RequestError(f"mcp needs {err.name}: pip install 'deltadex[mcp]'") from err

    offline = not assisting.allow_hub
    if assisting.url is not None:
        from .client.remote import connect

        with connect(assisting.url) as db:
            serve(Tools(lambda: nullcontext(db), are_local=False, offline=offline))
        return
    opened = partial(open_catalog, common.db, read_only=True)
    with opened():
        pass  # what is wrong with it is said now, and not to the assistant
    serve(Tools(opened, are_local=True, offline=offline))
