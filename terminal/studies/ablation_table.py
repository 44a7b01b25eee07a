"""The table of an ablation study."""

from __future__ import annotations

from ..tables import Document, console, print_rows, text
from ..text import count

HEADS = {
    "masked-own": "{predicts} tokens, own head",
    "masked-trained": "{predicts} tokens, trained",
    "senses-knn": "senses, kNN",
    "senses-mlp": "senses, MLP",
    "senses-mlp-lemma": "senses, MLP per lemma",
    "tagging": "tags, macro-F1",
}

FEWEST_ITEMS = 30
"""With fewer a 95 % interval is wider than ± 0.17 at one half."""

TIED = 1e-9


def show_ablation(document: Document) -> None:
    """A row for each subset of terms, a column for each measure; the best of a column is marked."""
    screen = console()
    screen.print(
        f"ablation of [bold]{text(document['model'])}[/] · behind layer {document['layer']} of the "
        f"{document['stack']} · {count(document['texts'], 'text')}"
    )
    measures = document["measures"]
    heads = [
        HEADS[m["key"]].format(predicts=m["settings"].get("predicts", "masked")) for m in measures
    ]
    rows = [
        (label, *(_cell(measure, row) for measure in measures))
        for row, label in enumerate(score["subset"] for score in measures[0]["subsets"])
    ]
    sizes = ("test items", *(m["n_items"] for m in measures))
    print_rows(screen, ("terms", *heads), [*rows, sizes])
    letters = zip(
        (s["subset"] for s in measures[0]["subsets"] if len(s["terms"]) == 1),
        document["terms"],
        strict=True,
    )
    meaning = ", ".join(f"{letter} {term.replace('_', '-')}" for letter, term in letters)
    screen.print(f"  terms: {meaning}; none: the baseline, without any term", style="dim")
    spreads = [s["sd"] for m in measures for s in m["subsets"] if s["sd"] is not None]
    n_runs = max(m["n_runs"] for m in measures)
    over_runs = f"; sd over {n_runs} runs up to {max(spreads):.3f}" if spreads else ""
    screen.print(
        f"  share of right answers, ± half a 95 % interval over texts{over_runs}; * best",
        style="dim",
    )
    for measure in measures:
        if measure["n_items"] < FEWEST_ITEMS:
            screen.print(
                f"  [yellow]{measure['key']}[/]: {measure['n_items']} test items are too few to "
                "tell subsets apart; give more texts"
            )
    if document["absent"]:
        screen.print(f"  absent: {', '.join(document['absent'])}", style="dim")
    for skipped in document["skipped"]:
        screen.print(f"  [yellow]{skipped['measure']}[/]: {text(skipped['reason'])}")


def _cell(measure: Document, row: int) -> str:
    """The score of a subset; the best are marked where they are above the baseline."""
    baseline, *_ = measure["subsets"]
    score = measure["subsets"][row]
    best = max(subset["value"] for subset in measure["subsets"])
    half = (score["high"] - score["low"]) / 2
    is_best = score["value"] > best - TIED and best > baseline["value"] + TIED
    return f"{score['value']:.3f} ±{half:.3f}{' *' if is_best else ''}"
