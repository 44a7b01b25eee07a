"""Models that were trained on the same data: `find-similar`, also across bases."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, replace
from typing import (
    TYPE_CHECKING,
    Any,
    TypeGuard,
    cast,
)

import click

from ..errors import BadFilter, EmptyCatalog, ModelError, RequestError, UnknownBase
from ..options import Place, argument, option, record
from ..results import Document, Row, Table, count, names_of_bases
from ..store import Filters
from . import terminal
from .explain import show_explanation
from .face.opened import Family, Kind, require_labels
from .face.searches import Query, Searches, find_base_with, open_attached
from .terminal.command_line import (
    EXIT_NOTHING_DONE,
    EXIT_SOME_FAILED,
    Common,
    Engine,
    command_with,
    from_stdin,
    print_answer,
)
from .terminal.text import escaped, plain

if TYPE_CHECKING:
    from ..store import AttachedIndex
    from .face.opened import Opened


ACROSS_MEANING = (
    "trained on the same data, or on data of the same words, as far as footprints tell. Without a "
    "verdict the order is a hint: no other base may have a model of such data."
)
"""What an answer about models of other bases says at most; printed with every one of them."""

NEIGHBOUR_COLUMNS = (
    "rank",
    "model",
    "verdict",
    "probability",
    "z",
    "fdr",
    "cosine",
    "dataset",
    "author",
)


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
    """The `k` models nearest to a model, or fewer if fewer pass the filters.

    Returns:
        A row for each neighbour, nearest first: `query`, `rank`, `model`, `verdict`, `z`, `fdr`
        (0…1), `source` (the attached index that it is of, or None) and more.

    Raises:
        RequestError: `k` is below 1, or the model cannot be fingerprinted.
        BadFilter: `where` is not understood, or no model has that dataset or author.
        BadIndex: an attached index is missing or damaged.

    With `across` the answer has models of the *other* bases, which are compared by the words that
    they and the model were trained on, likeliest first: rows have `base`, and no `query`. The
    document has `families`, `left_out` (families that could not be compared, with the reason) and
    `meaning`.

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
        from ..search import explain_pair, find_similar

        searches = Searches(db._catalog, base, self.recipe, indexes)
        start = searches.from_any(model, self.kind)
        beside = searches.indexes_of(start.base) if start.base else []
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


def show_neighbours(document: Document) -> None:
    """A query's nearest models, which of them stand out, and how the fdr is known."""
    query, neighbours = document["query"], document["neighbours"]
    label = f" ({escaped(query['dataset'])})" if query["dataset"] else ""
    terminal.say(
        f"nearest to [bold]{escaped(query['model'])}[/]{label} · recipe {document['recipe']}"
    )
    if not neighbours:
        terminal.say("no other model passes the filters")
        return
    calibration = document["calibration"]
    is_small = calibration["source"] == terminal.NULL
    terminal.say(f"[bold]{_headline(neighbours, document['compared'], is_small=is_small)}[/]")
    known = _calibrated(calibration)
    if not is_small:
        known += f", a verdict needs {calibration['verdict_from']:.2f}"
        known += _gap(neighbours, calibration)
    terminal.say(f"{known}; fdr: of all answers up to here", "dim")
    _show_suspects(document["suspects"])
    is_joint = any(n.get("source") for n in neighbours)
    terminal.say_evidence((*NEIGHBOUR_COLUMNS, *(["source"] if is_joint else [])), neighbours)


def _calibrated(calibration: Document) -> str:
    """What probabilities are known from."""
    match calibration["source"]:
        case "labelled models of the family":
            models = count(calibration["queries"], "labelled model")
            return f"probability from {models}, {count(calibration['datasets'], 'dataset')}"
        case "families like it":
            return "probability from families like it: too few labels of its own"
    return (
        f"no probability: {count(calibration['models'], 'model')} are too few, "
        f"{calibration['models_needed']} are needed, and fdr is too low in a family as small"
    )


def _gap(neighbours: Sequence[Document], calibration: Document) -> str:
    """The gap below rows that have a verdict by it alone."""
    least = calibration["verdict_from"]
    clear = [n for n in neighbours if n["verdict"] == "perhaps" and n["probability"] < least]
    if not clear:
        return ""
    beside = [row["z"] for row in neighbours[clear[-1]["rank"] - 1 :][:2]]
    return f" or a clear gap below (z {', then '.join(f'{z:.1f}' for z in beside)})"


def _show_suspects(suspects: Sequence[Document]) -> None:
    """Labels that contradict the distances."""
    for row in suspects:
        terminal.say(
            f"[yellow]label in doubt[/]: {escaped(row['model'])} is labelled "
            f"{escaped(row['dataset'])} (z {row['own_z']:.1f}), and nearer to "
            f"{escaped(row['nearer'])} (z {row['z']:.1f})"
        )


def _headline(neighbours: Sequence[Document], compared: int, *, is_small: bool) -> str:
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


def show_across(document: Document) -> None:
    """Models of other bases, and by how many words they were compared."""
    query, models = document["query"], document["neighbours"]
    families, left_out = document["families"], document["left_out"]
    names = names_of_bases([query["base"], *(row["base"] for row in (*families, *left_out))])
    others = ", ".join(f"{names[row['base']]} ({_compared_of(row)})" for row in families)
    terminal.say(
        f"models of other bases like [bold]{escaped(query['model'])}[/] of "
        f"{escaped(names[query['base']])}, by words: {escaped(others)}"
    )
    if models:
        terminal.say(f"[bold]{document['verdict']}[/]")
        few = [
            names[row["base"]]
            for row in families
            if not row["is_calibrated"] and row["by"] == "footprints"
        ]
        if few:
            terminal.say(f"too few models for a probability: {escaped(', '.join(few))}", "dim")
        heads = ("rank", "model", "base", "verdict", "probability", "z", "fdr", "dataset")
        terminal.say_evidence(heads, terminal.renamed(models, names))
    else:
        terminal.say("no model passes the filters")
    terminal.show_left_out(document)
    terminal.say(f"It says at most: {document['meaning']}", "dim")


def _compared_of(family: Document) -> str:
    """How much of a family was compared, and by how much."""
    models, compared = count(family["models"], "model"), family["compared"]
    of = models if compared == family["models"] else f"{compared} of {models}"
    by = " that updates answer to" if family["by"] == "answers" else ""
    return f"{of}, {count(family['words'], 'word')}{by}"


@command_with(FindSimilar, Engine)
def command(common: Common, asked: FindSimilar, candidates: Engine) -> None:
    """Find the models nearest to MODEL: an indexed id, a folder or a Hub id.

    A model that is not in the catalog is fingerprinted on the fly and not stored. Several models
    are answered one after the other; `-` stands for models on stdin, one per line.

    The verdict of a neighbour is "copy", "likely the same data" (probability from 0.95) or
    "perhaps" (from 0.6, or more where over 5 % of queries without a sibling reach that). z counts
    standard deviations above the family's strangers; fdr is the share of all answers up to a row
    that are expected to be wrong.

    --across finds models of other bases, by the words that models were trained on.

    \b
    Example:
      deltadex find-similar someone/bert-imdb -k 5 --explain
      deltadex find-similar someone/bert-imdb --across
      deltadex ls --where "dataset IS NULL" --csv --columns model | tail -n +2 |
        deltadex find-similar - -k 1 --json
    """
    typed = cast("tuple[str, ...]", asked.model)
    models = _named(typed)
    is_one = typed == models and len(models) == 1
    if asked.across:
        if len(models) > 1:
            raise click.UsageError(f"--across takes one MODEL, and {len(models)} are named")
        if asked.explain or candidates.engine != Engine.engine:
            raise click.UsageError("--across takes no --explain and no --engine")
        print_answer(common, replace(asked, model=models[0]), show_across)
        return
    wanted = replace(asked, model=models[0] if is_one else models)
    table = print_answer(
        common, wanted, _show_neighbours if is_one else _show_several, engine=candidates.engine
    )
    if failed := table.to_json().get("failed"):
        sys.exit(EXIT_SOME_FAILED if len(failed) < len(models) else EXIT_NOTHING_DONE)


def _named(models: Sequence[str]) -> tuple[str, ...]:
    """The models, those on stdin in the place of `-`; each once."""
    names: list[str] = []
    for model in models:
        if model == "-":
            lines = from_stdin().splitlines()
            names += [name for line in lines if (name := line.strip())]
        else:
            names.append(model)
    if not names:
        raise click.UsageError("no model on stdin: one id or path per line")
    return tuple(dict.fromkeys(names))


def _show_neighbours(document: Mapping[str, Any]) -> None:
    show_neighbours(document)
    for explanation in document.get("explanations", ()):
        show_explanation(explanation)


def _show_several(document: Mapping[str, Any]) -> None:
    for place, query in enumerate(document["queries"]):
        if place:
            click.echo()
        _show_neighbours(query)
    for refused in document["failed"]:
        click.echo(plain(f"{refused['model']}: {refused['reason']}"), err=True)
