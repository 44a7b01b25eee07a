"""What requests may say, and shapes of the answers, for the OpenAPI document.

The answer to a question is the document of its table, whose rows are those of a record, or have at
least what names them. Every answer may have further keys.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model, model_validator

from ...options import answer_of, description_of, hints_of, options_of
from ...questions.data import RemoveData, ShowData
from ...questions.eval import EvaluationTable
from ...questions.failures import FailureTable
from ...questions.find_data import NearestDataTable
from ...questions.find_similar import AcrossTable, FindSimilar, NeighbourTable
from ...questions.find_trained_on.find_trained_on import TrainedModelTable
from ...questions.label import Label
from ...questions.rm import Remove
from ...questions.search import TextTable
from ...questions.sql import QueryTable
from ...questions.trace import TraceTable
from ...results import Table
from ...search.evidence import Calibration, Verdict
from ...search.neighbours import Near, Neighbour
from ...search.text_search import FoundByText
from ...search.trained_on import DataNeighbour
from .catalog import check_where
from .middleware import Sent
from .service import Service
from .settings import MAX_ID, MAX_K, MAX_QUERIES, MAX_STATEMENT, MAX_WHERE


class Answer(BaseModel):
    """A document; docs/commands.md has its keys."""

    model_config = ConfigDict(extra="allow")


TEXT = str | None
NUMBER = float | None
ROW = dict[str, Any]
ROWS = list[ROW]
TEXTS = list[str]

DOCUMENTS: Mapping[type[Any], Mapping[str, Any]] = {
    NeighbourTable: {
        "query": ROW,
        "recipe": str,
        "verdict": Verdict,
        "compared": int,
        "calibration": Calibration,
        "neighbours": list[Neighbour],
        "suspects": ROWS,
    },
    AcrossTable: {"query": ROW, "neighbours": list[Near], "families": ROWS, "left_out": ROWS},
    NearestDataTable: {"query": ROW, "calibration": Calibration, "data": list[DataNeighbour]},
    TrainedModelTable: {"query": ROW, "compared": int, "neighbours": ROWS, "families": ROWS},
    TextTable: get_type_hints(FoundByText),
    QueryTable: {"columns": TEXTS, "rows": ROWS},
    EvaluationTable: {"recipe": str, "micro": NUMBER, "chance": NUMBER, "ci95": list[float] | None},
    FailureTable: {"failures": ROWS},
    TraceTable: {
        "model": str,
        "base": TEXT,
        "verdict": str,
        "p": NUMBER,
        "layers": list[list[int]],
    },
    Label: {"model": str, "base": str, "label_source": TEXT, "before": ROW},
    Remove: {"removed": str, "base": str},
    RemoveData: {"removed": str, "base": str},
    ShowData: {"data": str, "base": str, "loss": str, "sha256": str, "examples": int},
}
"""Keys of documents by type, beside the rows of tables: of a table, or of a question."""

DIFFERENT: Mapping[type[Any], Mapping[str, Any]] = {
    Calibration: {"weights": list[float], "doubted": int, "verdict_from": float}
}
"""Keys of records that their documents have otherwise."""


def schema_of(question: type[Any]) -> Any:
    """The schema of a question's answer."""
    if question in DOCUMENTS:
        return _model(f"{question.__name__}Answer", "", DOCUMENTS[question])
    tables = answer_of(question)
    return functools.reduce(operator.or_, map(_of_table, get_args(tables) or (tables,)))


@functools.cache
def _of_table(table: type[Table]) -> Any:
    keys = dict(DOCUMENTS.get(table, {}))
    if table._key and table._key not in keys:
        named_by = dict.fromkeys(table.columns[:1], Any)
        keys[table._key] = _many(_model(f"{table.__name__}Row", "", named_by))
    return _model(table.__name__, inspect.getdoc(table), keys) if keys else Answer


@functools.cache
def _of_record(record: Any) -> Any:
    hints: dict[str, Any] = get_type_hints(record)
    keys = {field.name: hints[field.name] for field in fields(record)}
    keys |= DIFFERENT.get(record, {})
    return _model(record.__name__, inspect.getdoc(record), keys)


def _model(name: str, says: str | None, keys: Mapping[str, Any]) -> Any:
    required: dict[str, Any] = {key: (_in_json(kind), ...) for key, kind in keys.items()}
    return create_model(name, __base__=Answer, __doc__=says, **required)


def _in_json(kind: Any) -> Any:
    """A type as a document has it: a number that is not finite is null."""
    if kind is float:
        return NUMBER
    if is_dataclass(kind):
        return _of_record(cast("Any", kind))
    if get_origin(kind) in (tuple, list):
        return _many(_in_json(get_args(kind)[0]))
    return kind


def _many(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


class ProblemAnswer(Answer):
    """RFC 9457; `code` is for programs, `detail` for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class ComputingAnswer(Answer):
    """Being computed: ask again. `percent` is how much is done of a background document; `ahead`
    counts the jobs before it, 0 once it is at work; `elapsed_s` is since it was asked for."""

    status: Literal["computing"]
    retry_after_s: Annotated[int, Field(ge=1)]
    job: str
    percent: int | None = None
    ahead: Annotated[int, Field(ge=0)] = 0
    elapsed_s: Annotated[float, Field(ge=0)] = 0.0


class FamilyAnswer(Answer):
    base: str
    name: str
    models: int
    indexed: int
    recipes: ROWS


class FamiliesAnswer(Answer):
    """`opening` is null once every family can be searched; `takes` has the bytes of a file that may
    be sent as an adapter or as data, 0 where none is taken."""

    families: list[FamilyAnswer]
    opening: ROW | None
    writable: bool
    umap: bool
    takes: dict[str, int]
    version: str


class BatchAnswer(Answer):
    """The answer to each query, or its `problem`."""

    results: ROWS


class MapAnswer(Answer):
    """Columns, a model in each row; names by their place in the lists beside. `word`: words of
    unlabelled models, with the layout. `data` is there only if the family keeps data sets;
    `computing` with the main axes, while the layout is not ready."""

    base: str
    recipe: str
    layout: str
    seed: int
    models: TEXTS
    datasets: TEXTS
    authors: TEXTS
    kinds: TEXTS
    months: TEXTS
    x: list[NUMBER]
    y: list[NUMBER]
    dataset: list[int | None]
    author: list[int | None]
    kind: list[int | None]
    month: list[int | None]
    downloads: list[int | None]


class ReadyAnswer(Answer):
    """Whether every family has been searched once; until then `percent` of the indexes that are
    open, and the `searchable` families."""

    ready: bool


class AddedAnswer(Answer):
    """`outcomes`: what became of the models that were named, in order; one that was indexed before,
    and did not change, is `indexed`."""

    base: str
    recipe: str
    indexed: int
    failed: ROWS
    outcomes: ROWS = []


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
    question: Any, only: Collection[str] | None = None, arguments: Collection[str] = ()
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


def asked_in(
    make: Callable[..., Any],
    place: Callable[[], Any] = Query,
    only: Collection[str] | None = None,
    **named: Any,
) -> Any:
    """What a route depends on that asks a question: the question, of the parameters that its record
    declares.

    Args:
        make: The record, or a `partial` of it.
        only: Fields that a request may give, where it may not give all.
        named: Fields that it gives in another way, by their annotations; those of `labels` are a
            body.
    """

    async def asked(**values: Any) -> Any:
        check_where(values.get("where"))
        labels = values.pop("labels", Sent()).model_dump()
        return make(**values, **labels)

    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = fields_of(getattr(make, "func", make), only).items()
    parameters = [
        *(inspect.Parameter(name, keyword, annotation=kind) for name, kind in named.items()),
        *(
            inspect.Parameter(name, keyword, default=default, annotation=Annotated[hint, place()])
            for name, (hint, default) in fields
        ),
    ]
    vars(asked)["__signature__"] = inspect.Signature(parameters)
    return Depends(asked)


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


OF_ONE_FAMILY = fields_of(FindSimilar).keys() - {"across"}
"""Fields of a search inside a family."""

_Filtered: Any = create_model(
    "_Filtered", __base__=Sent, **cast("Any", fields_of(FindSimilar, OF_ONE_FAMILY - {"base"}))
)


class Batch(_Filtered):  # type: ignore[misc]  # pydantic makes it
    """Several questions with the same filters."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"queries": [{"model": "someone/bert-imdb"}], "k": 5, "dataset": "imdb"}]
        }
    )

    queries: Annotated[list[Query_], Field(min_length=1, max_length=MAX_QUERIES)]


Labelling = create_model(
    "Labels",
    __base__=Sent,
    __doc__="What a model was trained on; what is left out stays as it is.",
    **cast("Any", fields_of(Label, ("dataset", "author", "run", "clear"), ("dataset",))),
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
    416: "The file does not have these bytes.",
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
COMPUTING: Responses = {**JOB, 304: {"description": "The client has this document already."}}


def answers(
    question: type[Any], *problems: int, more: Responses | None = None, id: str | None = None
) -> dict[str, Any]:
    """How a route is declared that answers a question: `x-question` of the OpenAPI document has its
    name, by which `deltadex.connect` finds the route; with an `id` it has its description, too."""
    declared: dict[str, Any] = {
        "responses": gives(schema_of(question), *problems) | (more or {}),
        "openapi_extra": {"x-question": question.__name__},
    }
    if id is None:
        return declared
    return {**declared, "name": id, "description": description_of(question).partition("\n\n")[0]}
