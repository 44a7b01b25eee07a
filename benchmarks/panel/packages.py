"""Data sets from texts that free packages carry: glosses, messages, documentation, code."""

from __future__ import annotations

import ast
import gettext
import gzip
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .written import rank

Pools = Mapping[str, Iterator[str]]
WORDNET = {
    "wordnet-living": {5: "animal", 20: "plant", 8: "body", 13: "food"},
    "wordnet-things": {6: "artifact", 27: "substance", 15: "place", 18: "person", 14: "group"},
    "wordnet-abstract": {12: "feeling", 9: "thought", 10: "communication", 28: "time", 21: "money"},
    "wordnet-verbs": {38: "motion", 32: "communication", 30: "change", 41: "society"},
}
"""Labels by lexicographer file (lexnames(5WN))."""

DOMAINS = {
    "08441203": "law",
    "08199025": "military",
    "06128570": "computing",
    "06090869": "physics",
    "06000644": "mathematics",
    "06037666": "biology",
}
"""Labels by the synset that a domain pointer (;c) names."""

PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
LANGUAGES = {
    "languages": dict(de="German", es="Spanish", fr="French", it="Italian", nl="Dutch"),
    "scripts": dict(ar="Arabic", el="Greek", hi="Hindi", ja="Japanese", ru="Russian"),
}
LIBRARIES = {
    "django": "web",
    "networkx": "graphs",
    "numpy": "arrays",
    "sklearn": "learning",
    "sympy": "algebra",
}
MODULES = {
    "dates and numbers": "datetime calendar decimal fractions statistics random _pydatetime",
    "files": "pathlib shutil os tempfile zipfile tarfile glob gzip posixpath",
    "network": "http urllib socket ssl smtplib imaplib ftplib email",
    "processes": "threading multiprocessing subprocess asyncio concurrent queue",
    "source code": "ast inspect tokenize dis importlib pdb unittest doctest",
}
ERRORS = ("ImportError", "KeyError", "OSError", "RuntimeError", "TypeError", "ValueError")
ADMIN = "django/contrib/admin"
CODE = {
    "css": f"{ADMIN}/static/admin/css/*.css",
    "html": "django/contrib/**/templates/**/*.html",
    "javascript": f"{ADMIN}/static/admin/js/*.js",
}
JARGON_ENTRY = re.compile(r"\n\n(?=\S)")


class Synset(NamedTuple):
    """A line of a file of WordNet (wndb(5WN))."""

    lexicographer_file: int
    domains: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]


def package_sets(sources: Path) -> dict[str, Pools]:
    """Candidate texts by data set and label; `sources` holds the packages, unpacked."""
    synsets = {part: list(_synsets(sources / f"usr/share/wordnet/data.{part}")) for part in PARTS}
    modules = Path(sysconfig.get_path("stdlib"))
    sets: dict[str, Pools] = {}
    for name, files in WORDNET.items():
        part = synsets["verb" if name == "wordnet-verbs" else "noun"]
        sets[name] = {label: _definitions(part, file) for file, label in files.items()}
    sets["wordnet-subjects"] = {
        label: _of_domain(synsets, domain) for domain, label in DOMAINS.items()
    }
    sets["wordnet-usage"] = {
        label: iter([example for synset in synsets[part] for example in synset.examples])
        for part, label in PARTS.items()
    }
    for name, languages in LANGUAGES.items():
        sets[name] = {
            label: _messages(sources, code, translated=True) for code, label in languages.items()
        }
    sets["python-modules"] = {
        label: _first_sentences(
            path
            for module in names.split()
            for path in (modules / f"{module}.py", *sorted((modules / module).rglob("*.py")))
            if path.is_file()
        )
        for label, names in MODULES.items()
    }
    sets["library-docs"] = {
        label: _first_sentences(sorted((sources / folder).rglob("*.py")))
        for folder, label in LIBRARIES.items()
    }
    raised = list(_raised(modules, *(sources / folder for folder in LIBRARIES)))
    sets["errors"] = {error: _messages_of(raised, error) for error in ERRORS}
    scripts = sorted(modules.glob("*.py"))
    sets["code"] = {
        label: _snippets(sorted(sources.glob(glob))) for label, glob in CODE.items()
    } | {
        "c": _snippets(sorted(Path(sysconfig.get_path("include")).rglob("*.h"))),
        "python": _snippets(scripts),
    }
    sets["registers"] = {
        "dictionary": (s.definition for s in synsets["adj"]),
        "hacker slang": _jargon(sources / "usr/share/dictd/jargon.dict.dz"),
        "interface": _messages(sources, "de", translated=False),
        "reference": _first_sentences(scripts),
    }
    return sets


def _synsets(path: Path) -> Iterator[Synset]:
    for line in path.read_text("ascii").splitlines():
        if line.startswith("  "):
            continue
        data, gloss = line.split(" | ", 1)
        definition, *_ = gloss.split('; "', 1)
        yield Synset(
            lexicographer_file=int(data.split()[1]),
            domains=tuple(re.findall(r";c (\d{8}) n", data)),
            definition=re.sub(r"^(\([^)]*\) )+", "", definition.strip()),
            examples=tuple(re.findall(r'"([^"]+)"', gloss)),
        )


def _definitions(synsets: list[Synset], file: int) -> Iterator[str]:
    return (synset.definition for synset in synsets if synset.lexicographer_file == file)


def _of_domain(synsets: Mapping[str, list[Synset]], domain: str) -> Iterator[str]:
    return (s.definition for part in synsets.values() for s in part if domain in s.domains)


def _messages(sources: Path, language: str, *, translated: bool) -> Iterator[str]:
    """The sentences of Django's interface in a language, or in English."""
    for path in sorted(sources.glob(f"django/**/locale/{language}/LC_MESSAGES/django.mo")):
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        for source, message in catalog.items():
            text = message if translated else source
            if isinstance(text, str) and source and text != source * translated:
                yield re.sub(r"%(\(\w+\))?[sdi]|\{\w*\}", "…", text)


def _trees(paths: Iterator[Path] | list[Path]) -> Iterator[ast.Module]:
    for path in paths:
        if not {"test", "tests", "idlelib", "site-packages", "lib2to3"} & set(path.parts):
            yield ast.parse(path.read_text("utf-8", "replace"))


def _first_sentences(paths: Iterator[Path] | list[Path]) -> Iterator[str]:
    """The first sentence of each docstring."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for tree in _trees(paths):
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield re.split(r"(?<=[a-z)]\.)\s|\n\n", text, maxsplit=1)[0].replace("``", "")


def _raised(*folders: Path) -> Iterator[tuple[str, str]]:
    """(exception, message) wherever one is raised with a literal."""
    for tree in _trees([path for folder in folders for path in sorted(folder.rglob("*.py"))]):
        for node in ast.walk(tree):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
                message = _literal(call.args[0])
                yield call.func.id, re.sub(r"%[a-z]|\{[^}]*\}", "…", message)


def _messages_of(raised: list[tuple[str, str]], error: str) -> Iterator[str]:
    return (message for kind, message in raised if kind == error)


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _literal(part) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _literal(node.left)
    return ""


def _snippets(paths: list[Path]) -> Iterator[str]:
    """Two to five lines of code, comments and blank lines left out, in one line each."""
    for path in paths:
        lines = [line.strip() for line in path.read_text("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line and not re.match(r'#\s|#$|/?\*|//|"""|\{#', line)]
        for start in range(0, len(lines) - 5, 5):
            yield " ".join(lines[start : start + 2 + rank(path.name, start) % 4])


def _jargon(path: Path) -> Iterator[str]:
    """The first sentence of each entry of the Jargon File."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    for entry in JARGON_ENTRY.split(text)[20:]:
        body = " ".join(re.sub(r"[{}]", "", entry.split("\n\n", 1)[-1]).split())
        body = re.sub(r"^(\d\. |\[[^\]]*\] )+", "", body)
        yield re.split(r"(?<=[a-z)]\.)\s", body, maxsplit=1)[0]
