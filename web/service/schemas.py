"""What requests may say, and shapes of the answers, for the OpenAPI document.

Every answer may have further keys. Declared here and not derived: an answer is what `to_json` makes
of a record, whose names and nesting differ (a recipe is its name and its id), and clients read the
same while fields change.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model, model_validator

from ...database import FindSimilar, Label
from ...options import hints_of, options_of
from ...records import FindingKind
from .catalog import check_where
from .middleware import Sent
from .service import Service
from .settings import MAX_ID, MAX_K, MAX_QUERIES, MAX_STATEMENT, MAX_WHERE


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemAnswer(Answer):
    """RFC 9457; `code` is for programs, `detail` for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class ComputingAnswer(Answer):
    """Being computed: ask again."""

    status: Literal["computing"]
    retry_after_s: int = Field(ge=1)
    job: str
    ahead: int = Field(default=0, ge=0, description="Jobs before it; 0 once it is at work.")
    elapsed_s: float = Field(default=0.0, ge=0, description="Since it was asked for.")
    percent: int | None = Field(
        default=None, description="How much is done, of a background document."
    )


class CancelledAnswer(Answer):
    job: str
    cancelled: Literal[True]


class RecipeCount(Answer):
    id: str
    name: str
    rank: int
    dim: int
    models: int


class FamilyAnswer(Answer):
    base: str
    name: str
    models: int
    indexed: int
    labelled: int
    datasets: int
    recipes: list[RecipeCount]


class TakesAnswer(Answer):
    """Bytes of a file that may be sent; 0 where none is taken."""

    adapter: int
    data: int


class OpeningAnswer(Answer):
    """How far the opening of the indexes is, and the families that can be searched already."""

    percent: int
    searchable: list[str]


class FamiliesAnswer(Answer):
    families: list[FamilyAnswer]
    opening: OpeningAnswer | None = Field(description="null once every family can be searched")
    writable: bool
    umap: bool
    takes: TakesAnswer
    version: str


class StatsAnswer(Answer):
    path: str
    bytes: int
    bases: list[dict[str, Any]]
    recipes: list[dict[str, Any]]
    statuses: dict[str, int]
    verified: dict[str, int]


class ModelAnswer(Answer):
    model: str
    base: str
    status: str
    code: str | None
    reason: str | None
    dataset: str | None
    author: str | None
    run: str | None
    kind: str
    method: str
    source: str
    downloads: int | None
    notes: list[str]
    recipes: list[str]


class ModelsAnswer(Answer):
    models: list[ModelAnswer]
    total: int
    limit: int
    offset: int


class SlotAnswer(Answer):
    slot: str
    shape: list[int]
    fro_norm: float | None
    relative_norm: float | None
    sigma: list[float | None]
    energy: float | None
    stable_rank: float | None
    noise_floor: float | None


class ModelInFull(ModelAnswer):
    words: list[str] = Field(description="Of its training data: those that `words` names first.")
    slots: list[SlotAnswer]


class TraceAnswer(Answer):
    model: str
    base: str | None
    verdict: Literal["fine-tune", "merge", "copy", "transformed", "unknown"]
    p: float | None
    layers: list[list[int]]
    changes: list[str]
    parents: list[dict[str, Any]]
    method: str | None
    reconstructed_share: float | None
    sentence: str


class QueryAnswer(Answer):
    model: str
    dataset: str | None
    base: str


Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]


class Evidence(Answer):
    """`z` is in standard deviations above the family's strangers; `fdr` is the share of such
    answers that are expected to be wrong."""

    rank: int
    verdict: Verdict
    z: float | None
    fdr: float | None = Field(ge=0, le=1)
    cosine: float | None


class NeighbourAnswer(Evidence):
    """`score` is z, bounded to −1…1."""

    model: str
    score: float | None
    probability: float | None
    dataset: str | None
    author: str | None
    run: str | None
    base: str
    source: str | None = Field(None, description="Always null: a service searches its catalog only")


class CalibrationAnswer(Answer):
    """What `probability` and `fdr` are known from; `datasets` have siblings among `queries`."""

    rate: float
    source: Literal["labelled models of the family", "families like it", "the null alone"]
    models: int
    models_needed: int
    verdict_from: float
    datasets: int
    queries: int
    nearest: float
    rival: float
    weights: list[float]
    bound: float
    doubted: int


class SuspectAnswer(Answer):
    """A model whose label contradicts the distances: z of its own data set, and of a nearer one."""

    model: str
    dataset: str
    own_z: float
    nearer: str
    z: float


class SimilarAnswer(Answer):
    """`verdict` is of the nearest model; `compared` counts the models that pass the filters."""

    query: QueryAnswer
    recipe: str
    recipe_id: str
    verdict: Verdict
    compared: int
    attached: list[str] = Field([], description="Always empty, as `source` is null")
    calibration: CalibrationAnswer
    neighbours: list[NeighbourAnswer]
    suspects: list[SuspectAnswer]


class NeighbourAcrossAnswer(Answer):
    """A model of another base; `cosine` is of words."""

    rank: int
    model: str
    base: str
    probability: float | None
    verdict: Verdict
    z: float
    fdr: float | None
    cosine: float
    score: float
    dataset: str | None
    author: str | None
    run: str | None


class AcrossAnswer(Answer):
    """`left_out` has the families that could not be compared, with the reason."""

    query: QueryAnswer
    recipe: str
    verdict: Verdict
    verdict_from: float
    neighbours: list[NeighbourAcrossAnswer]
    families: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    meaning: str


class TrainedOnAnswer(Answer):
    """`query` is what was read of the data set, none of its texts; `meaning` says what an answer
    proves at most."""

    query: dict[str, Any]
    compared: int
    neighbours: list[dict[str, Any]]
    calibration: dict[str, Any] | None
    meaning: str


class NearDataAnswer(Evidence):
    """A kept data set near a model."""

    data: str
    examples: int
    loss: str
    z_error: float | None


class NearestDataAnswer(Answer):
    """`meaning` says what an answer proves at most."""

    query: dict[str, Any]
    recipe: str
    recipe_id: str
    verdict: str
    calibration: CalibrationAnswer
    data: list[NearDataAnswer]
    meaning: str


class FailedQuery(Answer):
    problem: ProblemAnswer


class BatchAnswer(Answer):
    results: list[SimilarAnswer | FailedQuery]


class ShareAnswer(Answer):
    contribution: float | None
    share: float | None


class ExplanationAnswer(Answer):
    query: str
    model: str
    similarity: float | None
    by_role: list[ShareAnswer]
    by_layer: list[ShareAnswer]
    by_block: list[ShareAnswer]
    slots: list[ShareAnswer]
    only_query: list[str]
    only_model: list[str]


class WordAnswer(Answer):
    """strength: how far the word's token moved beside the model's others, 0…1."""

    word: str
    strength: float


class WordsAnswer(Answer):
    """kind: `exact`, `tied`, `frozen`, `dense`, `none`. touched: tokens that occurred in training,
    of `vocabulary`. share: of the vocabulary, how much was read."""

    model: str
    base: str
    kind: str
    touched: int
    vocabulary: int
    share: float
    note: str | None
    against: str | None = None
    sentence: str
    seen: list[WordAnswer]
    answers_to: list[WordAnswer]
    only_other: list[WordAnswer] = []


class ModelByTextAnswer(Answer):
    """words: of the text, or near its words, to which the model answers. by_chance: of texts of
    random words, the share that some model of the family answers to as strongly, 0…1."""

    rank: int
    model: str
    base: str
    words: list[str]
    verdict: str
    by_chance: float
    score: float
    probability: float | None
    dataset: str | None
    author: str | None
    run: str | None


class FamilyAskedAnswer(Answer):
    base: str
    compared: int
    asked: list[str]


class TextSearchAnswer(Answer):
    """asked: words of the text that a family knows; unknown: the others."""

    text: str
    verdict: str
    asked: list[str]
    unknown: list[str]
    compared: int
    neighbours: list[ModelByTextAnswer]
    families: list[FamilyAskedAnswer]
    left_out: list[dict[str, Any]]
    meaning: str


class ConfusionAnswer(Answer):
    """Rows: a labelled model's dataset. Columns: its nearest neighbour's; the last, of none."""

    datasets: list[str]
    counts: list[list[int]]


class EvaluationAnswer(Answer):
    """Numbers are null, where `ci95_reason` says why; p is null of a family too large to test."""

    recipe: str
    recipe_id: str
    way: str
    models: int
    labelled: int
    unlabelled: int
    datasets: int
    queries: int
    sampled_queries: int | None
    singletons: int
    dropped: int
    k: Literal["siblings"]
    micro: float | None
    macro: float | None
    chance: float | None
    ci95: list[float] | None
    ci95_reason: str | None
    p_value: float | None
    nn1: float | None
    map: float | None
    by_dataset: dict[str, Any] | None
    confusion: ConfusionAnswer | None
    suspects: list[SuspectAnswer] | None
    labels_compared: int | None
    exclude: Literal["author", "run"] | None
    with_unlabelled: bool


class DataPlaceAnswer(Answer):
    """A kept data set on a map, with the few models nearest to it."""

    name: str
    x: float | None
    y: float | None
    examples: int
    loss: str
    verdict: Verdict
    nearest: list[dict[str, Any]]


class LayoutAhead(Answer):
    """A layout that is being computed, and how much of it is done; as `ComputingAnswer`."""

    layout: str
    job: str
    percent: int
    ahead: int = 0
    elapsed_s: float = 0.0


class MapAnswer(Answer):
    """Columns, a model in each row; names by their place in the lists beside. `data` is there only
    if the family keeps data sets; `computing` with the main axes, while the layout is not ready."""

    base: str
    recipe: str
    layout: str
    explained: list[float | None] | None
    seed: int
    models: list[str]
    x: list[float | None]
    y: list[float | None]
    dataset: list[int | None]
    datasets: list[str]
    author: list[int | None]
    authors: list[str]
    kind: list[int | None]
    kinds: list[str]
    month: list[int | None]
    months: list[str]
    word: list[int | None] = Field([], description="Words of unlabelled models; with the layout.")
    words: list[str] = []
    downloads: list[int | None]
    data: list[DataPlaceAnswer] | None = None
    computing: LayoutAhead | None = None


class ClustersAnswer(Answer):
    base: str
    recipe: str
    models: int
    clusters: list[dict[str, Any]]
    noise: list[str]
    ari: float | None
    nmi: float | None
    silhouette: dict[str, Any]
    suggestions: list[dict[str, Any]] = Field([], description="Left out with `suggest=false`.")
    hints: list[dict[str, Any]] = []
    abstained: int = 0
    calibration: dict[str, Any] = {}


class FindingAnswer(Answer):
    """`detail` is a sentence; `z` is in standard deviations from what is ordinary."""

    model: str
    base: str
    kind: FindingKind
    detail: str
    z: float | None


class AuditAnswer(Answer):
    """`notes` say what was not looked at: a service reads no weights."""

    base: str | None
    models: int
    findings: list[FindingAnswer]
    notes: list[str]


class EdgeAnswer(Answer):
    """`parent` is the base where no indexed model is likely enough; `words` are of the child's
    training data."""

    parent: str
    child: str
    words: list[str]
    probability: float = Field(ge=0, le=1)
    kind: Literal["fine-tune", "duplicate", "quantised", "merge"]
    weight: float | None


class LineageAnswer(Answer):
    """`level` is the probability below which a model hangs at the base."""

    base: str
    recipe: str
    models: int
    level: float
    without_parent: int
    edges: list[EdgeAnswer]
    claims: list[dict[str, Any]]
    not_compared: list[dict[str, Any]]
    times: dict[str, int]


class FailuresAnswer(Answer):
    failures: list[dict[str, Any]]


class HealthAnswer(Answer):
    status: Literal["ok"]


class ReadyAnswer(Answer):
    ready: bool


class OpeningReadyAnswer(OpeningAnswer):
    ready: Literal[False]
    detail: str


class RemovedAnswer(Answer):
    removed: str
    base: str


class LabelledAnswer(Answer):
    """A model's labels now, and `before`."""

    model: str
    base: str
    dataset: str | None
    author: str | None
    run: str | None
    label_source: str | None
    before: dict[str, Any]


class OutcomeAnswer(Answer):
    """What became of a model; one that was indexed before, and did not change, is `indexed`."""

    model: str
    status: Literal["indexed", "failed"]
    code: str | None
    reason: str | None


class AddedAnswer(Answer):
    base: str
    recipe: str
    indexed: int
    failed: list[dict[str, Any]]
    outcomes: list[OutcomeAnswer] = Field([], description="Of models that were named, in order.")


class FacetAnswer(Answer):
    facet: Literal["dataset", "author", "kind", "base", "status", "license"]
    value: str | None
    models: int


class FacetsAnswer(Answer):
    """`total` models pass; `others` counts by facet those whose values are not listed."""

    total: int
    facets: list[FacetAnswer]
    others: dict[str, int]


class DifferenceAnswer(Answer):
    most_different: list[dict[str, Any]]


class KeptDataAnswer(Answer):
    data: list[dict[str, Any]]


class ShownDataAnswer(Answer):
    data: str
    base: str
    loss: str
    examples: int
    sha256: str


class RowsAnswer(Answer):
    """What a SELECT gives."""

    columns: list[str]
    rows: list[dict[str, Any]]


Endpoint = Callable[..., Awaitable[Any]]
LONGEST_VECTOR = 1 << 16
NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]+$"
_RECIPE = "Name or id of a recipe; left out, what most models have."
_BASE = "A family, as GET families names it; may be left out where there is one."

Name = Annotated[str, StringConstraints(max_length=MAX_ID, pattern=NO_CONTROLS)]
IdInPath = Annotated[Name, Path(description="A model's id; slashes stay as they are.")]
IdInQuery = Annotated[Name, Query(description="A model's id.")]
TextInQuery = Annotated[str, Query(max_length=20_000, description="Plain text.")]
ModelInQuery = Annotated[Name | None, Query(description="Only this model, by its id.")]


BaseInPath = Annotated[Name, Path(description="A family's base; slashes stay as they are.")]
DataInQuery = Annotated[Name, Query(description="A kept data set's name.")]
DataInPath = Annotated[Name, Path(description="A kept data set's name.")]
BaseInQuery = Annotated[Name | None, Query(description=_BASE)]
RecipeInQuery = Annotated[Name | None, Query(description=_RECIPE)]

PreferHeader = Annotated[
    str | None,
    Header(
        description="`respond-async`: 202 and a job at once; `wait=S`: after S seconds (RFC 7240)."
    ),
]


_LIMITED: dict[str, Any] = {
    "k": Annotated[int, Field(ge=1, le=MAX_K)],
    "where": Annotated[str, StringConstraints(max_length=MAX_WHERE)],
    "q": Annotated[str, Field(max_length=200)],
}
"""Types of fields of questions whose limits a service sets."""

_SAID = {"base": _BASE, "recipe": _RECIPE}


def fields_of(
    question: type[Any], only: Collection[str] | None = None, arguments: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Annotation and default of every field that a request may give.

    Args:
        only: Fields that it may give, where it may not give all.
        arguments: Arguments that it may give; the others it names in another way.
    """
    hints = hints_of(question)
    fields = {}
    for name, (entry, declared) in options_of(question).items():
        is_open = declared.doors == "all" and (not declared.is_argument or name in arguments)
        if is_open and (only is None or name in only):
            hint: Any = hints[name]
            is_text = str in (hint, *get_args(hint))
            hint = _LIMITED.get(name, Name if is_text else hint)
            limits = Field(
                description=_SAID.get(name, declared.help), ge=declared.least, le=declared.most
            )
            optional = hint | None if entry.default is None else hint
            fields[name] = (Annotated[optional, limits], entry.default)
    return fields


def answers(question: type[Any]) -> Callable[[Endpoint], Endpoint]:
    """Notes which question a route answers: the OpenAPI document has its name in `x-question`, by
    which `deltadex.connect` finds the route."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["question"] = question
        return endpoint

    return decorate


def asks(
    question: type[Any],
    place: Callable[[], Any] = Query,
    only: Collection[str] | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Gives a route the parameters that a question declares, as its argument `asked`.

    `asked` makes the question of the arguments that a request names in another way.

    Args:
        only: Fields that it may give, where it may not give all.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        own = inspect.signature(endpoint, eval_str=True)
        fields, make = fields_of(question, only), cast("Callable[..., Any]", question)

        @functools.wraps(endpoint)
        async def route(**given: Any) -> Any:
            values = {name: given.pop(name) for name in fields}
            check_where(values.get("where"))
            return await endpoint(**given, asked=functools.partial(make, **values))

        keyword = inspect.Parameter.KEYWORD_ONLY
        added = []
        for name, (hint, default) in fields.items():
            sent = place()
            added.append(
                inspect.Parameter(name, keyword, default=default, annotation=Annotated[hint, sent])
            )
        kept = [own.parameters[name].replace(kind=keyword) for name in own.parameters]
        kept = [parameter for parameter in kept if parameter.name != "asked"]
        vars(route)["__signature__"] = own.replace(parameters=[*kept, *added])
        return answers(question)(route)

    return decorate


async def the_service(request: Request) -> Service:
    """The service that the app was made for."""
    service: Service = request.app.state.service
    return service


ServiceIn = Annotated[Service, Depends(the_service)]


class Query_(Sent):
    """A stored model, or a fingerprint."""

    model_config = ConfigDict(title="Query")

    model: Name | None = None
    vector: (
        Annotated[
            list[Annotated[float, Field(allow_inf_nan=False)]],
            Field(min_length=1, max_length=LONGEST_VECTOR),
        ]
        | None
    ) = None
    base: Name | None = None
    kind: Literal["full", "adapter"] = "full"

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Query_:
        if (self.model is None) == (self.vector is None):
            raise ValueError("give either model or vector")
        return self


class _Queries(Sent):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"queries": [{"model": "someone/bert-imdb"}], "k": 5, "dataset": "imdb"}]
        }
    )

    queries: Annotated[list[Query_], Field(min_length=1, max_length=MAX_QUERIES)]


OF_ONE_FAMILY = fields_of(FindSimilar).keys() - {"across"}
"""Fields of a search inside a family."""


if TYPE_CHECKING:

    class Batch(_Queries):
        """Several questions with the same filters."""

        where: str | None
else:
    Batch = create_model(
        "Batch",
        __base__=_Queries,
        __doc__="Several questions with the same filters.",
        **fields_of(FindSimilar, OF_ONE_FAMILY - {"base"}),
    )


if TYPE_CHECKING:

    class Labelling(Sent):
        """What a model was trained on; what is left out stays as it is."""

else:
    Labelling = create_model(
        "Labels",
        __base__=Sent,
        __doc__="What a model was trained on; what is left out stays as it is.",
        **fields_of(Label, ("dataset", "author", "run", "clear"), arguments=("dataset",)),
    )


class Statement(Sent):
    """A SELECT in DuckDB's SQL."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"statement": "FROM coverage"}]})

    statement: Annotated[str, StringConstraints(min_length=1, max_length=MAX_STATEMENT)]


_PROBLEMS = {
    400: "A host or a body that cannot be read.",
    401: "No token, or another one.",
    403: "Not open here.",
    404: "No such model or base, or an empty catalog.",
    408: "The body came too slowly.",
    409: "There is one already, or it is too late.",
    415: "Another kind of body.",
    413: "The body is too long.",
    422: "A parameter out of its range, or a question that has no answer.",
    500: "A defect in deltadex.",
    503: "Busy, too slow, or the catalog cannot be opened: ask again.",
}
_ALWAYS = (400, 408, 413, 422, 500, 503)
Responses = dict[int | str, dict[str, Any]]


def gives(answer: Any, *problems: int, status: int = 200) -> Responses:
    """The answer of a route, and its problem documents: these, and those that any may meet."""
    described: Responses = {
        problem: {
            "model": ProblemAnswer,
            "description": _PROBLEMS[problem],
            "content": {"application/problem+json": {}},
        }
        for problem in (*_ALWAYS, *problems)
    }
    return {status: {"model": answer}, **described}


JOB: Responses = {
    202: {
        "model": ComputingAnswer,
        "description": "It takes longer; `Location` is the job to ask for after `Retry-After`.",
        "headers": {"Location": {"schema": {"type": "string"}}},
    }
}
COMPUTING: Responses = {
    **JOB,
    304: {"description": "The client has this document already."},
}
