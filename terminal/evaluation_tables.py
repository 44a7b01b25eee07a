"""Evaluations, drawn as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from .tables import Document, console, print_rows, text
from .text import count, share, size


def show_evaluation(document: Document) -> None:
    """Same-dataset retrieval precision: a family's measures and datasets, or a row a family."""
    screen = console()
    screen.print(f"recipe [bold]{text(document['recipe'])}[/]{_setting(document)}")
    if "by_base" in document:
        print_rows(screen, *_table([document]))
        screen.print(f"  cost       {_cost(document['cost'])}")
    else:
        _show_family(screen, document)


def show_evaluations(document: Document) -> None:
    """Recipes or ways of scoring side by side, a row a family, and what a fingerprint takes."""
    documents = document.get("ways") or document["recipes"]
    print_rows(console(), *_table(documents, with_cost=True))


def _show_family(screen: Console, document: Document) -> None:
    screen.print(
        f"{_queries(document)} queries among {count(document['models'], 'model')}, "
        f"{count(document['datasets'], 'dataset')}; left out: {_left_out(document)}"
    )
    if document["note"]:
        screen.print(f"  [yellow]{document['note']}[/]")
    interval = document["ci95"]
    for name, value, note in (
        ("micro", document["micro"], f"95 % interval {_interval(interval)}" if interval else ""),
        ("p", document["p_value"], _test(document)),
        ("macro", document["macro"], "mean of the datasets"),
        ("chance", document["chance"], ""),
        ("nn1", document["nn1"], "nearest neighbour of the same dataset"),
        ("silhouette", document["silhouette"], "of the datasets as clusters, −1…1"),
        ("mAP", document["map"], ""),
    ):
        screen.print(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
        if name == "micro" and not interval:
            screen.print(f"             [yellow]{document['ci95_reason']}[/]")
    screen.print(f"  cost       {_cost(document['cost'])}")
    confusion = document["taken_for"]
    rows = [
        (
            name,
            group["n"],
            share(group["purity"]),
            share(group["chance"]),
            group["note"] or _taken_for(confusion.get(name, []), name),
        )
        for name, group in document["by_dataset"].items()
    ]
    print_rows(screen, ("dataset", "queries", "purity", "chance", "else taken for"), rows)


def _table(
    documents: Sequence[Document], *, with_cost: bool = False
) -> tuple[list[str], list[list[object]]]:
    """Heads and rows, a row a family of each document; what is the same everywhere is left out."""
    families = [(document, *family) for document in documents for family in _families(document)]
    columns: dict[str, list[object]] = {
        "recipe": [document["recipe"] for document, _, _ in families],
        "way": [document["way"] for document, _, _ in families],
        "family": [base for _, base, _ in families],
    }
    if len(documents) == 1:
        del columns["recipe"], columns["way"]
    elif len({*columns["way"]}) == 1:
        del columns["way"]
    elif len({*columns["recipe"]}) == 1:
        del columns["recipe"]
    if all("by_base" not in document for document in documents):
        del columns["family"]
    columns |= {
        "queries": [_queries(scores) for _, _, scores in families],
        "micro": [share(scores["micro"]) for _, _, scores in families],
        "95 % interval": [_interval_or_reason(scores) for _, _, scores in families],
        "p": [share(scores["p_value"]) for _, _, scores in families],
        "macro": [share(scores["macro"]) for _, _, scores in families],
        "nn1": [share(scores["nn1"]) for _, _, scores in families],
        "silhouette": [share(scores["silhouette"]) for _, _, scores in families],
        "chance": [
            share(scores["chance"]) + (f" ({scores['note']})" if scores["note"] else "")
            for _, _, scores in families
        ],
        "left out": [_left_out(scores, document) for document, _, scores in families],
    }
    if with_cost:
        columns["cost per model"] = [_cost(document["cost"]) for document, _, _ in families]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _families(document: Document) -> Iterator[tuple[str, Document]]:
    if "by_base" in document:
        yield from document["by_base"].items()
    else:
        yield document["base"], document


def _queries(scores: Document) -> str:
    """How many were used, of how many that could be."""
    if scores["sampled_queries"] is None:
        return str(scores["queries"])
    possible = scores["labelled"] - scores["singletons"] - scores["dropped"]
    return f"{scores['queries']} sampled of {possible}"


def _left_out(scores: Document, document: Document | None = None) -> str:
    """Which models are no queries, or no candidates, and why."""
    document = document or scores
    unlabelled = "unlabelled (still candidates)" if document["with_unlabelled"] else "unlabelled"
    parts = {
        "without a sibling": scores["singletons"],
        f"whose siblings --exclude {document['exclude']} removes": scores["dropped"],
        unlabelled: scores["unlabelled"],
    }
    return ", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none"


def _interval(interval: Sequence[float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _interval_or_reason(scores: Document) -> str:
    if scores["ci95"]:
        return _interval(scores["ci95"])
    return str(scores["ci95_reason"]).partition(":")[0]


def _test(document: Document) -> str:
    if document["p_value"] is None:
        return "not tested: the datasets are too large"
    return f"of micro by chance; {document['permutations']} permutations of the labels"


def _setting(document: Document) -> str:
    """What is not as by default."""
    way = "" if document["way"] == "normalised" else f", {document['way']}"
    return way + (f", without the query's own {document['exclude']}" if document["exclude"] else "")


def _cost(cost: Mapping[str, float | None]) -> str:
    seconds, n_bytes = cost.get("seconds_per_model"), cost.get("bytes_per_model")
    if seconds is None:
        return "unknown"
    read = f", {size(int(n_bytes))}" if n_bytes is not None else ""
    return f"{seconds:.2f} s{read}"


def _taken_for(cells: Sequence[Document], own: str) -> str:
    others = [cell for cell in cells if cell["dataset"] != own][:3]
    return ", ".join(f"{cell['dataset'] or 'unlabelled'} ({cell['n']})" for cell in others)
