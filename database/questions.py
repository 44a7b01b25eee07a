"""Questions about a family: nearest models, how well searches work, groups, a map, a pair."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    TypeAlias,
    TypeGuard,
    cast,
    runtime_checkable,
)

from ..arrays import Float64
from ..errors import (
    BadFilter,
    EmptyCatalog,
    ModelError,
    RequestError,
    UnknownBase,
    UnknownModel,
    UnknownRecipe,
    offered,
)
from ..options import Place, Question, argument, option, record
from ..records import Colour, DataSet, Exclude, Fingerprint, Indexed, Layout, Recipe
from ..store import Filters
from .opened import (
    ONLY_FAMILY,
    Family,
    Kind,
    Track,
    find_family,
    require_labels,
    untracked,
)
from .tables import (
    AcrossTable,
    ClusterTable,
    DifferenceTable,
    Document,
    EvaluationTable,
    ExplanationTable,
    NeighbourTable,
    Table,
)

if TYPE_CHECKING:
    from ..pictures.maps import MapNeighbour, Neighbourhoods
    from ..search import FreshQuery, LabelledModels, StoredQuery, TrainedModel
    from ..search.evidence import Calibration
    from ..store import AttachedIndex, Catalog, FamilyView
    from .opened import Opened

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone

log = logging.getLogger(__name__)

Vector: TypeAlias = "Sequence[float] | np.ndarray"

IN_MEMORY, VECTOR, UPLOAD = "model in memory", "vector", "uploaded adapter"
"""Names of queries that have none of their own."""

ACROSS_MEANING = (
    "trained on the same data, or on data of the same words, as far as footprints tell. Without a "
    "verdict the order is a hint: no other base may have a model of such data."
)
"""What an answer about models of other bases says at most; printed with every one of them."""


@runtime_checkable
class ModelInMemory(Protocol):
    """A model of PEFT or transformers, which can save itself into a folder."""

    def save_pretrained(self, save_directory: str, **settings: Any) -> object: ...


Query: TypeAlias = "str | Path | ModelInMemory | Indexed | StoredQuery | FreshQuery | Vector"
"""A model that others are to be similar to."""


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


@record
class Explain(Family):
    """Which weight matrices, layers and roles carry the similarity of two models.

    Returns:
        A row for each slot that both changed, the largest contribution first.

    Raises:
        RequestError: the recipe keeps no sketches of single slots.

    >>> db.explain("imdb-0", "imdb-1").to_json()["similarity"] > 0.5
    True
    """

    model: Query = argument(help="A model as `find_similar` takes it, but not a list or a vector.")
    other: str = argument(help="Id of another model.")

    def answer(self, db: Opened) -> ExplanationTable:
        from ..search import explain_pair

        base = db._catalog.find_base(self.base)
        start = Searches(db._catalog, base, self.recipe).from_any(self.model)
        return ExplanationTable(explain_pair(db._catalog, start, self.other, recipe=self.recipe))


def _is_several(model: object) -> TypeGuard[Sequence[Place]]:
    return isinstance(model, list | tuple) and all(isinstance(name, Place) for name in model)


def open_attached(catalog: Catalog) -> list[AttachedIndex]:
    """The attached indexes of a catalog, by name; `BadIndex` where one is missing or damaged."""
    if not catalog.attachments.all():
        return []
    from ..store import AttachedIndexes

    return catalog.access.derived(AttachedIndexes).of(catalog.path, catalog.attachments)


def find_base_with(
    catalog: Catalog, spelling: str | None, attached: Sequence[AttachedIndex]
) -> str | None:
    """The base as the catalog has it, or as an attached index has it; None for None."""
    try:
        return catalog.find_base(spelling)
    except (EmptyCatalog, UnknownBase):
        from ..indexer import base_key

        key = base_key(spelling or "")
        names = sorted({index.base for index in attached if base_key(index.base) == key})
        if not names:
            raise
        return spelling if spelling in names else names[0]


@dataclass(frozen=True, slots=True)
class Searches:
    """What a search starts from, in a catalog and the indexes attached to it.

    Attributes:
        base: The family; None guesses it from the model.
        recipe: Name or id of a recipe; None takes that of most models.
    """

    catalog: Catalog
    base: str | None
    recipe: str | None
    attached: Sequence[AttachedIndex] = ()

    def from_any(self, model: Query, kind: Kind = "full") -> StoredQuery | FreshQuery:
        """A search from anything that a user calls a model; `kind` is that of a vector's.

        Raises:
            UnknownModel: it is neither stored, nor a folder, nor on the Hub.
            RequestError: it was refused when it was indexed and its files are not there, it
                cannot be fingerprinted, or no family is named.
        """
        from ..search import FreshQuery, StoredQuery

        if isinstance(model, StoredQuery | FreshQuery):
            return model
        if isinstance(model, Indexed):
            return _fresh(model, UPLOAD)
        if isinstance(model, str | Path):
            return self._named(str(model))
        if isinstance(model, ModelInMemory):
            return self._in_memory(model)
        return self._vector(model, kind)

    def indexes_of(self, base: str) -> list[AttachedIndex]:
        """The attached indexes of a base, whatever its spelling, whose matrices have the shapes
        that the catalog knows."""
        if not self.attached:
            return []
        from ..indexer import base_key

        shapes = self.catalog.base(base).shapes
        chosen = []
        for index in self.attached:
            if base_key(index.base) != base_key(base):
                continue
            theirs = index.manifest.shapes
            if any(shapes[slot] != theirs[slot] for slot in shapes.keys() & theirs.keys()):
                log.info("%s is not searched: its base %s has other shapes", index.name, index.base)
            else:
                chosen.append(index)
        return chosen

    def _named(self, model: str) -> StoredQuery | FreshQuery:
        """The stored model of that id or folder, or that of an attached index; else a fresh
        fingerprint of the folder or Hub id."""
        from ..indexer import is_model_path
        from ..search import StoredQuery

        catalog, attached = self.catalog, self.attached
        unknown: RequestError | None = None
        if self.base is None or self.base in catalog.bases():
            exact = catalog.stored_models(model, self.base)
            if len(exact) == 1:
                return StoredQuery(exact[0].id, exact[0].base)
            try:
                row = catalog.model(model, self.base)
                on_hub = row.record.source == "hub" and is_model_path(model)
                if row.status == "indexed" or not (on_hub or Path(model).is_dir()):
                    stored = catalog.stored(row.id, row.base)
                    return StoredQuery(stored.id, stored.base)
            except (UnknownModel, EmptyCatalog) as err:
                unknown = err
        if not Path(model).is_dir() and (known := self._of_attached(model)) is not None:
            return known
        ids = chain(catalog.alike("id", model), *(index.ids for index in attached))
        if attached and not is_model_path(model):
            names = ", ".join(index.name for index in attached)
            near = offered(model, ids, None)
            raise UnknownModel(f"no model '{model}' in {catalog.path.name}, nor in {names}{near}")
        is_empty = isinstance(unknown, EmptyCatalog)
        if unknown is not None and not attached and (is_empty or not is_model_path(model)):
            raise unknown
        try:
            return _fresh(self._fingerprinted(model), model)
        except UnknownModel as err:
            raise UnknownModel(f"{err}{offered(model, ids, None)}") from None

    def _of_attached(self, model: str) -> FreshQuery | None:
        """A search from a model of an attached index; None where none has it."""
        if not self.attached:
            return None
        from ..indexer import base_key
        from ..search import FreshQuery

        for index in self.attached if self.base is None else self.indexes_of(self.base):
            row = index.row_of.get(model)
            is_wanted = self.recipe in (None, index.recipe.name, index.recipe.id)
            if row is not None and is_wanted:
                key = base_key(index.base)
                own = [name for name in self.catalog.bases() if base_key(name) == key]
                query = FreshQuery.of_attached(index, model)
                return replace(query, base=own[0] if own else index.base)
        return None

    def _in_memory(self, model: ModelInMemory) -> FreshQuery:
        # asks the Hub otherwise whether the vocabulary has grown
        settings = {"save_embedding_layers": False} if hasattr(model, "peft_config") else {}
        with tempfile.TemporaryDirectory(prefix="deltadex-") as temporary:
            folder = str(Path(temporary).resolve())
            model.save_pretrained(folder, **settings)
            try:
                return _fresh(self._fingerprinted(folder), IN_MEMORY)
            except RequestError as err:
                raise RequestError(str(err).replace(folder, IN_MEMORY)) from None

    def _fingerprinted(self, model: str) -> Indexed:
        """A folder or Hub id; the family is guessed where none is named."""
        from ..indexer import base_key, fingerprint_query, guess_base

        base = self.base
        if base is None:
            own = {base_key(name) for name in self.catalog.bases()}
            others: dict[str, str] = {}
            for index in self.attached:
                if base_key(index.base) not in own:
                    others.setdefault(base_key(index.base), index.base)
            base = guess_base(self.catalog, model, list(others.values()))
        recipe, layout = self._recipe_of(base)
        shapes = None
        if base not in self.catalog.bases() and (published := self.indexes_of(base)):
            shapes = _largest(published).manifest.shapes
        return fingerprint_query(self.catalog, model, base, recipe, layout, shapes)

    def _vector(self, vector: Vector, kind: Kind) -> FreshQuery:
        """A search from a fingerprint's vector, of any length but zero."""
        import numpy as np

        from ..search import FreshQuery

        base = self.base or find_family(self.catalog, None)
        recipe, _ = self._recipe_of(base)
        numbers = np.asarray(vector, dtype=np.float64)
        if numbers.shape != (recipe.dim,):
            raise RequestError(
                f"vector: {recipe.name} fingerprints have {recipe.dim} numbers, got {numbers.size}"
            )
        norm = float(np.linalg.norm(numbers))
        if not (np.isfinite(norm) and norm > np.finfo(np.float32).tiny):
            raise RequestError("vector: its length is zero or out of range")
        unit = (numbers / norm).astype(np.float32)
        made = Fingerprint(recipe=recipe, vector=unit, norm=norm)
        return FreshQuery(model=VECTOR, base=base, fingerprint=made, kind=kind)

    def _recipe_of(self, base: str) -> tuple[Recipe, tuple[tuple[str, str, int], ...] | None]:
        """The recipe that a model of a base is fingerprinted under: the catalog's, else that of the
        largest attached index, with the family's layout, which the catalog does not know."""
        try:
            if base in self.catalog.bases() or not self.attached:
                return self.catalog.find_recipe(self.recipe, base), None
        except (EmptyCatalog, UnknownRecipe):
            if not self.attached:
                raise
        wanted = self.recipe
        known = [i for i in self.indexes_of(base) if wanted in (None, i.recipe.name, i.recipe.id)]
        if not known:
            return self.catalog.find_recipe(wanted, base), None
        return _largest(known).recipe, _largest(known).manifest.layout


def _fresh(made: Indexed, name: str) -> FreshQuery:
    """A search from what was just fingerprinted."""
    from ..search import FreshQuery

    return FreshQuery(
        model=name,
        base=made.model.base,
        fingerprint=made.fingerprints[0],
        kind=made.model.kind,
        dataset=made.model.dataset,
        slots=made.slots,
        footprint=made.footprint,
    )


def _largest(indexes: Sequence[AttachedIndex]) -> AttachedIndex:
    return max(indexes, key=lambda index: index.manifest.models)


NEIGHBOURS_SHOWN, DATA_SHOWN = 6, 3
"""Neighbours, and data sets, that a page lists of a model."""

NEIGHBOURS_UP_TO = 4_000
"""Models up to which a page lists the nearest of each: every pair is compared, in minutes."""

BLOCK_SCORES = 1 << 20
"""Scores held at a time."""

PLACED_BY = 15
"""Models that place a data set, at most; as many landmarks place a model."""

FALLBACK = 5
"""Models that place it where none stands out."""

LEAST_WEIGHT = 0.1
"""Least weight of a model that places a data set, in z."""

NOTHING = "no model stands out"

NEAREST_LISTED = 5


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


@record
class Cluster(Family):
    """Groups of models that lie close together, and datasets for unlabelled models.

    >>> [len(group["models"]) for group in db.cluster(min_size=2)]
    [2, 2]
    """

    _: KW_ONLY
    min_size: int | None = option(
        default=None,
        least=2,
        shown_default="grows with the family, from 3",
        help="Fewest models of a cluster.",
    )
    suggest: bool = option(
        "--suggest/--no-suggest",
        default=True,
        help="Suggest datasets for unlabelled models, by their nearest labelled models.",
    )
    unknown_share: float = option(
        "--unknown",
        default=0.5,
        least=0,
        most=1,
        metavar="SHARE",
        help="Share of the unlabelled whose dataset no labelled model has; 0 if labels "
        "name them all.",
    )

    def answer(self, db: Opened) -> ClusterTable:
        from ..search import cluster_family

        return ClusterTable(
            cluster_family(
                db._catalog,
                min_size=self.min_size,
                suggest=self.suggest,
                unknown_share=self.unknown_share,
                recipe=self.recipe,
                base=db._catalog.find_base(self.base),
            )
        )


@record
class Map(Family):
    """Draw a family into a file: a page (.html) or a picture (.png, .svg).

    Raises:
        RequestError: another ending, several families without `base`, or the file cannot be
            written.

    >>> db.map("family.html")[0]["models"]
    4
    """

    path: Place = option(
        "-o",
        "--output",
        default="deltadex-map.html",
        doors="local",
        file="file",
        help="A page (.html) or a picture (.png, .svg).",
    )
    _: KW_ONLY
    layout: Layout = option(
        default="auto",
        help="Method that places models: auto is t-SNE, of landmarks where models are many; umap "
        "needs deltadex[umap].",
    )
    seed: int = option(
        default=0, doors="local", least=0, most=2**32 - 1, help="Random seed of the layout."
    )
    colour: Colour | None = option(
        default=None,
        doors="local",
        shown_default="dataset",
        help="Colour a picture by this column.",
    )

    def answer(self, db: Opened) -> Table:
        self.check()
        return Table(map_family(db._catalog, self, db._track))

    def check(self) -> None:
        """Raises `RequestError` where options do not belong together."""
        if Path(self.path).suffix.lower() == ".html" and self.colour:
            raise RequestError("--colour is for a .png or .svg picture")


@record
class Diff(Question):
    """What differs between two indexed models, a row for each slot that differs most.

    >>> db.diff("imdb-0", "sst2-0").to_json()["unit"]
    'relative'
    """

    first: str = argument(metavar="A", help="Id of a model.")
    second: str = argument(metavar="B", help="Id of another model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DifferenceTable:
        from ..search import pair_cosine
        from ..study.diff import diff_models

        difference = db._catalog.look(
            lambda: diff_models(
                db._catalog,
                self.first,
                self.second,
                db._catalog.find_base(self.base),
                partial(pair_cosine, db._catalog),
            )
        )
        return DifferenceTable(difference.to_json())


def map_family(catalog: Catalog, asked: Map, track: Track = untracked) -> dict[str, Any]:
    """Draw a family's fingerprints into a file; returns what was drawn, ready for JSON."""
    from ..pictures.maps import check_map_ending

    check_map_ending(Path(asked.path))
    is_page = Path(asked.path).suffix.lower() == ".html"
    return draw_columns(asked, *_place(catalog, asked, track, with_neighbours=is_page))


def draw_columns(
    asked: Map,
    document: Mapping[str, Any],
    landmarks: int | None = None,
    neighbours: Neighbourhoods | None = None,
) -> dict[str, Any]:
    """Draw a map that is computed; returns what was drawn, ready for JSON."""
    from ..pictures.maps import check_map_ending, write_map

    path = Path(asked.path)
    check_map_ending(path)
    write_map(
        document,
        path,
        landmarks=landmarks,
        neighbours=neighbours,
        colour=asked.colour or "dataset",
    )
    shown = ("base", "recipe", "layout", "explained", "seed")
    return {
        "written": str(path),
        "models": len(document["models"]),
        **{key: document[key] for key in shown},
        "landmarks": landmarks,
        **({"data": document["data"]} if "data" in document else {}),
    }


MONTH = len("2024-05")
"""Of a date."""


def layout_document(
    catalog: Catalog, asked: Map, track: Track = untracked, *, axes_alone: bool = False
) -> dict[str, Any]:
    """A family's map as columns, placed anew; names are numbers of places in a list.

    `data` has the places of kept data sets; a family that keeps none has no such key, nor has a
    first look on the main `axes_alone`, for which no pair is compared.
    """
    return _place(catalog, asked, track, axes_alone=axes_alone)[0]


def _place(
    catalog: Catalog,
    asked: Map,
    track: Track,
    *,
    with_neighbours: bool = False,
    axes_alone: bool = False,
) -> tuple[dict[str, Any], int | None, Neighbourhoods | None]:
    """The map as columns, the number of landmarks, and the nearest of every model."""
    from ..pictures.maps import encode_names
    from ..search import kept_data_sets, place_models, read_family
    from ..search.layout import EVERY_PAIR, place_axes

    view, models, records = read_family(
        catalog,
        asked.recipe,
        asked.base,
        several="one map shows one family",
        pairs_up_to=0 if axes_alone else EVERY_PAIR,
    )
    steps, done = iter(track(range(100), "percent of the layout", total=100)), 0

    def reach(percent: int) -> None:
        nonlocal done
        done += sum(1 for _ in islice(steps, percent - done))

    if axes_alone and models.axes is not None:
        placement = place_axes(models.axes)
    else:
        placement = place_models(
            models.ids,
            models.vectors,
            asked.layout,
            scores=models.scores,
            axes=models.axes,
            seed=asked.seed,
            report=reach,
        )
    reach(100)
    x, y = placement.coordinates.round(6).T.tolist()
    document: dict[str, Any] = {
        "base": models.base,
        "recipe": view.recipe.name,
        "layout": placement.method,
        "explained": placement.explained and list(placement.explained),
        "seed": asked.seed,
        "models": list(models.ids),
        "x": x,
        "y": y,
    }
    rows = [records[model] for model in models.ids]
    kinds = [row.kind for row in rows]
    months = [row.created_at and row.created_at[:MONTH] for row in rows]
    columns = {"dataset": models.labels, "author": models.authors, "kind": kinds, "month": months}
    if not axes_alone:
        columns["word"] = _topics(catalog, view, models)
    for name, column in columns.items():
        document[name], document[f"{name}s"] = encode_names(column)
    document["downloads"] = [row.downloads for row in rows]
    if axes_alone:
        return document, None, None
    kept = tuple(kept_data_sets(catalog, view))
    places = dict(zip(models.ids, zip(x, y, strict=True), strict=True))
    if stars := data_places(view, kept, places):
        document["data"] = stars
    neighbours = _neighbourhoods(view, models, kept) if with_neighbours else None
    return document, placement.landmarks, neighbours


def _topics(catalog: Catalog, view: FamilyView, models: LabelledModels) -> list[str | None]:
    """Words of each unlabelled model."""
    from ..search.word_names import WordNames

    unlabelled = [models.ids[row] for row in models.unlabelled_rows.tolist()]
    words = WordNames.of(catalog, view).of_models(unlabelled)
    return [", ".join(words.get(id, ())) or None for id in models.ids]


def _neighbourhoods(
    view: FamilyView, family: LabelledModels, kept: Sequence[DataSet]
) -> Neighbourhoods | None:
    """The nearest of every model, as a search gives them; None for families of too many models."""
    import numpy as np

    from ..pictures.maps import NearData, Neighbourhoods
    from ..search import compare_kept

    source, n_models = family.source, len(family.ids)
    if source is None or n_models > NEIGHBOURS_UP_TO:
        return None
    calibration = source.family.evidence.calibration(view)
    labels = view.labels
    rows = view.rows(family.ids).tolist()
    stated = calibration.trusted(rows, [labels.at(row).stated for row in rows])
    height = max(1, BLOCK_SCORES // max(1, n_models))
    neighbours: list[tuple[MapNeighbour, ...]] = []
    for block in np.split(np.arange(n_models), range(height, n_models, height)):
        pairs = source.pairs(block, np.arange(n_models))
        neighbours += (
            _nearest(family.ids, stated, row, cosines, z, calibration)
            for row, cosines, z in zip(block.tolist(), pairs.cosines, pairs.z, strict=True)
        )
    data: list[list[NearData]] | None = None
    if compared := compare_kept(view, kept, view.rows(family.ids)):
        data = [
            [NearData(near.data, near.z, near.fdr, near.verdict) for near in nearest[:DATA_SHOWN]]
            for nearest in map(compared.neighbours, range(n_models))
        ]
    return Neighbourhoods(neighbours, calibration.to_json(), data)


def _nearest(
    ids: Sequence[str],
    stated: Sequence[str | None],
    row: int,
    cosines: Float64[np.ndarray, " models"],
    z: Float64[np.ndarray, " models"],
    calibration: Calibration,
) -> tuple[MapNeighbour, ...]:
    """The nearest of one model; equal scores in order of id, as rows are."""
    import numpy as np

    from ..pictures.maps import MapNeighbour
    from ..search.family_scores import TIE_DECIMALS
    from ..search.neighbours import CANDIDATES

    near = np.argsort(-np.round(z, TIE_DECIMALS), kind="stable")
    near = near[near != row][:CANDIDATES]
    judged = calibration.judge(
        z[near], [stated[place] for place in near.tolist()], cosines[near], len(ids) - 1
    )
    return tuple(
        MapNeighbour(
            model=ids[place],
            z=float(z[place]),
            probability=judged.probability(rank),
            fdr=float(judged.fdr[rank]),
            cosine=float(np.clip(cosines[place], -1.0, 1.0)),
            verdict=judged.verdicts[rank],
        )
        for rank, place in enumerate(near[:NEIGHBOURS_SHOWN].tolist())
    )


def data_places(
    view: FamilyView, kept: Sequence[DataSet], places: Mapping[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """A row for each data set that has models on the map, whose places by id are given."""
    from ..search import nearest_to_kept

    rows = []
    for data, models in nearest_to_kept(view, kept, PLACED_BY):
        shown = [model for model in models if model.model in places]
        if not shown:
            continue
        x, y = data_place(shown, places)
        rows.append(
            {
                "name": data.name,
                "x": round(x, 6),
                "y": round(y, 6),
                "examples": data.examples,
                "loss": data.loss,
                "verdict": shown[0].verdict,
                "nearest": [
                    {
                        "model": model.model,
                        "z": round(model.z, 4),
                        "fdr": round(model.fdr, 6),
                        "verdict": model.verdict,
                    }
                    for model in shown[:NEAREST_LISTED]
                ],
            }
        )
    return rows


def data_place(
    nearest: Sequence[TrainedModel], places: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """The mean place of the models that stand out, weighted by z; else of the few nearest.

    As models are placed among landmarks (`search/layout.py`), with z in place of affinities.
    """
    import numpy as np

    standing = [model for model in nearest if model.verdict != NOTHING] or nearest[:FALLBACK]
    points: Float64[np.ndarray, "models 2"] = np.array([places[m.model] for m in standing])
    x, y = np.average(points, axis=0, weights=[max(m.z, LEAST_WEIGHT) for m in standing]).tolist()
    return x, y
