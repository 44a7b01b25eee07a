"""Documents of the JSON contracts, drawn as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..errors import REASONS
from ..results import Section
from .text import cell_text, count, plain, share, size

Document = Mapping[str, Any]

MODEL_COLUMNS = ("model", "status", "code", "dataset", "author", "run")

NUMBERS = ("z", "±", "fdr", "cosine", "examples", "control", "effect", "95 %", "p")

NEIGHBOUR_COLUMNS = ("rank", "model", "verdict", "z", "fdr", "cosine", "dataset", "author")

COMPARED = {
    "sha256": "compared with a listed SHA-256",
    "crc": "compared with a CRC",
    "unverified": "not compared with what is listed",
    "nothing listed": "without a listed checksum (files on disk)",
}
"""How bytes were compared, in words."""

NOTHING_STANDS_OUT = "no model stands out"
"""The verdict of a neighbour that is as near as strangers are."""


class Screen(Console):
    """A console of rich, which otherwise ends the process where its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Write no more to standard error; of standard output, the command line hears."""
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError


def show_report(document: Document) -> None:
    """What an indexing run did, and every model it refused."""
    screen = console()
    refused = len(document["failed"])
    parts = [f"[bold]{document['indexed']}[/] indexed", f"{document['unchanged']} unchanged"]
    if document["skipped_models"]:
        parts.append(f"{len(document['skipped_models'])} skipped")
    if refused:
        parts.append(f"[yellow]{refused} not indexed[/]")
    base_read = document["base_bytes_read"]
    of_models, wanted = document["bytes_read"] - base_read, document["bytes_wanted"]
    read = f"{size(of_models)} {f'of {size(wanted)} ' * (of_models <= wanted)}read"
    if base_read:
        read += f", and {size(base_read)} of the base"
    screen.print(
        f"{text(document['base'])}: {', '.join(parts)} · {read} in {document['seconds']:.1f} s"
    )
    if labels := document.get("labels"):
        screen.print(
            f"labels: {count(labels['rows'], 'row')}, {labels['matched']} matched", style="dim"
        )
    if guessed := document.get("labels_guessed"):
        screen.print(
            f"{count(guessed, 'label')} guessed from names of models: --labels FILE or `deltadex "
            "label` overrides",
            style="dim",
        )
    rows = [*document["failed"], *document["skipped_models"]]
    if rows:
        print_rows(screen, ("model", "code", "reason"), rows)
    if closed := sum(REASONS[row["code"]].by_rights for row in rows):
        screen.print(
            f"{count(closed, 'model')} not open to you: ask for access to gated ones on their "
            "pages, set HF_TOKEN to a token that may read them, and run again"
        )


def show_neighbours(document: Document) -> None:
    """A query's nearest models, which of them stand out, and how the fdr is known."""
    screen = console()
    query = document["query"]
    label = f" ({text(query['dataset'])})" if query["dataset"] else ""
    screen.print(f"nearest to [bold]{text(query['model'])}[/]{label} · recipe {document['recipe']}")
    neighbours = document["neighbours"]
    if not neighbours:
        screen.print("no other model passes the filters")
        return
    screen.print(f"[bold]{headline(document['neighbours'], document['compared'])}[/]")
    screen.print(how_calibrated(document["calibration"]), style="dim")
    is_joint = any(n.get("source") for n in neighbours)
    rows = [
        (
            str(n["rank"]),
            text(n["model"]),
            n["verdict"] if stands_out(n) else "",
            f"{n['z']:.1f}",
            rate(n["fdr"]),
            share(n["cosine"]),
            text(n["dataset"]),
            text(n["author"]),
            *([text(n["source"])] if is_joint else []),
        )
        for n in neighbours
    ]
    print_evidence((*NEIGHBOUR_COLUMNS, *(["source"] if is_joint else [])), rows)


def headline(neighbours: Sequence[Document], compared: int) -> str:
    """How many of the neighbours stand out, by verdict.

    Where the last of them stands out and is not the last model that was compared, more may.
    """
    counts = Counter(n["verdict"] for n in neighbours if stands_out(n))
    if not counts:
        return f"no model stands out among {compared} compared"
    last = neighbours[-1]["verdict"] if len(neighbours) < compared else None
    parts = (
        f"{verdict}: {count(n, 'model', or_more=verdict == last)}" for verdict, n in counts.items()
    )
    return f"{', '.join(parts)}, of {compared} compared"


def how_calibrated(calibration: Document) -> str:
    """What the rates of false discoveries were calibrated on."""
    if calibration["source"] != "labelled pairs":
        return "fdr from the null alone: too few labels to calibrate on"
    models = count(calibration["queries"], "labelled model")
    return f"fdr calibrated on {models}, {count(calibration['datasets'], 'dataset')} with siblings"


def stands_out(neighbour: Document) -> bool:
    return bool(neighbour["verdict"] != NOTHING_STANDS_OUT)


def rate(value: float) -> str:
    """0.0123 → `1.3 %`, rounded up so that no rate is shown below the limit that it missed."""
    tenths = ceil(round(1000 * value, 6))
    if value < 0.001:
        return "<0.1 %"
    return f"{tenths / 10:.1f} %" if tenths < 100 else _percent(value)


def show_explanation(document: Document, *, rows: int = 8) -> None:
    """Which roles, layers and slots carry the cosine of two models."""
    screen = console()
    screen.print(
        f"\n[bold]{text(document['model'])}[/]: cosine {document['similarity']:.3f}, carried by"
    )
    for title, name in (("role", "role"), ("layer", "layer"), ("feature", "block")):
        ranked = sorted(document[f"by_{name}"], key=lambda t: -t["contribution"])[:rows]
        shown = ", ".join(f"{text(t[name])} {_percent(t['share'])}" for t in ranked)
        screen.print(f"  {title:8}{shown}")
    slots = ", ".join(f"{s['slot']} {_percent(s['share'])}" for s in document["slots"][:rows])
    screen.print(f"  {'slot':8}{slots}")
    for key, whose in (("only_query", "the query"), ("only_model", "this model")):
        if document[key]:
            screen.print(f"  {count(len(document[key]), 'slot')} changed only by {whose}")


def show_models(
    document: Document, *, columns: Sequence[str] = MODEL_COLUMNS, wide: bool = False
) -> None:
    """One line per model, as `show_rows`."""
    models = document["models"]
    rows = [[model[column] for column in columns] for model in models]
    show_rows(columns, rows, wide=wide)
    total = document.get("total", len(models))
    if total > len(models):
        console().print(f"{len(models)} of {count(total, 'model')}", style="dim")


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False
) -> None:
    """One line per row, shortened to the width of the terminal unless `wide`."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(Text(plain(column)), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console(wide=wide).print(table)


def show_model(document: Document) -> None:
    """Everything known of one model, and its slots."""
    screen = console()
    for key, value in document.items():
        if key != "slots" and value not in (None, [], (), ""):
            lines = value if isinstance(value, list | tuple) else [value]
            for heading, line in zip((key, *[""] * len(lines)), lines, strict=False):
                screen.print(f"[dim]{heading:>15}[/]  {text(line)}")
    slots = document["slots"]
    if slots:
        rows = [
            (
                s["slot"],
                "×".join(map(str, s["shape"])),
                f"{s['fro_norm']:.3g}",
                "–" if s["relative_norm"] is None else f"{s['relative_norm']:.2e}",
                f"{s['stable_rank']:.1f}",
                share(s["energy"]),
                f"{s['noise_floor']:.1e}",
            )
            for s in slots
        ]
        heads = ("slot", "shape", "|ΔW|", "|ΔW|/|W|", "stable rank", "energy kept", "rounding")
        print_rows(screen, heads, rows)


def show_stats(document: Document) -> None:
    """Counts of the whole catalog."""
    screen = console()
    screen.print(f"{text(document['path'])} · {size(document['bytes'])}")
    print_rows(screen, ("base", "models", "indexed", "labelled", "datasets"), document["bases"])
    recipes = [recipe | {"recipe": recipe["id"]} for recipe in document["recipes"]]
    if recipes:
        print_rows(screen, ("base", "recipe", "rank", "dim", "models"), recipes)
    if indexed := sum(document["verified"].values()):
        shares = (
            f"{_percent(n / indexed)} {COMPARED[way]}" for way, n in document["verified"].items()
        )
        screen.print(f"bytes of weight files, by models: {', '.join(shares)}")
    if "content_sha256" in document:
        screen.print(f"content: sha256 {document['content_sha256']}")


def show_failures(document: Document) -> None:
    """Refused models, grouped by reason."""
    screen = console()
    if not document["failures"]:
        screen.print("no failures")
    for group in document["failures"]:
        screen.print(
            f"[bold]{group['code']}[/] ({group['status']}): "
            f"{group['meaning']} · {len(group['models'])}"
        )
        for model in group["models"]:
            screen.print(f"  {text(model['model'])}: [dim]{text(model['reason'])}[/]")


def console(*, wide: bool = False) -> Console:
    """A console as wide as its terminal; without a limit if `wide` or without a terminal."""
    screen = Screen(highlight=False, emoji=False)
    if wide or not screen.is_terminal:
        screen.width = 10_000
    return screen


def print_rows(
    screen: Console, heads: Sequence[str], rows: Sequence[Sequence[object] | Document]
) -> None:
    """A table of cells in the order of the heads, or of documents that have them as keys."""
    table = Table(*heads, box=None, header_style="dim", pad_edge=False)
    for row in rows:
        cells = [row[head] for head in heads] if isinstance(row, Mapping) else row
        table.add_row(*(Text("" if cell is None else plain(str(cell))) for cell in cells))
    screen.print(table)


def print_evidence(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of names, folded where the terminal is narrow, and of numbers, which are not."""
    table = Table(box=None, header_style="dim")
    for head in heads:
        is_number = head in NUMBERS
        table.add_column(
            head,
            justify="right" if is_number else "left",
            no_wrap=is_number or head in ("rank", "verdict"),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    console().print(table)


def show_study(sections: Iterable[Section], document: Document) -> None:
    """A study's sections, the models that could not be studied, and what is said of bases."""
    screen = console()
    note = ""
    for section in sections:
        shown, left = section.shortened()
        if note and left and note != _left_out(section, left):
            screen.print(note, style="dim")
        if shown.title:
            screen.print(Text(plain(shown.title), style="bold"))
        if shown.rows:
            print_rows(screen, [plain(str(head)) for head in shown.columns], shown.rows)
        for line in shown.notes:
            screen.print(Text(f"  {plain(line)}"))
        note = _left_out(section, left) if left else note
    if note:
        screen.print(note, style="dim")
    for model in document.get("failed", ()):
        screen.print(f"[yellow]{text(model['model'])}[/]: {text(model['reason'])}")
    for line in document.get("base_notes", ()):
        screen.print(f"[yellow]{text(line)}[/]")


def _left_out(section: Section, left: Sequence[object]) -> str:
    names = ", ".join(map(str, left))
    return f"  not shown: {section.noun} {names} (--json has them)"


def show_diff(document: Document) -> None:
    """A sentence, then roles, layers and the slots that differ most."""
    screen = console()
    first, second = map(text, document["models"])
    screen.print(f"[bold]{text(document['sentence'])}[/]")
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        norms = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        print_rows(screen, (title, first, second), norms[:12])
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["update_cosine"]),
        )
        for slot in document["most_different"]
    ]
    heads = (f"most different, {unit}", first, second, "stable rank", "update cosine")
    print_rows(screen, heads, rows)
    for name, profile in document["profiles"].items():
        edited = [
            f"{where['term']} of {stack} layer {where['layer']}"
            for stack, where in profile["most_edited"].items()
            if where
        ]
        screen.print(f"  {text(name)} edited most: {', '.join(edited) or 'nothing'}")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def text(value: object) -> str:
    return "" if value is None else escape(plain(str(value)))
