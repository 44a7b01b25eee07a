"""Questions as tools for assistants, made of their records, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, MISSING, Field, asdict, dataclass
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from .. import __version__, questions
from ..errors import DeltadexError, RequestError
from ..options import Option, choices_of, hints_of, is_list, option, options_of, parts_of, record
from ..questions.face.database import Database
from ..questions.face.serving import HOW_TO_READ, PageOfModels

SELECT_SECONDS, MAX_ROWS = 10.0, 1000
"""Of a SELECT: its time, and the rows that it may give."""

LONGEST_NAME, MOST_CHANGED = 200, 5
"""Characters of a text that may be part of a name; matrices of a summary."""

NAMED_BY = ("model", "base", "dataset", "author", "kind", "task", "downloads", "status")


@record
class FindModels(questions.Search):
    """Models by name, and by what their training data is about."""

    def of(self, db: Database) -> dict[str, Any]:
        """The document: `named` beside what `Search` answers."""
        asked = asdict(self)
        named = []
        if len(text := asked.pop("text")) <= LONGEST_NAME:
            page = PageOfModels(q=text, limit=asked.pop("k"), indexed_first=True, **asked)
            named = [{key: row[key] for key in NAMED_BY} for row in db.ask(page)]
        try:
            found = db.ask(questions.Search(**asdict(self))).to_json()
        except RequestError as err:  # a name without words
            if not named:
                raise
            found = {"neighbours": [], "verdict": str(err)}
        return {"named": named, **found}


@record
class ShowModel(questions.Show):
    """What is known of a model, in brief."""

    _: KW_ONLY
    matrices: bool = option(default=False, help="Also give every weight matrix that changed.")

    def of(self, db: Database) -> dict[str, Any]:
        """The document of `Show`, its matrices counted, those named that changed most."""
        document = dict(db.ask(questions.Show(self.model, base=self.base)).to_json())
        if self.matrices:
            return document
        slots = document.pop("slots")
        by = "relative_norm" if all(slot["relative_norm"] for slot in slots) else "fro_norm"
        most = sorted(slots, key=lambda slot: -(slot[by] or 0.0))[:MOST_CHANGED]
        changed = [{key: slot[key] for key in ("slot", by, "stable_rank")} for slot in most]
        return {**document, "matrices_changed": len(slots), "most_changed": changed}


QUESTIONS: Mapping[str, type[Any]] = {
    "find_models": FindModels,
    "find_similar": questions.FindSimilar,
    "find_trained_on": questions.FindTrainedOn,
    "trace": questions.Trace,
    "show": ShowModel,
    "sql": questions.Select,
    "words": questions.Words,
}
"""The tools by name; every one only reads."""

DESCRIPTIONS: Mapping[str, str] = {
    "find_models": "Find models of the catalog by a text: `named` are those whose id, dataset or "
    "author contains it, `neighbours` those whose training data is about it, by the words that "
    "their updates answer to, each with `words` and a verdict. Begin here where no id is known.",
    "find_similar": "Find the models that were trained on the same data as a model: an id of the "
    "catalog, a folder, an id of the Hub, or a list of them. Each neighbour has its dataset, "
    "verdict, probability, z and fdr; nearest first.",
    "find_trained_on": "Find the models that were likely trained on a data set: a file of texts on "
    "this machine, or the name of a kept data set. Words are compared first; other models need a "
    "run of the base over the examples, which takes a minute or more: `quick` leaves it out.",
    "trace": "Say which base a model comes from and what was done to it (fine-tune, merge, copy, "
    "rounding), by its weights, with p; `parents` and their weights for a merge. The verdict "
    '"unknown" means that nothing shows it.',
    "show": "Show what the catalog holds of one model: labels and who states them (`label_source`),"
    " kind, base, licence, task, dates, words of its training data, and the weight matrices that "
    "changed most. `matrices` gives all of these.",
    "sql": f"Count or list by one SELECT over the catalog's tables, of at most {MAX_ROWS} rows and "
    f"within {SELECT_SECONDS:g} s. SHOW TABLES lists the tables, DESCRIBE models the columns of "
    "one. It can neither write nor read files.",
    "words": "List the words that occurred in a model's training, read from its input embedding; "
    "`against` another model lists those that only the first one saw. Models whose embedding did "
    "not move have none.",
}
"""What a tool is for, as an assistant reads it."""

WRITES = ("keep",)
"""Options that would write into the catalog; those that name a file are left out as well."""

DIGITS = 4
"""Of a number: an answer is read, and not computed with."""

Asked = Callable[[], AbstractContextManager[Database]]
"""Opens the catalog for one question."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools over a catalog; `are_local` where its file is on this machine."""

    opened: Asked
    are_local: bool
    offline: bool = True

    def schema(self, name: str) -> dict[str, Any]:
        """The JSON Schema of a tool's arguments; a `KeyError` where there is no such tool."""
        question: Any = QUESTIONS[name]
        hints = hints_of(question)
        fields = {
            field: (entry, declared)
            for field, (entry, declared) in options_of(question).items()
            if declared.doors != "python"
            and declared.file is None
            and field not in (*WRITES, "offline")
        }
        return {
            "type": "object",
            "properties": {
                field: _schema(hints[field], entry, declared)
                for field, (entry, declared) in fields.items()
            },
            "required": [
                field
                for field, (entry, _) in fields.items()
                if entry.default is MISSING and entry.default_factory is MISSING
            ],
            "additionalProperties": False,
        }

    def answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The document that a tool answers.

        Raises:
            DeltadexError: the arguments are not those of the schema, or there is no answer.
        """
        from jsonschema import Draft202012Validator

        faults = Draft202012Validator(self.schema(name)).iter_errors(arguments)
        places = [(".".join(map(str, fault.absolute_path)), fault.message) for fault in faults]
        if places:
            lines = (": ".join(filter(None, place)) for place in places[:3])
            raise RequestError("; ".join(lines))
        question = QUESTIONS[name]
        given = {f: tuple(v) if isinstance(v, list) else v for f, v in arguments.items()}
        if question is questions.Trace:
            given["offline"] = self.offline
        asked = question(**given)
        with self.opened() as db:
            document = self._document(asked, db)
        shortened: dict[str, Any] = _shortened(document)
        return shortened

    def _document(self, asked: Any, db: Database) -> Any:
        if isinstance(asked, FindModels | ShowModel):
            return asked.of(db)
        if isinstance(asked, questions.Select) and self.are_local:
            table: Any = asked.of(db.path, seconds=SELECT_SECONDS, rows=MAX_ROWS)
        else:
            table = db.ask(asked)
        if isinstance(asked, questions.Select) and len(table) > MAX_ROWS:
            raise RequestError(f"sql: more than {MAX_ROWS} rows: add a LIMIT, or count groups")
        return table.to_json()


def _schema(hint: Any, entry: Field[Any], declared: Option) -> dict[str, Any]:
    one = _type(hint, declared)
    several = {"type": "array", "items": one, "minItems": 1}
    schema = {"anyOf": [one, several]} if declared.several else one
    if is_list(hint) and not declared.several:
        schema = several
    if entry.default not in (MISSING, None, ()):
        schema = {**schema, "default": entry.default}
    return {**schema, "description": declared.help} if declared.help else schema


def _type(hint: Any, declared: Option) -> dict[str, Any]:
    parts = parts_of(hint)
    if choices := choices_of(hint):
        return {"enum": list(choices)}
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number")):
        if kind in parts and not declared.several:
            limits = {
                "minimum": declared.least,
                "exclusiveMinimum": declared.above,
                "maximum": declared.most,
            }
            return {"type": name, **{key: v for key, v in limits.items() if v is not None}}
    return {"type": "string", "minLength": 1} if declared.is_argument else {"type": "string"}


def _shortened(value: Any) -> Any:
    """Numbers with few digits, and none that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _shortened(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(entry) for entry in value]
    return value if isinstance(value, str | int | bool | None) else str(value)


log = logging.getLogger(__name__)

INSTRUCTIONS = (
    "deltadex finds fine-tuned models that were trained on the same data, by what changed in their "
    f"weights.\n{HOW_TO_READ}"
)


def serve(tools: Tools) -> None:
    """Answer an assistant on standard input and output, until it hangs up."""
    server = _make_server(tools)

    async def answer() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(answer())


def _make_server(tools: Tools) -> Server[Any]:
    """A server that lists the tools and calls one at a time."""
    turn = asyncio.Lock()
    listed = [
        types.Tool(
            name=name,
            description=DESCRIPTIONS[name],
            input_schema=tools.schema(name),
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for name in QUESTIONS
    ]

    async def list_tools(context: Any, request: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call(context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        if request.name not in QUESTIONS:
            return _refused(f"no tool {request.name!r}; tools: {', '.join(QUESTIONS)}")
        async with turn:
            try:
                document = await asyncio.to_thread(
                    tools.answer, request.name, request.arguments or {}
                )
            except DeltadexError as err:
                return _refused(" ".join(str(err).split()))
            except Exception as err:
                log.exception("a defect in deltadex")
                return _refused(f"a defect in deltadex ({type(err).__name__})")
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        content = types.TextContent(type="text", text=text)
        return types.CallToolResult(content=[content], structured_content=document)

    return Server(
        "deltadex",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call,
    )


def _refused(line: str) -> types.CallToolResult:
    for found_by in ("GET models?q=… finds ids by a part of them", "`deltadex ls` lists them"):
        line = line.replace(found_by, "find_models finds ids by a part of them")
    return types.CallToolResult(content=[types.TextContent(type="text", text=line)], is_error=True)
