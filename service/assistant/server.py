"""The tools over standard input and output, by the SDK of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ... import __version__
from ...errors import DeltadexError
from ...questions.face.meaning import HOW_TO_READ
from .tools import DESCRIPTIONS, QUESTIONS, Tools

log = logging.getLogger(__name__)

INSTRUCTIONS = (
    "deltadex finds fine-tuned models that were trained on the same data, by what changed in their "
    f"weights.\n{HOW_TO_READ}"
)


def serve(tools: Tools) -> None:
    """Answer an assistant on standard input and output, until it hangs up."""
    asyncio.run(_serve(make_server(tools)))


def make_server(tools: Tools) -> Server[Any]:
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


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
