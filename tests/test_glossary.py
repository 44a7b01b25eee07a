"""A word that the glossary forbids is in no name, help text or document."""

import ast
import re
from functools import cache
from pathlib import Path

import click
import pytest
from running import every_command

import deltadex

ROOT = Path(deltadex.__file__).parent
GLOSSARY = ROOT / "docs" / "glossary.md"

OTHER_SENSES = {
    *("asked", "cache", "change", "child", "code", "confidence", "copies", "copy", "database"),
    *("delta", "found", "group", "journal", "kept", "layout", "match", "noise", "note", "one"),
    *("parent", "place", "placed", "precision", "question", "remembered", "similarity", "store"),
    *("subject", "told", "twin", "word"),
}
"""Words that stand for something else too, so that no search can tell."""


def forbidden():
    rows = (line.split("|") for line in GLOSSARY.read_text("utf-8").splitlines())
    words = {word.strip() for row in rows if len(row) == 5 for word in row[3].split(",")}
    return sorted(words - {"", "not", "---", *OTHER_SENSES})


pytestmark = pytest.mark.skipif(not GLOSSARY.exists(), reason="not run from a checkout")


@cache
def pattern():
    return re.compile(rf"\b({'|'.join(map(re.escape, forbidden()))})\b", re.IGNORECASE)


def names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_names_and_docstrings_keep_to_the_glossary():
    wrong = []
    for path in (*ROOT.glob("*.py"), *ROOT.glob("[!.]*/**/*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] in ("tests", "benchmarks", "build"):
            continue
        text = path.read_text("utf-8")
        spelled = (" ".join(re.findall(r"[A-Z]?[a-z]+", name)) for name in names(ast.parse(text)))
        found = {word for said in (*spelled, text) for word in pattern().findall(said)}
        wrong += [f"{place}: {word}" for word in sorted(found)]

    assert len(forbidden()) > 10
    assert wrong == []


def test_help_and_documents_keep_to_the_glossary():
    helps = {
        " ".join(path): command.get_help(click.Context(command))
        for path, command in every_command()
    }
    documents = {
        path.name: path.read_text("utf-8")
        for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")
        if path != GLOSSARY
    }

    wrong = {
        name: words
        for name, said in (helps | documents).items()
        if (words := pattern().findall(said))
    }

    assert len(helps) > 30
    assert wrong == {}
