"""How well nearest neighbours share their data set: `eval`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY

from ..options import Question, option, record
from ..records import Exclude
from ..results import Document, Row, Section, Shown, count, share, size
from .face.opened import ONLY_FAMILY, Opened
from .find_similar import show_suspects
from .terminal.command_line import asking
from .terminal.written import SavedTable

PURITY_COLUMNS = ("family", "dataset", "n", "purity", "low", "high", "p", "chance")
"""Columns of an evaluation in a paper; `low` and `high`: the 95 % interval of the purity."""

Line = Sequence[object]


class EvaluationTable(SavedTable):
    """Same-dataset retrieval precision, a row for each recipe, way of scoring and family.

    A row has `recipe`, `way`, `base`, `queries`, `micro` and
    `macro` (mean purity of queries, of datasets), `chance`, `ci95`, `p_value`, `nn1`, `map`,
    `silhouette` (−1…1), and counts of `models`, `labelled`, `datasets`, `singletons`, `dropped`.
    """

    columns = ("recipe", "way", "base", "queries", "micro", "macro", "chance", "nn1", "p_value")

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
    of_all = ("recipe", "recipe_id", "way", "exclude", "with_unlabelled", "cost")
    shared = {key: document[key] for key in of_all}
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
        default=False, help="Let queries retrieve models without a dataset label too."
    )


@record
class Evaluate(Retrieval):
    """Measure how often nearest neighbours share their dataset, against chance.

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


def show_evaluation(document: Document) -> Shown:
    """Same-dataset retrieval precision: a family's measures and datasets, or a row a family; of
    several recipes or ways of scoring side by side, with what a fingerprint takes."""
    if several := document.get("ways") or document.get("recipes"):
        yield Section.of(*_rows_by_family(several, with_cost=True))
        return
    setting = "" if document["way"] == "normalised" else f", {document['way']}"
    if document["exclude"]:
        setting += f", without the query's own {document['exclude']}"
    yield f"recipe {document['recipe']}{setting}"
    if "by_base" in document:
        yield Section.of(*_rows_by_family([document]))
        yield f"  cost       {_cost(document['cost'])}"
    else:
        yield from _show_family(document)


def _show_family(document: Document) -> Shown:
    queries = _queries(document)
    yield (
        f"{queries} {'query' if queries == '1' else 'queries'} among "
        f"{count(document['models'], 'model')}, {count(document['datasets'], 'dataset')}; left "
        f"out: {_left_out(document)}"
    )
    if document["note"]:
        yield f"  {document['note']}"
    interval = document["ci95"]
    tested = f"of micro by chance; {count(document['permutations'], 'permutation')} of the labels"
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
        yield f"  {name:10} {share(value)}  {note}"
        if name == "micro" and not interval:
            yield f"             {document['ci95_reason']}"
    yield f"  cost       {_cost(document['cost'])}"
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
    yield Section.of(("dataset", "queries", "purity", "chance", "else taken for"), rows)
    yield from show_suspects(document["suspects"] or ())
    compared = document["labels_compared"]
    if document["suspects"] is not None and compared < document["labelled"]:
        yield f"labels compared with the distances: {compared} of {document['labelled']}"


def _rows_by_family(
    documents: Sequence[Document], *, with_cost: bool = False
) -> tuple[list[str], Sequence[Document]]:
    """Heads and rows, a row a family of each document; what is the same everywhere is left out."""
    rows = [
        {
            "recipe": row["recipe"],
            "scores": row["way"],
            "family": row["base"],
            "queries": _queries(row),
            "95 % interval": _interval(row),
            "p": share(row["p_value"]),
            **{name: share(row[name]) for name in ("micro", "macro", "nn1", "silhouette")},
            "chance": share(row["chance"]) + (f" ({row['note']})" if row["note"] else ""),
            "left out": _left_out(row),
            "cost per model": _cost(row["cost"]),
        }
        for document in documents
        for row in _by_family(document)
    ]
    heads = ["queries", "micro", "95 % interval", "p", "macro", "nn1", "silhouette", "chance"]
    heads += ["left out", "cost per model"] if with_cost else ["left out"]
    ways, recipes, families = ({row[key] for row in rows} for key in ("scores", "recipe", "family"))
    names = ["recipe"] * (len(recipes) > 1 or (with_cost and len(ways) == 1))
    names += ["scores"] * (len(ways) > 1) + ["family"] * (len(families) > 1)
    return names + heads, rows


def _queries(scores: Document) -> str:
    """How many were used, of how many that could be."""
    if scores["sampled_queries"] is None:
        return str(scores["queries"])
    possible = scores["labelled"] - scores["singletons"] - scores["dropped"]
    return f"{scores['queries']} sampled of {possible}"


def _left_out(scores: Document) -> str:
    """Which models are no queries, or no candidates, and why."""
    unlabelled = "unlabelled (still candidates)" if scores["with_unlabelled"] else "unlabelled"
    parts = {
        "without a sibling": scores["singletons"],
        f"whose siblings --exclude {scores['exclude']} removes": scores["dropped"],
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
    "eval --exclude author",
    "eval --recipe sketch --recipe mean-factors",
    "eval --compare raw,normalised -o purity.tex",
)
