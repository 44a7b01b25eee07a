"""What requests may say, and shapes of the answers, for the OpenAPI document.

Every answer may have further keys. Those of a record are its fields; a document that is no record
has its keys declared here, by type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from types import GenericAlias
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model, model_validator

from ...database import FindSimilar, Label
from ...options import hints_of, options_of
from ...records import FindingKind
from ...search.evidence import Calibration, Verdict
from ...search.neighbours import Near, Neighbour
from ...search.text_search import FoundByText
from ...search.trained_on import DataNeighbour
from .catalog import check_where
from .middleware import Sent
from .service import Service
from .settings import MAX_ID, MAX_K, MAX_QUERIES, MAX_STATEMENT, MAX_WHERE


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


def _answer(
    name: str, keys: Mapping[Any, str], says: str = "", *, base: Any = Answer, **optional: Any
) -> Any:
    """The schema of a document: the names of its keys by type, and the type and default of those
    that may be missing."""
    required: dict[str, Any] = {
        key: (kind, ...) for kind, some in keys.items() for key in some.split()
    }
    return create_model(name, __base__=base, __doc__=says, **required, **optional)


def _answer_of(record: type[Any], says: str, **changed: Any) -> Any:
    """The schema of a record's document. A number that is not finite is null there."""
    hints = get_type_hints(record)
    keys = {field.name: hints[field.name] for field in fields(record)} | changed
    values: dict[str, Any] = {key: (_kind_in_json(kind), ...) for key, kind in keys.items()}
    return create_model(f"{record.__name__}Answer", __base__=Answer, __doc__=says, **values)


def _kind_in_json(kind: Any) -> Any:
    if kind is float:
        return NUMBER
    if is_dataclass(kind):
        return _answer_of(cast("type[Any]", kind), "")
    if get_origin(kind) in (tuple, list):
        return _many(_kind_in_json(get_args(kind)[0]))
    return kind


def _many(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


TEXT: TypeAlias = str | None
NUMBER: TypeAlias = float | None
COUNT: TypeAlias = int | None
ROW: TypeAlias = dict[str, Any]
ROWS, TEXTS, COUNTS = list[ROW], list[str], dict[str, int]
LABELS = "dataset author run"

ProblemAnswer = _answer(
    "ProblemAnswer",
    {str: "type title detail code", int: "status"},
    "RFC 9457; `code` is for programs, `detail` for people.",
)
_WAITING: dict[str, Any] = {
    "ahead": (int, Field(0, ge=0, description="Jobs before it; 0 once it is at work.")),
    "elapsed_s": (float, Field(0.0, ge=0, description="Since it was asked for.")),
}
ComputingAnswer = _answer(
    "ComputingAnswer",
    {Literal["computing"]: "status", Annotated[int, Field(ge=1)]: "retry_after_s", str: "job"},
    "Being computed: ask again. `percent` is how much is done of a background document.",
    percent=(COUNT, None),
    **_WAITING,
)
CancelledAnswer = _answer("CancelledAnswer", {str: "job", Literal[True]: "cancelled"})

RecipeCount = _answer("RecipeCount", {str: "id name", int: "rank dim models"})
FamilyAnswer = _answer(
    "FamilyAnswer",
    {str: "base name", int: "models indexed labelled datasets", _many(RecipeCount): "recipes"},
)
TakesAnswer = _answer(
    "TakesAnswer",
    {int: "adapter data"},
    "Bytes of a file that may be sent; 0 where none is taken.",
)
OpeningAnswer = _answer(
    "OpeningAnswer",
    {int: "percent", TEXTS: "searchable"},
    "How far the opening of the indexes is, and the families that can be searched already.",
)
FamiliesAnswer = _answer(
    "FamiliesAnswer",
    {
        _many(FamilyAnswer): "families",
        OpeningAnswer | None: "opening",
        bool: "writable umap",
        TakesAnswer: "takes",
        str: "version",
    },
    "`opening` is null once every family can be searched.",
)
StatsAnswer = _answer(
    "StatsAnswer",
    {str: "path", int: "bytes", ROWS: "bases recipes", COUNTS: "statuses verified"},
)

ModelAnswer = _answer(
    "ModelAnswer",
    {
        str: "model base status kind method source",
        TEXT: f"code reason {LABELS}",
        COUNT: "downloads",
        TEXTS: "notes recipes",
    },
)
ModelsAnswer = _answer("ModelsAnswer", {_many(ModelAnswer): "models", int: "total limit offset"})
SlotAnswer = _answer(
    "SlotAnswer",
    {
        str: "slot",
        list[int]: "shape",
        NUMBER: "fro_norm relative_norm energy stable_rank noise_floor",
        list[NUMBER]: "sigma",
    },
)
ModelInFull = _answer(
    "ModelInFull",
    {TEXTS: "words", _many(SlotAnswer): "slots"},
    "`words` are of its training data: those that `words` names first.",
    base=ModelAnswer,
)
TraceAnswer = _answer(
    "TraceAnswer",
    {
        str: "model sentence",
        TEXT: "base method",
        Literal["fine-tune", "merge", "copy", "transformed", "unknown"]: "verdict",
        NUMBER: "p reconstructed_share",
        list[list[int]]: "layers",
        TEXTS: "changes",
        ROWS: "parents",
    },
)

QueryAnswer = _answer("QueryAnswer", {str: "model base", TEXT: "dataset"})
RATE = Annotated[NUMBER, Field(ge=0, le=1)]
CalibrationAnswer = _answer_of(
    Calibration,
    "What `probability` and `fdr` are known from; `datasets` have siblings among `queries`.",
    rate=float,
    models_needed=int,
    verdict_from=float,
    weights=list[float],
    doubted=int,
)
NeighbourAnswer = _answer_of(
    Neighbour,
    "`z` is in standard deviations above the family's strangers, `score` is z, bounded to −1…1; "
    "`fdr` is the share of such answers that are expected to be wrong. `source` is always null: a "
    "service searches its catalog only.",
    fdr=RATE,
)
SuspectAnswer = _answer(
    "SuspectAnswer",
    {str: "model dataset nearer", float: "own_z z"},
    "A model whose label contradicts the distances: z of its own data set, and of a nearer one.",
)
SimilarAnswer = _answer(
    "SimilarAnswer",
    {
        QueryAnswer: "query",
        str: "recipe recipe_id",
        Verdict: "verdict",
        int: "compared",
        CalibrationAnswer: "calibration",
        _many(NeighbourAnswer): "neighbours",
        _many(SuspectAnswer): "suspects",
    },
    "`verdict` is of the nearest model; `compared` counts the models that pass the filters.",
    attached=(TEXTS, Field([], description="Always empty, as `source` is null")),
)
NearAnswer = _answer_of(Near, "A model of another base; `cosine` is of words.")
AcrossAnswer = _answer(
    "AcrossAnswer",
    {
        QueryAnswer: "query",
        str: "recipe meaning",
        Verdict: "verdict",
        float: "verdict_from",
        _many(NearAnswer): "neighbours",
        ROWS: "families left_out",
    },
    "`left_out` has the families that could not be compared, with the reason.",
)
TrainedOnAnswer = _answer(
    "TrainedOnAnswer",
    {ROW: "query", int: "compared", ROWS: "neighbours", ROW | None: "calibration", str: "meaning"},
    "`query` is what was read of the data set, none of its texts; `meaning` says what an answer "
    "proves at most.",
)
NearDataAnswer = _answer_of(DataNeighbour, "A kept data set near a model.", fdr=RATE)
NearestDataAnswer = _answer(
    "NearestDataAnswer",
    {
        ROW: "query",
        str: "recipe recipe_id verdict meaning",
        CalibrationAnswer: "calibration",
        _many(NearDataAnswer): "data",
    },
    "`meaning` says what an answer proves at most.",
)
FailedQuery = _answer("FailedQuery", {ProblemAnswer: "problem"})
BatchAnswer = _answer("BatchAnswer", {_many(SimilarAnswer | FailedQuery): "results"})

ShareAnswer = _answer("ShareAnswer", {NUMBER: "contribution share"})
ExplanationAnswer = _answer(
    "ExplanationAnswer",
    {
        str: "query model",
        NUMBER: "similarity",
        _many(ShareAnswer): "by_role by_layer by_block slots",
        TEXTS: "only_query only_model",
    },
)
WordAnswer = _answer(
    "WordAnswer",
    {str: "word", float: "strength"},
    "strength: how far the word's token moved beside the model's others, 0…1.",
)
WordsAnswer = _answer(
    "WordsAnswer",
    {
        str: "model base kind sentence",
        int: "touched vocabulary",
        float: "share",
        TEXT: "note",
        _many(WordAnswer): "seen answers_to",
    },
    "kind: `exact`, `tied`, `frozen`, `dense`, `none`. touched: tokens that occurred in training, "
    "of `vocabulary`. share: of the vocabulary, how much was read.",
    against=(TEXT, None),
    only_other=(_many(WordAnswer), []),
)
TextSearchAnswer = _answer_of(
    FoundByText,
    "asked: words of the text that a family knows; unknown: the others. Of a model, by_chance: of "
    "texts of random words, the share that some model of the family answers to as strongly, 0…1.",
    text=str,
    meaning=str,
)

ConfusionAnswer = _answer(
    "ConfusionAnswer",
    {TEXTS: "datasets", list[list[int]]: "counts"},
    "Rows: a labelled model's dataset. Columns: its nearest neighbour's; the last, of none.",
)
EvaluationAnswer = _answer(
    "EvaluationAnswer",
    {
        str: "recipe recipe_id way",
        int: "models labelled unlabelled datasets queries singletons dropped",
        COUNT: "sampled_queries labels_compared",
        Literal["siblings"]: "k",
        NUMBER: "micro macro chance p_value nn1 map",
        list[float] | None: "ci95",
        TEXT: "ci95_reason",
        ROW | None: "by_dataset",
        ConfusionAnswer | None: "confusion",
        _many(SuspectAnswer) | None: "suspects",
        Literal["author", "run"] | None: "exclude",
        bool: "with_unlabelled",
    },
    "Numbers are null, where `ci95_reason` says why; p is null of a family too large to test.",
)
DataPlaceAnswer = _answer(
    "DataPlaceAnswer",
    {str: "name loss", NUMBER: "x y", int: "examples", Verdict: "verdict", ROWS: "nearest"},
    "A kept data set on a map, with the few models nearest to it.",
)
LayoutAhead = _answer(
    "LayoutAhead",
    {str: "layout job", int: "percent"},
    "A layout that is being computed, and how much of it is done; as `ComputingAnswer`.",
    **_WAITING,
)
MapAnswer = _answer(
    "MapAnswer",
    {
        str: "base recipe layout",
        list[NUMBER] | None: "explained",
        int: "seed",
        TEXTS: "models datasets authors kinds months",
        list[NUMBER]: "x y",
        list[COUNT]: "dataset author kind month downloads",
    },
    "Columns, a model in each row; names by their place in the lists beside. `word`: words of "
    "unlabelled models, with the layout. `data` is there only if the family keeps data sets; "
    "`computing` with the main axes, while the layout is not ready.",
    word=(list[COUNT], []),
    words=(TEXTS, []),
    data=(_many(DataPlaceAnswer) | None, None),
    computing=(LayoutAhead | None, None),
)
ClustersAnswer = _answer(
    "ClustersAnswer",
    {
        str: "base recipe",
        int: "models",
        ROWS: "clusters",
        TEXTS: "noise",
        NUMBER: "ari nmi",
        ROW: "silhouette",
    },
    suggestions=(ROWS, Field([], description="Left out with `suggest=false`.")),
    hints=(ROWS, []),
    abstained=(int, 0),
    calibration=(ROW, {}),
)
FindingAnswer = _answer(
    "FindingAnswer",
    {str: "model base detail", FindingKind: "kind", NUMBER: "z"},
    "`detail` is a sentence; `z` is in standard deviations from what is ordinary.",
)
AuditAnswer = _answer(
    "AuditAnswer",
    {TEXT: "base", int: "models", _many(FindingAnswer): "findings", TEXTS: "notes"},
    "`notes` say what was not looked at: a service reads no weights.",
)
EdgeAnswer = _answer(
    "EdgeAnswer",
    {
        str: "parent child",
        TEXTS: "words",
        Annotated[float, Field(ge=0, le=1)]: "probability",
        Literal["fine-tune", "duplicate", "quantised", "merge"]: "kind",
        NUMBER: "weight",
    },
    "`parent` is the base where no indexed model is likely enough; `words` are of the child's "
    "training data.",
)
LineageAnswer = _answer(
    "LineageAnswer",
    {
        str: "base recipe",
        int: "models without_parent",
        float: "level",
        _many(EdgeAnswer): "edges",
        ROWS: "claims not_compared",
        COUNTS: "times",
    },
    "`level` is the probability below which a model hangs at the base.",
)

FailuresAnswer = _answer("FailuresAnswer", {ROWS: "failures"})
HealthAnswer = _answer("HealthAnswer", {Literal["ok"]: "status"})
ReadyAnswer = _answer("ReadyAnswer", {bool: "ready"})
OpeningReadyAnswer = _answer(
    "OpeningReadyAnswer", {Literal[False]: "ready", str: "detail"}, base=OpeningAnswer
)
RemovedAnswer = _answer("RemovedAnswer", {str: "removed base"})
LabelledAnswer = _answer(
    "LabelledAnswer",
    {str: "model base", TEXT: f"{LABELS} label_source", ROW: "before"},
    "A model's labels now, and `before`.",
)
OutcomeAnswer = _answer(
    "OutcomeAnswer",
    {str: "model", Literal["indexed", "failed"]: "status", TEXT: "code reason"},
    "What became of a model; one that was indexed before, and did not change, is `indexed`.",
)
AddedAnswer = _answer(
    "AddedAnswer",
    {str: "base recipe", int: "indexed", ROWS: "failed"},
    outcomes=(
        _many(OutcomeAnswer),
        Field([], description="Of models that were named, in order."),
    ),
)
_FACET = Literal["dataset", "author", "kind", "base", "status", "license"]
FacetAnswer = _answer("FacetAnswer", {_FACET: "facet", TEXT: "value", int: "models"})
FacetsAnswer = _answer(
    "FacetsAnswer",
    {int: "total", _many(FacetAnswer): "facets", COUNTS: "others"},
    "`total` models pass; `others` counts by facet those whose values are not listed.",
)
DifferenceAnswer = _answer("DifferenceAnswer", {ROWS: "most_different"})
KeptDataAnswer = _answer("KeptDataAnswer", {ROWS: "data"})
ShownDataAnswer = _answer("ShownDataAnswer", {str: "data base loss sha256", int: "examples"})
RowsAnswer = _answer("RowsAnswer", {TEXTS: "columns", ROWS: "rows"}, "What a SELECT gives.")


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
