"""What indexing would read, refuse, request and store: `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from functools import partial
from typing import Any

from ..indexer import FamilyOptions
from ..options import Place, as_kind, option, record
from ..results import Document, Section, Shown, Table, count, size
from .face.opened import Opened
from .index import each_family, show_families
from .terminal.command_line import asking
from .terminal.text import duration

COMPARED = {
    "sha256": "compared with a listed SHA-256",
    "crc": "compared with a CRC",
    "unverified": "not compared with what is listed",
    "nothing listed": "without a listed checksum (files on disk)",
}
"""How bytes were compared, in words."""


class PlanTable(Table):
    """What indexing a family would read: a row for each kind and format of its models.

    A row has `kind`, `format`, `models`, `bytes_files`, `bytes_to_read`, and `estimated`, the
    number of models whose size is an estimate. A document also has `models` (counts), `refused`,
    `bytes`, `requests`, `walk`, `hours`, `disk` and `notes`; of a folder of several families
    `families`, a plan each, and `left_out`.
    """

    columns = ("kind", "format", "models", "bytes_files", "bytes_to_read", "estimated")
    _key = "groups"


@record
class Plan(FamilyOptions):
    """Say what indexing a base's family would read, refuse, request and store.

    Reads listings and headers, no weights. FOLDER alone is planned family by family, as `index`
    reads it. --workers counts machines that share the work, each with a connection of --bandwidth.
    `index` takes the listing over within 24 hours.

    Raises:
        SourceError, BaseError: as `index`.
        RequestError: `bandwidth` is not understood.

    >>> db.plan("base", "models").to_json()["models"]["in_catalog"]
    4
    """

    stability = "provisional"

    _: KW_ONLY
    parts: Place | None = option(default=None, doors="python", help="Parts, as `index` has them.")
    share: str | None = option(default=None, doors="python", help="Share, as `index` has it.")
    device: str = option(default="auto", doors="python", help="Device, as `index` has it.")
    bandwidth: str = option(
        default="1Gbit",
        metavar="RATE",
        help="Connection of each of the --workers: 1Gbit, 200Mbit, 50MB.",
    )

    def answer(self, db: Opened) -> PlanTable:
        from ..indexer import IndexOptions, make_plan

        track: Any = partial(db._track, what="listing")

        def plan(asked: Plan) -> Document:
            options = as_kind(IndexOptions, asked)
            return make_plan(db._catalog, options, asked.bandwidth, track).to_json()

        if (several := each_family(self, plan, db)) is None:
            return PlanTable(plan(self))
        plans, left_out = several
        groups = [{"base": one["base"], **row} for one in plans for row in one["groups"]]
        return PlanTable({"groups": groups, "families": plans, "left_out": left_out})


def show_plan(document: Document) -> Shown:
    if "families" in document:
        yield from show_families(document, show_plan)
        return
    models, read = document["models"], document["bytes"]
    words = {"in_catalog": "in the catalog already", "refused": "refused", "excluded": "excluded"}
    parts = [f"{models[key]} {word}" for key, word in words.items() if models[key]]
    rest = f" ({', '.join(parts)})" if parts else ""
    yield (
        f"{document['base']}: {models['to_read']} of "
        f"{count(models['listed'], 'model')} would be read{rest} · recipe {document['recipe']}"
    )
    rows = [
        (
            row["kind"],
            row["format"],
            row["models"],
            _about(row["bytes_files"], row["estimated"]),
            _about(row["bytes_to_read"], row["estimated"] or document["share"] < 1),
        )
        for row in document["groups"]
    ]
    yield Section.of(("kind", "format", "models", "files", "to read"), rows)
    is_estimate = read["sizes_from"].keys() - {"files", "requested"}
    line = f"bytes: {_about(read['to_read'], is_estimate)} to read"
    if document["share"] < 1:
        line += f" (budget {document['budget']}), {size(read['to_read_whole'])} without a budget"
    if read["base"]:
        line += f"; the base {size(read['base'])}"
    if read["base_again"]:
        line += f", and {size(read['base_again'])} of it again"
    yield line
    yield f"sizes from: {_listed(read['sizes_from']) or 'nothing'}"
    yield from _show_requests(document["requests"])
    hours, disk = document["hours"], document["disk"]
    yield (
        f"time: {duration(3600 * hours['total'])} to {duration(3600 * hours['at_most'])} with "
        f"{count(hours['workers'], 'worker')} at "
        f"{hours['bandwidth_bits_per_s'] / 1e6:,.0f} Mbit/s each; {hours['binds']} decides"
    )
    yield (
        f"disk: {size(disk['total'])}, {size(disk['per_model'] + disk['derived_per_model'])} a "
        f"model of {count(disk['slots'], 'slot')}"
    )
    refusals = [row | {"such as": ", ".join(row["examples"])} for row in document["refused"]]
    yield Section.of(("code", "models", "meaning", "such as"), refusals)
    for note in document["notes"]:
        yield f"note: {note}"


def _show_requests(requests: Document) -> Shown:
    if sum(requests["run"].values()):
        limits = ", ".join(
            f"{limit['requests']} {kind}" for kind, limit in requests["limits"].items()
        )
        yield (
            f"requests: {_listed(requests['run'])}; limits in 5 min: {limits} "
            f"({requests['limits_of']}); they make it wait {duration(60 * requests['minutes'])}"
        )
    if requests["plan"]:
        yield f"this plan took: {_listed(requests['plan'])} requests"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


def _about(n_bytes: int, estimated: object) -> str:
    return f"about {size(n_bytes)}" if estimated else size(n_bytes)


command = asking(
    Plan,
    show_plan,
    "plan bert-base-uncased --hub --budget 20MB --exclude quantized --workers 4",
    read_only=False,
    create="late",
)
