"""Where a model comes from, and what can be made of its update."""

from __future__ import annotations

from .. import database, terminal
from .command_line import Common, command, print_document, tracker


@command(database.ExtractAdapter)
def extract_adapter(common: Common, asked: database.ExtractAdapter) -> None:
    """Write a LoRA adapter that turns the base into MODEL, as a folder that PEFT loads.

    Layer matrices become low-rank factors; norms, heads, grown embeddings and all else that differs
    from the base are saved whole. The error is what the factors leave out of the update.

    \b
    Example:
      deltadex extract-adapter someone/bert-imdb -o bert-imdb-lora --rank 16
      deltadex extract-adapter ./my-run -o my-lora --bytes 20MB --dtype bfloat16
    """
    # a folder is extracted without a catalog, too
    path = common.db if common.db.exists() else None
    with database.open(path, read_only=path is not None, track=tracker(quiet=common.quiet)) as db:
        table = asked.answer(db)
    print_document(table.to_json(), lambda document: terminal.show_extraction(document), common)
