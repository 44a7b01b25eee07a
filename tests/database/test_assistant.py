"""`deltadex mcp` as an assistant uses it: the SDK's own client, over standard input and output."""

import asyncio
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from listening import TOKEN, listening
from mcp import Client, StdioServerParameters

import deltadex as dx
from deltadex.cli import main

TOOLS = ["find_models", "find_similar", "find_trained_on", "trace", "show", "sql", "words"]

HARMFUL = (
    "DELETE FROM models",
    "SELECT 1) ; DELETE FROM models; SELECT (1",
    "COPY (SELECT 1) TO 'stolen.csv'",
    "SELECT * FROM read_text('reviews.csv')",
    "SELECT getenv('HOME')",
)
"""Statements that write, or read what is not the catalog; tests/cli/test_sql.py has more."""


def asked(arguments, *calls, token=None):
    """The tools that a server lists, and what it answers to calls."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "deltadex", "mcp", *arguments],
        env={**os.environ, "DELTADEX_TOKEN": token or ""},
    )

    async def ask():
        async with Client(server, read_timeout_seconds=120.0) as client:
            listed = (await client.list_tools()).tools
            return listed, [await client.call_tool(name, given) for name, given in calls]

    # tests of the page leave a loop running in their thread
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask()).result()


def text(result):
    (content,) = result.content
    return content.text


@pytest.mark.usefixtures("tokenizer")
def test_an_assistant_asks_a_catalog_and_changes_nothing(family):
    with dx.open("family.duckdb") as db:
        before = db.stats(content_hash=True).to_json()["content_sha256"]
        neighbour = db.find_similar("imdb-0", k=1)[0]
    listed, answers = asked(
        ["--db", "family.duckdb"],
        ("find_similar", {"model": "imdb-0", "k": 1}),
        ("find_similar", {"model": ["imdb-0", "sst2-0"], "k": 1, "dataset": "imdb"}),
        ("find_trained_on", {"data": "reviews.csv", "k": 2, "max_examples": 16}),
        ("trace", {"model": "imdb-0"}),
        ("show", {"model": "imdb-0"}),
        ("show", {"model": "imdb-0", "matrices": True}),
        ("find_models", {"text": "IMDB", "k": 1}),
        ("find_models", {"text": "nothing of that name"}),
        ("sql", {"statement": "SELECT count(*) AS n FROM models"}),
        ("sql", {"statement": "SELECT * FROM range(2000)"}),
        ("show", {"model": "nobody"}),
        ("show", {"model": "imdb-0", "path": "x"}),
        ("find_similar", {"k": 3}),
        ("find_similar", {"model": "imdb-0", "k": 0}),
        ("find_similar", {"model": "someone/on-the-hub"}),
        ("find_trained_on", {"data": "reviews.csv", "keep": "x"}),
        ("nothing", {}),
        *(("sql", {"statement": statement}) for statement in HARMFUL),
    )

    assert [tool.name for tool in listed] == TOOLS
    assert set(TOOLS) <= set(re.findall(r"\w+", CliRunner().invoke(main, ["mcp", "--help"]).output))
    assert all(tool.annotations.read_only_hint and tool.description for tool in listed)
    schema = listed[1].input_schema
    assert schema["required"] == ["model"]
    assert schema["properties"]["k"]["minimum"] == 1
    assert "keep" not in listed[2].input_schema["properties"]
    assert "mergekit" not in listed[3].input_schema["properties"]
    similar, several, trained_on, traced, brief, whole, named, nobody, counted, *refused = answers
    assert similar.structured_content["neighbours"][0]["model"] == neighbour["model"]
    assert similar.structured_content == json.loads(text(similar))
    assert [q["query"]["model"] for q in several.structured_content["queries"]] == [
        *("imdb-0", "sst2-0")
    ]
    assert len(trained_on.structured_content["neighbours"]) == 2
    assert traced.structured_content["verdict"] == "fine-tune"
    assert named.structured_content["named"][0]["model"] == "imdb-0"
    assert nobody.structured_content["named"] == []
    slots, document = whole.structured_content["slots"], brief.structured_content
    most = sorted((slot["relative_norm"] for slot in slots), reverse=True)[:5]
    assert (document["dataset"], document["matrices_changed"]) == ("imdb", len(slots))
    assert [slot["relative_norm"] for slot in document["most_changed"]] == most
    assert "slots" not in document
    assert len(text(brief)) < 2500 < len(text(whole))
    assert counted.structured_content["rows"] == [{"n": 4}]
    says = ["1000 rows", "find_models finds ids", "'path'", "'model'", "minimum"]
    for part, result in zip(says, refused, strict=False):
        assert part in text(result)
    assert all(result.is_error and len(text(result).splitlines()) == 1 for result in refused)
    assert not (family / "stolen.csv").exists()
    with dx.open("family.duckdb", read_only=True) as db:
        assert db.stats(content_hash=True).to_json()["content_sha256"] == before


@pytest.mark.slow
@pytest.mark.usefixtures("tokenizer")
def test_an_assistant_asks_a_service(family):
    calls = (
        ("find_similar", {"model": "imdb-0", "k": 1}),
        ("show", {"model": "imdb-0"}),
        ("sql", {"statement": "SELECT count(*) AS n FROM models"}),
        ("find_models", {"text": "imdb"}),
        ("trace", {"model": "imdb-0"}),
        ("find_trained_on", {"data": "reviews.csv", "k": 2}),
        ("words", {"model": "imdb-0"}),
    )
    with listening(family / "family.duckdb", token=TOKEN) as url:
        _, answers = asked(["--url", url], *calls, token=TOKEN)
        _, (_, _, without_token, *_) = asked(["--url", url], *calls[:3])

    similar, shown, counted, named, traced, trained_on, words = answers
    assert similar.structured_content["neighbours"][0]["model"] == "imdb-1"
    assert str(family) not in text(shown)
    assert counted.structured_content["rows"] == [{"n": 4}]
    assert [row["model"] for row in named.structured_content["named"]] == ["imdb-0", "imdb-1"]
    assert traced.structured_content["verdict"] == "fine-tune"
    assert len(trained_on.structured_content["neighbours"]) == 2
    assert words.structured_content["kind"] == "frozen"
    assert str(family) not in text(words)
    assert "token" in text(without_token)


def test_what_is_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as the command sets it
    none = CliRunner().invoke(main, ["mcp", "--db", str(tmp_path / "none.duckdb")])
    nowhere = CliRunner().invoke(main, ["mcp", "--url", "http://127.0.0.1:9"])
    monkeypatch.setitem(sys.modules, "mcp", None)
    for name in [n for n in sys.modules if n.startswith("deltadex.service.assistant")]:
        monkeypatch.delitem(sys.modules, name)
    without = CliRunner().invoke(main, ["mcp", "--db", str(tmp_path / "none.duckdb")])

    assert "deltadex index" in none.output
    assert "can be reached" in nowhere.output
    assert "pip install 'deltadex[mcp]'" in without.output
    assert [len(r.output.splitlines()) for r in (none, nowhere, without)] == [1, 1, 1]
