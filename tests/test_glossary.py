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
    "asked": "a question that is put",
    "cache": "the Hub client's",
    "change": "of a file or of a catalog",
    "child": "a model below another on the Hub",
    "code": "of a reason or of an exit",
    "confidence": "of an interval",
    "copies": "models that are equal",
    "copy": "of a file",
    "database": "the face in Python",
    "delta": "the matrix itself, in types",
    "found": "what a search of files gave",
    "group": "of texts, or of training data",
    "journal": "of a long study, and of a file system",
    "kept": "data sets that a user keeps",
    "layout": "of a map, and of blocks",
    "match": "of a pattern",
    "noise": "of a cluster, and of rounding",
    "note": "a sentence below a table",
    "one": "the number",
    "parent": "of a folder, and on the Hub",
    "place": "a path or an address",
    "placed": "a tensor that has a slot",
    "precision": "in retrieval",
    "question": "a record that is answered",
    "remembered": "a key of documents",
    "similarity": "a key of documents",
    "store": "the folder of the catalog's code",
    "subject": "the model of a study",
    "told": "distinguished",
    "twin": "a network of the same shape",
    "word": "of a text",
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
