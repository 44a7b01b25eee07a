"""A plan for people: what would be read, refused, requested and stored, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .progress import duration
from .tables import console, print_rows, text
from .text import count, size

Document = Mapping[str, Any]


def show_plan(document: Document) -> None:
    """The whole plan."""
    screen = console()
    models, read = document["models"], document["bytes"]
    parts = [
        f"{models[key]} {word}"
        for key, word in (
            ("in_catalog", "in the catalog already"),
            ("refused", "refused"),
            ("excluded", "excluded"),
        )
        if models[key]
    ]
    rest = f" ({', '.join(parts)})" if parts else ""
    screen.print(
        f"{text(document['base'])}: [bold]{models['to_read']}[/] of "
        f"{count(models['listed'], 'model')} "
        f"would be read{rest} · recipe {document['recipe']}"
    )
    if document["groups"]:
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
        print_rows(screen, ("kind", "format", "models", "files", "to read"), rows)
    line = f"bytes: {_about(read['to_read'], _is_estimate(read))} to read"
    if document["share"] < 1:
        line += f" (budget {document['budget']}), {size(read['to_read_whole'])} without a budget"
    if read["base"]:
        line += f"; the base {size(read['base'])}"
    if read["base_again"]:
        line += f", and {size(read['base_again'])} of it again"
    screen.print(line)
    screen.print(f"sizes from: {_listed(read['sizes_from']) or 'nothing'}", style="dim")
    _show_requests(document)
    hours = document["hours"]
    screen.print(
        f"time: about {duration(3600 * hours['total'])} with {hours['workers']} "
        f"worker{'s' * (hours['workers'] != 1)} at "
        f"{hours['bandwidth_bits_per_s'] / 1e6:,.0f} Mbit/s each; {hours['binds']} decides"
    )
    disk = document["disk"]
    screen.print(
        f"disk: {size(disk['total'])}, {size(disk['per_model'] + disk['derived_per_model'])} a "
        f"model of {count(disk['slots'], 'slot')}"
    )
    if document["refused"]:
        refusals = [
            (row["code"], row["models"], row["meaning"], ", ".join(row["examples"]))
            for row in document["refused"]
        ]
        print_rows(screen, ("code", "models", "meaning", "such as"), refusals)
    for note in document["notes"]:
        screen.print(f"note: {text(note)}", style="dim")


def _show_requests(document: Document) -> None:
    """Requests of the run and of the plan, where there are any."""
    requests, screen = document["requests"], console()
    if sum(requests["run"].values()):
        limits = ", ".join(
            f"{limit['requests']} {kind}" for kind, limit in requests["limits"].items()
        )
        waits = duration(60 * requests["minutes"])
        screen.print(
            f"requests: {_listed(requests['run'])}; limits in 5 min: {limits} "
            f"({requests['limits_of']}); they make it wait {waits}"
        )
    if requests["plan"]:
        screen.print(f"this plan took: {_listed(requests['plan'])} requests", style="dim")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


def _about(n_bytes: int, estimated: object) -> str:
    return f"about {size(n_bytes)}" if estimated else size(n_bytes)


def _is_estimate(read: Document) -> bool:
    return bool(read["sizes_from"].keys() - {"files", "requested"})
