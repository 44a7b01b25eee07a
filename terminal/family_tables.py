"""Clusters, evaluations and plans of a family, drawn as tables for people; the demo's screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from .progress import RunProgress, duration
from .tables import Document, Screen, console, print_rows, show_neighbours, show_report, text
from .text import count, share, size

MEMBERS_SHOWN = 3
SUGGESTIONS_SHOWN = 50


def show_clusters(document: Document) -> None:
    """The clusters, how they agree with the labels, and suggestions for unlabelled models."""
    screen = console()
    screen.print(
        f"{text(document['base'])}: [bold]{len(document['clusters'])}[/] clusters of "
        f"{count(document['models'], 'model')}, {len(document['noise'])} in none · "
        f"recipe {document['recipe']}"
    )
    rows: list[tuple[Any, ...]] = [
        (
            cluster["name"],
            cluster["size"],
            ", ".join(
                f"{group['dataset']} ({group['models']})" for group in cluster["datasets"][:3]
            ),
            ", ".join(cluster["words"][:3]),
            ", ".join(cluster["models"][:MEMBERS_SHOWN]),
        )
        for cluster in document["clusters"]
    ]
    if rows:
        print_rows(screen, ("cluster", "models", "datasets", "words", "members"), rows)
    apart = document["silhouette"]
    for name, value, note in (
        ("ARI", document["ari"], "clusters against datasets, 0 for chance"),
        ("NMI", document["nmi"], "the same, not corrected for chance"),
        ("silhouette", apart["labels"], "of the datasets, −1…1"),
        ("", apart["clusters"], "of the clusters"),
    ):
        screen.print(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
    for note in document["notes"]:
        screen.print(f"  {text(note)}", style="dim")
    if "suggestions" in document:
        _show_suggestions(screen, document)


def _show_suggestions(screen: Console, document: Document) -> None:
    suggestions, hints = document["suggestions"], document["hints"]
    if not len(suggestions) + document["abstained"]:
        screen.print("\nEvery model has a dataset: nothing to suggest.")
        return
    screen.print(
        f"\nmodels with a suggested dataset: [bold]{len(suggestions)}[/]; without: "
        f"{document['abstained']}"
    )
    _show_list(screen, suggestions, ("model", "dataset", "confidence", "fdr", "verdict"))
    if hints:
        screen.print(
            f"[bold]{len(hints)}[/] hints: more than "
            f"{1 - document['calibration']['target']:.0%} of these are expected to be wrong"
        )
        _show_list(screen, hints, ("model", "dataset (hint)", "confidence", "fdr", "verdict"))
    screen.print(f"  {_evidence(document['calibration'])}", style="dim")
    n_kept = document["calibration"]["kept_data"]
    if n_kept:
        screen.print(
            f"  {n_kept} kept data {'set' if n_kept == 1 else 'sets'} may name models as well: "
            "fdr is twice the rate of the better list",
            style="dim",
        )


def _show_list(screen: Console, suggestions: list[Document], columns: tuple[str, ...]) -> None:
    """The first of some suggestions, and how many there are beside."""
    if not suggestions:
        return
    rows: list[tuple[Any, ...]] = [
        (
            s["model"],
            s["dataset"],
            share(s["confidence"]),
            share(s["fdr"]),
            s["verdict"],
            s["source"],
        )
        for s in suggestions[:SUGGESTIONS_SHOWN]
    ]
    if any(s["source"] == "kept data" for s in suggestions):
        columns = (*columns, "named by")
    print_rows(screen, columns, [row[: len(columns)] for row in rows])
    if len(suggestions) > SUGGESTIONS_SHOWN:
        screen.print(f"  and {len(suggestions) - SUGGESTIONS_SHOWN} more: --json has them all")


def _evidence(calibration: Document) -> str:
    """What the suggestions are known from, or what is missing."""
    tail = calibration["tail"]
    known = (
        f"strangers' scores: {tail['source']} ({tail['queries']} labelled models, "
        f"{count(tail['datasets'], 'dataset')} with siblings)"
    )
    if calibration["precision"] is not None:
        return (
            f"{known}; held out, {calibration['answers']} answers of {calibration['models']} "
            f"labelled models: precision {share(calibration['precision'])} at coverage "
            f"{share(calibration['coverage'])}"
        )
    if calibration["threshold"] is not None:
        return f"{known}; no labelled model with such evidence could be held out"
    if not calibration["datasets"]:
        return f"{known}: no labelled model to name others after"
    return (
        f"{known}: no model reaches a confidence of {calibration['target']:.2f}; more labelled "
        "models help, and so does --unknown 0 where the labels name every dataset"
    )


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


_SHOW: Mapping[str, Callable[[Any], None]] = {
    "index": show_report,
    "eval": show_evaluation,
    "neighbours": show_neighbours,
}


class DemoScreen:
    """Lines on stderr, tables on stdout; silence when quiet."""

    def __init__(self, progress: RunProgress, *, quiet: bool) -> None:
        self.progress, self._quiet = progress, quiet
        self._console = Screen(stderr=True, quiet=quiet, highlight=False)

    def line(self, text: str) -> None:
        self._console.print(text)

    def heading(self, text: str) -> None:
        self.line(f"\n[bold]{text}[/]")

    def document(self, kind: str, document: Mapping[str, Any]) -> None:
        if not self._quiet:
            _SHOW[kind](document)
