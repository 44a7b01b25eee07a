"""How well nearest neighbours share their data set: `eval`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import (
    TYPE_CHECKING,
)

from ..options import Question, option, record
from ..records import Exclude
from ..results import Document, Row, Section, Table, count, share, size
from . import terminal
from .face.opened import ONLY_FAMILY
from .find_similar import _show_suspects
from .terminal.command_line import asking
from .terminal.text import escaped
from .terminal.written import save_table

if TYPE_CHECKING:
    from .face.opened import Opened


PURITY_COLUMNS = ("family", "dataset", "n", "purity", "low", "high", "p", "chance")
"""Columns of an evaluation in a paper; `low` and `high`: the 95 % interval of the purity."""

Line = Sequence[object]


class EvaluationTable(Table):
    """Same-dataset retrieval precision, a row for each recipe, way of scoring and family.

    A row has `recipe`, `way`, `base`, `queries`, `micro` and
    `macro` (mean purity of queries, of datasets), `chance`, `ci95`, `p_value`, `nn1`, `map`,
    `silhouette` (−1…1), and counts of `models`, `labelled`, `datasets`, `singletons`, `dropped`.
    """

    columns = ("recipe", "way", "base", "queries", "micro", "macro", "chance", "nn1", "p_value")

    def save(self, path: str | Path) -> Path:
        """Write a table by family and by dataset; the ending chooses .csv, .tex or .md.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        return save_table(self, path)

    def sections(self, *, everything: bool = False) -> Iterable[Section]:
        """One table: columns for recipe and way where they differ."""
        rows = self._rows()
        varying = [key for key in ("recipe", "way") if len({row[key] for row in rows}) > 1]
        yield Section(
            columns=(*varying, *PURITY_COLUMNS),
            rows=[
                [*(row[key] for key in varying), row["base"], *line]
                for row in rows
                for line in _lines(row)
            ],
        )

    def _rows(self) -> Sequence[Row]:
        documents = self._document.get("ways") or self._document.get("recipes", (self._document,))
        return [row for document in documents for row in _by_family(document)]


def _by_family(document: Document) -> list[Row]:
    """An evaluation's families, each with the recipe and the way."""
    shared = {key: document[key] for key in ("recipe", "recipe_id", "way", "exclude", "cost")}
    families = document.get("by_base")
    if families is None:
        return [document]
    return [{**shared, "base": base, **family} for base, family in families.items()]


def _lines(row: Row) -> Iterator[Line]:
    """A family's line, then one for each of its datasets, without the family's name."""
    whole = {**row, "n": row["queries"], "purity": row["micro"]}
    for name, group in [("all", whole), *(row["by_dataset"] or {}).items()]:
        low, high = group["ci95"] or (None, None)
        yield [name, group["n"], group["purity"], low, high, group["p_value"], group["chance"]]


@record
class Retrieval(Question):
    """Which models of which families are ranked for each other."""

    _: KW_ONLY
    base: str | None = option(default=None, help=ONLY_FAMILY)
    exclude: Exclude | None = option(
        default=None, help="Leave out candidates of the query's own author or run."
    )
    with_unlabelled: bool = option(
        default=False,
        help="Let queries retrieve models without a dataset label too.",
    )


@record
class Evaluate(Retrieval):
    """How well nearest neighbours share their dataset, against chance.

    Returns:
        A row for each recipe, way and family: `micro`, `macro`, `chance`, `nn1`, `p_value`.

    Raises:
        RequestError: no two labelled models share a dataset, or there is no such way.

    >>> db.evaluate(exclude="author")[0]["nn1"]
    1.0
    >>> [row["way"] for row in db.evaluate(compare=("raw", "normalised"))]
    ['raw', 'normalised']
    """

    recipes: tuple[str, ...] = option(
        "--recipe",
        default=(),
        doors="local",
        shown_default="of most models",
        help="Name or id of a recipe; several are shown side by side.",
    )
    _: KW_ONLY
    compare: Sequence[str] = option(
        default=(),
        doors="local",
        separated=True,
        metavar="WAYS",
        help="Ways of scoring side by side, such as raw,normalised.",
    )
    queries: int | None = option(
        default=None,
        doors="local",
        least=1,
        shown_default="1000, less above 40,000 models",
        help="Sampled queries of a family of more than 4,000 models; all, if it has no more.",
    )

    def answer(self, db: Opened) -> EvaluationTable:
        from ..search import check_ways, evaluate

        base = db._catalog.find_base(self.base)
        check_ways(self.compare)
        documents = [
            evaluate(
                db._catalog,
                recipe=recipe,
                base=base,
                exclude=self.exclude,
                with_unlabelled=self.with_unlabelled,
                way=way,
                queries=self.queries,
            )
            for recipe in self.recipes or (None,)
            for way in self.compare or ("normalised",)
        ]
        if self.compare:
            return EvaluationTable({"ways": documents})
        return EvaluationTable(documents[0] if len(documents) == 1 else {"recipes": documents})


def show_evaluation(document: Document) -> None:
    """Same-dataset retrieval precision: a family's measures and datasets, or a row a family; of
    several recipes or ways of scoring side by side, with what a fingerprint takes."""
    if several := document.get("ways") or document.get("recipes"):
        terminal.say_rows(*_table(several, with_cost=True))
        return
    setting = "" if document["way"] == "normalised" else f", {document['way']}"
    if document["exclude"]:
        setting += f", without the query's own {document['exclude']}"
    terminal.say(f"recipe [bold]{escaped(document['recipe'])}[/]{setting}")
    if "by_base" in document:
        terminal.say_rows(*_table([document]))
        terminal.say(f"  cost       {_cost(document['cost'])}")
    else:
        _show_family(document)


def _show_family(document: Document) -> None:
    terminal.say(
        f"{_queries(document)} queries among {count(document['models'], 'model')}, "
        f"{count(document['datasets'], 'dataset')}; left out: {_left_out(document, document)}"
    )
    if document["note"]:
        terminal.say(f"  [yellow]{document['note']}[/]")
    interval = document["ci95"]
    tested = f"of micro by chance; {document['permutations']} permutations of the labels"
    if document["p_value"] is None:
        tested = "not tested: the datasets are too large"
    for name, value, note in (
        ("micro", document["micro"], f"95 % interval {_interval(document)}" if interval else ""),
        ("p", document["p_value"], tested),
        ("macro", document["macro"], "mean of the datasets"),
        ("chance", document["chance"], ""),
        ("nn1", document["nn1"], "nearest neighbour of the same dataset"),
        ("silhouette", document["silhouette"], "of the datasets as clusters, −1…1"),
        ("mAP", document["map"], ""),
    ):
        terminal.say(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
        if name == "micro" and not interval:
            terminal.say(f"             [yellow]{document['ci95_reason']}[/]")
    terminal.say(f"  cost       {_cost(document['cost'])}")
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
    terminal.say_rows(("dataset", "queries", "purity", "chance", "else taken for"), rows)
    _show_suspects(document["suspects"] or ())
    compared = document["labels_compared"]
    if document["suspects"] is not None and compared < document["labelled"]:
        terminal.say(
            f"{compared} of {document['labelled']} labels were compared with the distances", "dim"
        )


def _table(
    documents: Sequence[Document], *, with_cost: bool = False
) -> tuple[list[str], Sequence[Document]]:
    """Heads and rows, a row a family of each document; what is the same everywhere is left out."""
    rows = [
        {
            "recipe": document["recipe"],
            "scores": document["way"],
            "family": base,
            "queries": _queries(scores),
            "95 % interval": _interval(scores),
            "p": share(scores["p_value"]),
            **{name: share(scores[name]) for name in ("micro", "macro", "nn1", "silhouette")},
            "chance": share(scores["chance"]) + (f" ({scores['note']})" if scores["note"] else ""),
            "left out": _left_out(scores, document),
            "cost per model": _cost(document["cost"]),
        }
        for document in documents
        for base, scores in _families(document)
    ]
    heads = ["queries", "micro", "95 % interval", "p", "macro", "nn1", "silhouette", "chance"]
    heads += ["left out", "cost per model"] if with_cost else ["left out"]
    if any("by_base" in document for document in documents):
        heads.insert(0, "family")
    ways, recipes = {row["scores"] for row in rows}, {row["recipe"] for row in rows}
    if len(documents) > 1 and len(ways) > 1:
        heads.insert(0, "scores")
    if len(documents) > 1 and (len(ways) == 1 or len(recipes) > 1):
        heads.insert(0, "recipe")
    return heads, rows


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


def _left_out(scores: Document, document: Document) -> str:
    """Which models are no queries, or no candidates, and why."""
    unlabelled = "unlabelled (still candidates)" if document["with_unlabelled"] else "unlabelled"
    parts = {
        "without a sibling": scores["singletons"],
        f"whose siblings --exclude {document['exclude']} removes": scores["dropped"],
        unlabelled: scores["unlabelled"],
    }
    return ", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none"


def _interval(scores: Document) -> str:
    """The interval, or why there is none."""
    if scores["ci95"]:
        return "{:.3f} to {:.3f}".format(*scores["ci95"])
    return str(scores["ci95_reason"]).partition(":")[0]


def _cost(cost: Mapping[str, float | None]) -> str:
    seconds, n_bytes = cost.get("seconds_per_model"), cost.get("bytes_per_model")
    if seconds is None:
        return "unknown"
    return f"{seconds:.2f} s" + (f", {size(int(n_bytes))}" if n_bytes is not None else "")


def _taken_for(cells: Sequence[Document], own: str) -> str:
    others = [cell for cell in cells if cell["dataset"] != own][:3]
    return ", ".join(f"{cell['dataset'] or 'unlabelled'} ({cell['n']})" for cell in others)


command = asking(
    Evaluate,
    show_evaluation,
    "Measure how often nearest neighbours share their dataset, against chance.",
    "eval --exclude author",
    "eval --recipe sketch --recipe mean-factors",
    "eval --compare raw,normalised -o purity.tex",
)
