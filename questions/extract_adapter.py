"""A full fine-tune as a LoRA adapter: `extract-adapter`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Literal

from ..errors import RequestError
from ..options import Place, Question, argument, option, record
from ..results import Document, Section, Shown, Table, share, size
from .face.opened import Opened
from .terminal.command_line import asking


class ExtractionTable(Table):
    """An extracted adapter: `slot`, `module`, `rank` and `error` of every layer module that the
    model changed. A document also has `path`, `bytes` and `error` of the whole, `dtype`, `task`,
    `saved` (modules that are in it whole), `biases` (how they are written) and `notes`."""

    columns = ("slot", "module", "rank", "error")
    _key = "slots"


@record
class ExtractAdapter(Question):
    """Write a LoRA adapter that turns the base into a full fine-tune, as a folder that PEFT loads.

    Layer matrices become low-rank factors; norms, heads, grown embeddings and all else that differs
    from the base are saved whole. The error is what the factors leave out of the update.

    Returns:
        A row for each layer module that changed: `slot`, `module`, `rank`, and `error`, the share
        of |ΔW| that is left out (0…1), as measured on what is written.

    Raises:
        RequestError: the model has no base that is known, is an adapter already, equals its base,
            or cannot be read; the budget is too small; the folder is not empty.
        StoreFull: the folder cannot be written.

    >>> db.extract_adapter("imdb-0", "imdb-0-lora", rank=2)[0]["rank"]
    2
    """

    stability = "provisional"

    model: str = argument(help="an id, a folder or a Hub id of a full fine-tune.")
    output: Place = option("-o", "--output", help="The folder to write.", file="any")
    _: KW_ONLY
    rank: int | None = option(
        default=None,
        least=1,
        help="Rank of every layer matrix.",
        shown_default="16, without --bytes",
    )
    bytes: str | None = option(
        default=None,
        help="Size of the folder, such as 20MB; ranks are dealt out to the layers that gain most.",
    )
    dtype: Literal["float32", "float16", "bfloat16"] = option(
        default="float32", help="Type of the factors; half of float32 buys twice the ranks."
    )
    base: str | None = option(default=None, help="The base: its name, a Hub id or a folder.")
    force: bool = option(default=False, help="Replace the adapter that is in the folder.")

    def answer(self, db: Opened) -> ExtractionTable:
        from ..indexer import open_update
        from ..provenance import MATRIX_BYTES, extract_adapter, parse_bytes
        from ..study.study import find_subject

        if self.rank is not None and self.bytes is not None:
            raise RequestError("give --rank or --bytes, not both")
        budget = None if self.bytes is None else parse_bytes(self.bytes)
        subject = find_subject(db._catalog, self.model, self.base)
        source, base = subject.require_source(), subject.require_base()
        with open_update(db._catalog, source, base, matrix_bytes=MATRIX_BYTES) as update:
            document = extract_adapter(
                update,
                Path(self.output),
                rank=self.rank,
                budget=budget,
                dtype=self.dtype,
                replaces=self.force,
                track=db._track,
            )
        return ExtractionTable(document | {"model": subject.name})


def show_extraction(document: Document) -> Shown:
    """Where the adapter is, what it leaves out, and the layers' ranks."""
    rows = [(row["slot"], str(row["rank"]), share(row["error"])) for row in document["slots"]]
    yield Section.of(("layer matrix", "rank", "left out of |ΔW|"), rows)
    saved = document["saved"]
    if saved:
        more = f" and {len(saved) - 4} more" if len(saved) > 4 else ""
        yield f"saved whole: {', '.join(saved[:4])}{more}"
    yield from document["notes"]
    line = f"{size(document['bytes'])}, {share(document['error'])} of the layers' update left out"
    yield f"{document['path']}: {line}"


command = asking(
    ExtractAdapter,
    show_extraction,
    "extract-adapter someone/bert-imdb -o bert-imdb-lora --rank 16",
    "extract-adapter ./my-run -o my-lora --bytes 20MB --dtype bfloat16",
    or_none=True,
)
