"""What models were trained on, in words, drawn for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from .console import print_table, screen
from .text import count, plain

Document = Mapping[str, Any]

WORDS_SHOWN = 60
"""Words on the screen; --json has all that were asked for."""


def show_words(document: Document) -> None:
    """The sentence, then the words in lines."""
    print_ = screen().print
    print_(f"[bold]{_text(document['model'])}[/]: {_text(document['sentence'])}")
    if document["note"]:
        print_(f"note: {_text(document['note'])}", style="dim")
    if document["touched"]:
        of = f"{document['touched']:,} of {document['vocabulary']:,} tokens were touched"
        print_(f"{of} ({document['touched'] / document['vocabulary']:.1%})", style="dim")
    _print_words(document["seen"])
    if document["answers_to"]:
        print_("its update answers most to:")
        _print_words(document["answers_to"])
    if document.get("only_other"):
        print_(f"words that only {_text(document['against'])} saw:")
        _print_words(document["only_other"])


def _print_words(rows: list[Document]) -> None:
    if rows:
        screen().print(_listed([row["word"] for row in rows]))


def _listed(words: Sequence[str]) -> str:
    more = len(words) - WORDS_SHOWN
    tail = f" … and {more} more" if more > 0 else ""
    return _text(", ".join(words[:WORDS_SHOWN]) + tail)


def show_text_search(document: Document) -> None:
    """The models that answer to a text, and by which words."""
    print_ = screen().print
    asked = _listed(document["asked"])
    about = f"models that answer to [bold]{asked}[/]: " if asked else ""
    print_(f"{about}{_text(document['verdict'])}")
    if document["unknown"]:
        print_(f"not asked, common or not known: {_listed(document['unknown'])}", style="dim")
    if document["neighbours"]:
        _print_text_matches(document)
    for left in document["left_out"]:
        print_(_text(f"{left['base']}: {left['reason']}"), style="dim")


def _print_text_matches(document: Document) -> None:
    screen().print(
        f"of {count(document['compared'], 'model')}, {_text(document['meaning'])}", style="dim"
    )
    heads = ("rank", "model", "verdict", "by chance", "words", "dataset")
    rows = [
        (
            str(row["rank"]),
            plain(row["model"]),
            row["verdict"],
            f"{row['by_chance']:.1%}",
            plain(", ".join(row["words"])),
            plain(row["dataset"] or ""),
        )
        for row in document["neighbours"]
    ]
    print_table(heads, rows)


def show_word_matches(document: Document) -> None:
    """The models that a file's words fit, and what a row proves."""
    query, rows = document["query"], document["neighbours"]
    print_ = screen().print
    print_(f"models by the words of [bold]{_text(query['texts'])}[/]: nothing was run")
    print_(_text(query["reading"]), style="dim")
    n_trained = sum(row["probability"] is not None for row in rows)
    compared = count(document["compared"], "model")
    if not rows:
        print_(f"[bold]no model of {compared} can be compared[/]")
    elif n_trained:
        verb = "was" if n_trained == 1 else "were"
        least = max(row["accident"] for row in rows if row["probability"] is not None)
        print_(
            f"[bold]{n_trained} of {compared} {verb} trained on this file, or on one that contains "
            f"it[/]; by accident in less than {least:.0e} of other files"
        )
    else:
        print_(f"[bold]of none of {compared} can it be said that this file trained it[/]")
    if document["without_footprint"]:
        print_(
            f"not compared: {count(document['without_footprint'], 'model')} without a footprint "
            "(adapters, frozen embeddings); leave out --quick to ask them by gradients"
        )
    heads = ("rank", "model", "touched", "missing", "by chance", "dataset", "author")
    print_table(heads, [[_cell(head, row) for head in heads] for row in rows])
    for left in document["left_out"]:
        print_(_text(left["reason"]), style="dim")
    print_(f"It says at most: {_text(document['meaning'])}", style="dim")


def _cell(head: str, row: Document) -> str:
    if head == "by chance":
        return f"{row['missing_by_chance']:,.0f}"
    value = row[head]
    return f"{value:,}" if isinstance(value, int) else plain(value or "")


def _text(value: object) -> str:
    return escape(plain(str(value)))
