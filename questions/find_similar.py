"""Models that were trained on the same data: `find-similar`, also across bases."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import click

from ..errors import BadFilter, EmptyCatalog, ModelError, RequestError, UnknownBase
from ..options import Place, argument, option, record
from ..results import Document, Row, Shown, Table, count, names_of_bases
from ..store import Filters
from . import terminal
from .explain import show_explanation
from .face.opened import Family, Kind, Opened, require_labels
from .face.searches import Query, Searches, find_base_with, open_attached
from .terminal.command_line import Common, Engine, command_with, exit_by, from_stdin, print_answer
from .terminal.text import plain

if TYPE_CHECKING:
    from ..store import AttachedIndex

log = logging.getLogger(__name__)

ACROSS_MEANING = (
    "trained on the same data, or on data of the same words, as far as footprints tell. Without a "
    "verdict the order is a hint: no other base may have a model of such data."
)
"""What an answer about models of other bases says at most; printed with every one of them."""


class NeighbourTable(Table):
    """The models nearest to a query, nearest first; of several queries, one after the other.

    A row has `query` (the model that was searched from), `rank` (from 1), `model`, `base`,
    `dataset`, `author`, `run`, and the evidence: `verdict` ("copy", "likely the same data",
    "perhaps", "no model stands out"), `probability` (that both were trained on the same data; None
    in families that are too small), `z` (standard deviations above the family's strangers), `fdr`
    (the share of all answers down to a row expected to be wrong, 0…1), `cosine` of the two updates
    (−1…1), `score` (z, bounded to −1…1: what ranks) and `source` (the attached index that the model
    is of; None for a model of the catalog). A document also has the `verdict` of
    the nearest model, `compared` and `calibration`. `failed` lists queries that have no answer.
    """

    columns = (
        *("query", "rank", "model", "verdict", "probability", "z", "fdr", "cosine", "dataset"),
        "author",
    )

    @property
    def failed(self) -> list[Row]:
        """`model` and `reason` of each of several queries that could not be answered."""
        return list(self._document.get("failed", ()))

    def _rows(self) -> Sequence[Row]:
        return [
            {"query": answer["query"]["model"], **neighbour}
            for answer in self._document.get("queries", (self._document,))
            for neighbour in answer["neighbours"]
        ]


class AcrossTable(Table):
    """Models of other bases, those likeliest trained on the query's data first.

    A row has `rank`, `model`, `base`, `verdict`, `probability` (that it was trained on the same
    data; None where nothing is known to calibrate on), `z` (deviations of the cosine among the
    models of its base), `fdr`, `cosine` (of words, −1…1) and labels. A document also has `query`,
    `families`, `left_out` (families that could not be compared, with the reason) and `meaning`.
    """

    columns = (
        *("rank", "model", "base", "verdict", "probability", "z", "fdr", "cosine"),
        *("dataset", "author"),
    )
    _key = "neighbours"


@record
class FindSimilar(Filters, Family):
    """Find the `k` models nearest to a model: an indexed id, a folder or a Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored. Several models
    are answered one after the other; `-` stands for models on stdin, one per line.

    The verdict of a neighbour is "copy", "likely the same data" (probability from 0.95) or
    "perhaps" (from 0.6, or more where over 5 % of queries without a sibling reach that). z counts
    standard deviations above the family's strangers; fdr is the share of all answers up to a row
    that are expected to be wrong.

    --across finds models of the *other* bases, by the words that models were trained on: rows have
    `base`, the document has `families`, `left_out` (families that could not be compared, with the
    reason) and `meaning`.

    Raises:
        RequestError: `k` is below 1, or the model cannot be fingerprinted.
        BadFilter: `where` is not understood, or no model has that dataset or author.
        BadIndex: an attached index is missing or damaged.

    >>> hits = db.find_similar("imdb-0", k=2)
    >>> hits[0]["model"], hits[0]["z"] > hits[1]["z"], hits[0]["verdict"]
    ('imdb-1', True, 'no model stands out')
    >>> db.find_similar("models/imdb-0", k=1, where="run <> 'imdb-0'")[0]["model"]
    'imdb-1'
    >>> len(db.find_similar(["imdb-0", "sst2-0"], k=3))
    6
    """

    model: Query | Sequence[Place] = argument(
        several=True,
        metavar="MODEL...",
        help="An id; a folder or Hub id, which is fingerprinted and not stored; a PEFT or "
        "transformers model in memory; a fingerprint's vector, of shape (dim,); a list of ids, "
        "folders and Hub ids, in which one that has no answer stops no other.",
    )
    k: int = option("-k", default=10, least=1, help="Number of neighbours, at most.")
    _: KW_ONLY
    kind: Kind = option(
        default="full",
        doors="python",
        help="Kind of the model that a vector is of: scores are normalised by kind.",
    )
    explain: bool = option(
        default=False,
        doors="local",
        help="Show which layers and roles carry each cosine; models of attached indexes keep no "
        "sketches to show it of.",
    )
    across: bool = option(
        default=False,
        help="Find models of other bases that were trained on the same data, by the words of "
        "footprints.",
    )
    attached: bool = option(
        default=True,
        doors="python",
        help="Whether attached indexes of the same base and recipe are searched too.",
    )

    def answer(self, db: Opened) -> NeighbourTable | AcrossTable:
        self.check()
        if self.across:
            return self._across(db)
        indexes = open_attached(db._catalog) if self.attached else []
        base = find_base_with(db._catalog, self.base, indexes)
        if not _is_several(self.model):
            return NeighbourTable(self._nearest(db, cast("Query", self.model), base, indexes))
        answers, failed = [], []
        for name in self.model:
            try:
                answers.append(self._nearest(db, name, base, indexes))
            except (BadFilter, EmptyCatalog, UnknownBase):
                raise
            except (RequestError, ModelError) as err:
                failed.append({"model": str(name), "reason": str(err)})
        return NeighbourTable({"queries": answers, "failed": failed})

    def check(self) -> None:
        """Raises `RequestError` where options do not belong together."""
        if self.across and _is_several(self.model):
            raise RequestError(f"across bases one model is asked, and {len(self.model)} are named")
        if self.across and self.explain:
            raise RequestError("across bases no slots carry a similarity: leave explain out")

    def _across(self, db: Opened) -> AcrossTable:
        from ..search import find_across

        catalog = db._catalog
        if len(catalog.bases()) < 2:
            catalog.find_recipe(None)  # says what fills a catalog
            raise RequestError(
                f"{db.path.name} has one family, of {catalog.bases()[0]}: models are compared "
                "across bases where `deltadex index` has added another"
            )
        require_labels(catalog, self)
        searches = Searches(catalog, catalog.find_base(self.base), self.recipe)
        start = searches.from_any(cast("Query", self.model), self.kind)
        found = find_across(catalog, start, k=self.k, filters=self, recipe=self.recipe)
        return AcrossTable({**found, "meaning": ACROSS_MEANING})

    def _nearest(
        self, db: Opened, model: Query, base: str | None, indexes: Sequence[AttachedIndex]
    ) -> Document:
        from ..indexer import base_key
        from ..search import explain_pair, find_similar

        searches = Searches(db._catalog, base, self.recipe, indexes, self.base)
        start = searches.from_any(model, self.kind)
        beside = searches.indexes_of(start.base) if start.base else []
        for index in indexes:
            if start.base and base_key(index.base) != base_key(start.base):
                log.info("%s is not searched: its models are of %s", index.name, index.base)
        neighbours = find_similar(
            db._catalog, start, k=self.k, filters=self, recipe=self.recipe, attached=beside
        )
        if not neighbours.neighbours:
            require_labels(db._catalog, self, indexes)
        document: dict[str, Any] = neighbours.to_json()
        if self.explain:
            document["explanations"] = [
                explain_pair(db._catalog, start, neighbour.model, recipe=self.recipe)
                for neighbour in neighbours.neighbours
                if neighbour.source is None
            ]
        return document


def _is_several(model: object) -> TypeGuard[Sequence[Place]]:
    return isinstance(model, list | tuple) and all(isinstance(name, Place) for name in model)


def show_neighbours(document: Document) -> Shown:
    query, neighbours = document["query"], document["neighbours"]
    label = f" ({query['dataset']})" if query["dataset"] else ""
    yield f"nearest to {query['model']}{label} · recipe {document['recipe']}"
    if not neighbours:
        yield "no other model passes the filters"
        return
    calibration = document["calibration"]
    is_small = calibration["source"] == terminal.NULL
    yield headline(neighbours, document["compared"], is_small=is_small)
    known = calibrated_by(calibration)
    if not is_small:
        gap = _gap(neighbours, calibration)
        known += f", a verdict needs {calibration['verdict_from']:.2f}{gap}"
    probable = [row["probability"] or 0.0 for row in neighbours]
    if probable != sorted(probable, reverse=True):
        known += "; ordered by z, not by probability"
    yield f"{known}; fdr: of all answers up to here"
    yield from show_suspects(document["suspects"])
    is_joint = any(n.get("source") for n in neighbours)
    heads = (*NeighbourTable.columns[1:], *(["source"] if is_joint else []))
    yield terminal.evidence_table(heads, neighbours)
    for explanation in document.get("explanations", ()):
        yield from show_explanation(explanation)


def calibrated_by(calibration: Document) -> str:
    """What probabilities are known from."""
    match calibration["source"]:
        case "labelled models of the family":
            models = count(calibration["queries"], "labelled model")
            return f"probability from {models}, {count(calibration['datasets'], 'dataset')}"
        case "families like it":
            return "probability from families like it: too few labels of its own"
    return (
        f"no probability: {count(calibration['models'], 'model')} are too few, "
        f"{calibration['models_needed']} are needed; of so few more are wrong than fdr says"
    )


def _gap(neighbours: Sequence[Document], calibration: Document) -> str:
    """The gap below rows that have a verdict by it alone."""
    least = calibration["verdict_from"]
    clear = [n for n in neighbours if n["verdict"] == "perhaps" and n["probability"] < least]
    if not clear:
        return ""
    beside = [row["z"] for row in neighbours[clear[-1]["rank"] - 1 :][:2]]
    return f" or a clear gap below (z {', then '.join(f'{z:.1f}' for z in beside)})"


def show_suspects(suspects: Sequence[Document]) -> Shown:
    for row in suspects:
        yield (
            f"label in doubt: {row['model']} is labelled "
            f"{row['dataset']} (z {row['own_z']:.1f}), and nearer to "
            f"{row['nearer']} (z {row['z']:.1f})"
        )


def headline(neighbours: Sequence[Document], compared: int, *, is_small: bool) -> str:
    """How many of the neighbours stand out, by verdict; or that the family is too small to tell.

    Where the last of them stands out and is not the last model that was compared, more may.
    """
    counts = Counter(n["verdict"] for n in neighbours if terminal.stands_out(n))
    if not counts and is_small:
        return f"too few models to tell: no verdict among {compared} compared"
    if not counts:
        return f"no model stands out among {compared} compared"
    last = neighbours[-1]["verdict"] if len(neighbours) < compared else None
    parts = (
        f"{verdict}: {count(n, 'model', or_more=verdict == last)}" for verdict, n in counts.items()
    )
    return f"{', '.join(parts)}, of {compared} compared"


def show_across(document: Document) -> Shown:
    query, models = document["query"], document["neighbours"]
    families, left_out = document["families"], document["left_out"]
    names = names_of_bases([query["base"], *(row["base"] for row in (*families, *left_out))])
    others = ", ".join(f"{names[row['base']]} ({_compared_of(row)})" for row in families)
    yield (
        f"models of other bases like {query['model']} of {names[query['base']]}, by words: {others}"
    )
    if models:
        yield document["verdict"]
        few = [
            names[row["base"]]
            for row in families
            if not row["is_calibrated"] and row["by"] == "footprints"
        ]
        if few:
            yield f"too few models for a probability: {', '.join(few)}"
        heads = ("rank", "model", "base", "verdict", "probability", "z", "fdr", "dataset")
        yield terminal.evidence_table(heads, models, names)
    else:
        yield "no model passes the filters"
    yield from terminal.show_left_out(document)
    yield f"It says at most: {document['meaning']}"


def _compared_of(family: Document) -> str:
    """How much of a family was compared, and by how much."""
    models, compared = count(family["models"], "model"), family["compared"]
    of = models if compared == family["models"] else f"{compared} of {models}"
    by = " that updates answer to" if family["by"] == "answers" else ""
    return f"{of}, {count(family['words'], 'word')}{by}"


@command_with(
    FindSimilar,
    Engine,
    examples=(
        "find-similar someone/bert-imdb -k 5 --explain",
        "find-similar someone/bert-imdb --across",
        'ls --where "dataset IS NULL" --csv --columns model | tail -n +2 |\n'
        "    deltadex find-similar - -k 1 --json",
    ),
)
def command(common: Common, asked: FindSimilar, candidates: Engine) -> None:
    typed = cast("tuple[str, ...]", asked.model)
    models = _from_stdin(typed)
    if asked.across and candidates.engine != Engine.engine:
        raise click.UsageError("--across takes no --engine")
    is_one = len(models) == 1 and (asked.across or typed == models)
    wanted = replace(asked, model=models[0] if is_one else models)
    show = show_across if asked.across else _show_several
    table = print_answer(common, wanted, show, engine=candidates.engine)
    failed = table.to_json().get("failed", ())
    exit_by(failed, len(failed) < len(models))


def _from_stdin(models: Sequence[str]) -> tuple[str, ...]:
    """The models, those on stdin in the place of `-`; each once."""
    names: list[str] = []
    for model in models:
        if model == "-":
            names += filter(None, map(str.strip, from_stdin().splitlines()))
        else:
            names.append(model)
    if not names:
        raise click.UsageError("no model on stdin: one id or path per line")
    return tuple(dict.fromkeys(names))


def _show_several(document: Document) -> Shown:
    for place, query in enumerate(document.get("queries", (document,))):
        if place:
            yield ""
        yield from show_neighbours(query)
    for refused in document.get("failed", ()):
        click.echo(plain(f"{refused['model']}: {refused['reason']}"), err=True)
