"""The base that a model comes from: `trace`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path

from ..options import Place, Question, argument, option, record
from ..results import Document, Row, Shown, Table, count, share, size
from .face.opened import Opened
from .terminal.command_line import asking
from .terminal.text import plain

LAYERS_SHOWN = 64
"""Pairs of layers that a line shows; --json has all."""


class TraceTable(Table):
    """Where a model comes from; a row for each pair of layers: `model`, `base`."""

    columns = ("model", "base")

    def _rows(self) -> Sequence[Row]:
        return [{"model": child, "base": base} for child, base in self._document["layers"]]


@record
class Trace(Question):
    """Find the base that a model comes from, and what was done to it.

    Its weights are compared with those of every known base (`deltadex bases ls`): fine-tunes,
    continued pretraining, quantised and pruned copies, layers dropped, duplicated and moved,
    vocabularies grown and cut. p is how likely unrelated weights agree as much; above 1e-6 the
    answer is "unknown". Of a plain fine-tune on the Hub at most 1 MiB is read.

    Returns:
        A document: `model`, `base`, `verdict`, `p`, `layers`, `changes`, `parents`, `method`,
        `reconstructed_share`; and a row for each pair of layers.

    Raises:
        UnknownModel: there is no such model.
        RequestError: it cannot be read, or no base is known.

    >>> db.trace("imdb-0").to_json()["verdict"]
    'fine-tune'
    """

    stability = "provisional"

    model: str = argument(help="An indexed id, a folder, or a Hub id.")
    _: KW_ONLY
    base: str | None = option(default=None, help="Family of an indexed id that several have.")
    offline: bool = option(default=False, help="Read only files that are on this machine.")
    mergekit: Place | None = option(
        default=None,
        metavar="FILE",
        doors="local",
        file="file",
        help="Write the config file with which mergekit makes the same merge.",
    )

    def answer(self, db: Opened) -> TraceTable:
        from ..provenance import trace_model

        catalog = db._catalog
        document = trace_model(
            catalog,
            str(self.model),
            catalog.find_base(self.base),
            track=db._track,
            offline=self.offline,
            mergekit=None if self.mergekit is None else Path(self.mergekit),
        )
        return TraceTable(document)


def show_trace(document: Document) -> Shown:
    """A sentence, then the layers, where they are not the base's in order, and what was done."""
    yield document["sentence"]
    pairs = document["layers"]
    if any(child != base for child, base in pairs):
        shown = " ".join(f"{child}←{base}" for child, base in pairs[:LAYERS_SHOWN])
        more = " …" if len(pairs) > LAYERS_SHOWN else ""
        yield f"  layers (of the model ← of the base): {shown}{more}"
    for change in document["changes"]:
        yield f"  {change}"
    if document["p"] is not None:
        distance = document["distance"]
        beside = "" if distance is None else f", |ΔW|/|W| {distance:.3g} over the sampled entries"
        yield f"  p {document['p']:.2g}{beside}"
    yield from _show_merge(document)
    for row in document["alternatives"]:
        far = "" if row["distance"] is None else f" (|ΔW|/|W| {row['distance']:.3g})"
        yield f"  also fits: {row['base']}{far}"
    yield from document["notes"]
    if document["bytes_total"]:
        read, total = size(document["bytes_read"]), size(document["bytes_total"])
        yield f"  read {read} of {total}, beside {count(document['bases'], 'base')}"


def _show_merge(document: Document) -> Shown:
    """The parents of a merge with their weights, and how much of it the rows prove."""
    for row in document["parents"]:
        equal = f" (or {', '.join(map(plain, row['equal']))})" if "equal" in row else ""
        varies = ", by layer" if "layers" in row else ""
        yield f"  parent {row['model']}{equal}, weight {row['weight']:.4g}{varies}"
    if document["merge"] and document["merge"] not in document["sentence"]:
        yield f"  {document['merge']}"
    if document["parents"] and document["reconstructed_share"] is not None:
        found, chance = share(document["reconstructed_share"]), share(document["chance_share"])
        line = f"{found} of the sampled entries ({chance} by chance)"
        said = "reproduced from its parents" if document["complete"] else "not reproduced; at best"
        yield f"  {said}: {line}"
    if "written" in document:
        yield f"  written: {document['written']}"


command = asking(
    Trace, show_trace, "trace someone/bert-imdb", "trace ./my-model --json", read_only=None
)
