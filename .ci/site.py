"""Gather the pages of the documentation's site in a folder, where Zensical builds them.

    python .ci/site.py .cache/site
    zensical build --strict -f .cache/site/mkdocs.yml     # writes .cache/site/site

Folders are as in the repository, so that a link works in both. Added are the reference of commands,
from the options that click knows; notebooks as pages; and links from terms to the glossary. Nothing
here knows Zensical: `mkdocs.yml` is what MkDocs reads too.
"""

import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import relpath
from typing import Any

import click

import deltadex
from deltadex.cli import main as command_line
from deltadex.questions.doctor import FindingTable
from deltadex.questions.eval import EvaluationTable
from deltadex.questions.face.database import ComparedBases, KeptDataSets, PublishedIndexes
from deltadex.questions.terminal.commands import GROUPS
from deltadex.study.registry import Studies

ROOT = Path(__file__).parents[1]
GLOSSARY = "docs/glossary.md"
PROJECT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

PUBLIC = {
    **{name: getattr(deltadex, name) for name in ("open", "Database")},
    "KeptDataSets": KeptDataSets,
    "ComparedBases": ComparedBases,
    "PublishedIndexes": PublishedIndexes,
    "Studies": Studies,
    "Table": deltadex.Table,
    "EvaluationTable": EvaluationTable,
    "FindingTable": FindingTable,
    "doctor": deltadex.doctor,
}
"""What `import deltadex` gives, the parts of a `Database`, and what methods return."""
PYTHON_LEAD = (
    "`import deltadex as dx`; `dx.open` gives a `Database`. This page is made from docstrings; "
    "[deltadex from Python](../python.md) is the way in.\n\n"
)

TERM = re.compile(r"^\| \*\*(.+?)\*\*(.*?) \| (.*?) \|", re.MULTILINE)
"""A row of the glossary whose term is in bold: a page links it where it first uses it."""
NOT_PROSE = re.compile(
    r"(^(?:```|~~~).*?^(?:```|~~~)\n|^ {4}.*?\n|^#.*?\n|^\|.*?\n|`[^`]*`"
    r"|\w*!?\[[^\]]*\](?:\([^)]*\))?|<[^>]+>)",
    re.MULTILINE | re.DOTALL,
)
LINK_TO_CODE = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)[^)#]*/[\w.-]*(?<!\.md)(?<!\.png)\)")
"""A link to a file or folder of the repository that is no page of the site."""
EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)

BAR = "\\|"
MARKDOWN = str.maketrans({character: "\\" + character for character in "|[]<>*_"})
"""What means something else in a table of Markdown than in help."""


def main() -> None:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    pages = dict(all_pages())
    terms = terms_of(pages[GLOSSARY])
    for path, text in pages.items():
        page = target / "pages" / path
        page.parent.mkdir(parents=True, exist_ok=True)
        linked = with_anchors(text) if path == GLOSSARY else with_links(text, path, terms)
        page.write_text(linked, "utf-8")
    shutil.copytree(ROOT / "docs/images", target / "pages/docs/images", dirs_exist_ok=True)
    package = target / "packages/deltadex"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(python_stub(), "utf-8")
    shutil.copy(ROOT / "errors.py", package)
    shutil.copy(ROOT / "mkdocs.yml", target)


def all_pages() -> Iterator[tuple[str, str]]:
    """Every page of the site: its path, and its text."""
    for name in PROJECT_PAGES:
        yield ("index.md" if name == "README.md" else name), (ROOT / name).read_text("utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text("utf-8").replace("../README.md", "../index.md")
        yield path.relative_to(ROOT).as_posix(), text.replace(".ipynb)", ".md)")
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        name = path.relative_to(ROOT).with_suffix(".md").as_posix()
        yield name, notebook_page(json.loads(path.read_text("utf-8")))
    for group, names in GROUPS.items():
        yield f"docs/reference/commands-{group}.md", "\n".join(commands_page(group, names))
    listed = "\n".join(f"::: deltadex.{name}\n" for name in (*PUBLIC, "errors"))
    yield "docs/reference/python.md", "# The Python interface\n\n" + PYTHON_LEAD + listed


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """A notebook as a page: its prose, its code, and what the code printed when it was saved."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = [
            "".join(output.get("text") or output["data"]["text/plain"])
            for output in cell["outputs"]
            if "text" in output or "text/plain" in output.get("data", ())
        ]
        if printed:
            parts.append("```\n" + "".join(printed).rstrip() + "\n```")
    return "\n\n".join(parts) + "\n"


def commands_page(group: str, names: tuple[str, ...]) -> Iterator[str]:
    """The lines of the reference of a group of commands."""
    yield (
        f"# Commands: {group}\n\nEvery option of "
        + ", ".join(f"[`{name}`](#{name})" for name in names)
        + ", as `--help` prints them.\n"
    )
    common = click.Context(command_line.commands["stats"])
    shared = {option.name for option in common.command.get_params(common)}
    for name in names:
        command = command_line.commands[name]
        yield from command_lines(("deltadex", name), command, shared)
        if isinstance(command, click.Group):
            for inner, below in command.commands.items():
                yield from command_lines(("deltadex", name, inner), below, shared)
    yield "## Options of every command\n"
    yield from option_rows(common, shared)


def command_lines(
    path: tuple[str, ...], command: click.Command, shared: set[str | None]
) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(path))
    yield f"{'#' * len(path)} {' '.join(path[1:])}\n"
    yield f"```\n{' '.join(command.get_usage(context).split()[1:])}\n```\n"
    yield from as_markdown(command.help or "")
    yield from option_rows(context, {p.name for p in command.params} - shared)
    yield from as_markdown(command.epilog or "")


def as_markdown(text: str) -> Iterator[str]:
    """Paragraphs of help: those that click prints as they stand, behind a \\b, are examples."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.strip().startswith("\b"):
            yield "```\n" + paragraph.strip().removeprefix("\b").strip("\n") + "\n```\n"
        elif paragraph.strip():
            yield " ".join(paragraph.split()) + "\n"


def option_rows(context: click.Context, names: set[str | None]) -> Iterator[str]:
    records = [
        option.get_help_record(context)
        for option in context.command.params
        if option.name in names and isinstance(option, click.Option)
    ]
    rows = [record for record in records if record is not None]
    if rows:
        yield "| option | meaning |\n| --- | --- |"
        for flags, meaning in rows:
            cell = " ".join(meaning.split()).translate(MARKDOWN)
            yield f"| `{flags.replace('|', BAR)}` | {cell} |"
        yield ""


def terms_of(glossary: str) -> dict[str, str]:
    """The terms that pages link, longest first, each with its meaning in plain text."""
    rows = {term: re.sub(r"[*`\"]|\]\([^)]*\)|\[", "", m) for term, _, m in TERM.findall(glossary)}
    return dict(sorted(rows.items(), key=lambda row: -len(row[0])))


def python_stub() -> str:
    """What `import deltadex` gives as a module without bodies.

    Most methods are made of records when deltadex is imported, so that no reader of source sees
    them; and a reader of objects would import every module of the checkout.
    """
    lines = [line for name, item in PUBLIC.items() for line in stub_lines(name, item, "")]
    return "\n".join(["from typing import *", *lines]) + "\n"


def stub_lines(name: str, item: Any, indent: str) -> Iterator[str]:
    body = indent + "    "
    is_property = isinstance(item, property)
    if isinstance(item, type):
        yield f"{indent}class {name}:"
    else:
        if is_property:
            yield f"{indent}@property"
        yield f"{indent}def {name}{signature_of(item.fget if is_property else item)}:"
    yield body + repr(EXAMPLE.sub(r"```pycon\n\g<0>\n```", inspect.getdoc(item) or ""))
    if isinstance(item, type):
        for member, value in members_of(item).items():
            yield from stub_lines(member, value, body)


def members_of(kind: type[Any]) -> dict[str, Any]:
    """The documented methods and properties of a class and of its bases in deltadex."""
    own = (vars(base) for base in reversed(kind.__mro__) if base.__module__.startswith("deltadex"))
    return {
        name: value
        for members in own
        for name, value in members.items()
        if (not name.startswith("_") or name == "__call__")
        and (inspect.isfunction(value) or isinstance(value, property))
        and inspect.getdoc(value)
    }


def signature_of(function: Any) -> inspect.Signature:
    """A signature that is Python: annotations by name, and no defaults but literals."""
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty

    def named(hint: Any) -> Any:
        if hint is empty or hint is None:
            return hint
        text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        return Name(re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text))

    def plain(default: Any) -> Any:
        is_literal = isinstance(default, str | int | float | tuple | None)
        return default if default is empty or is_literal else Name("...")

    parameters = [
        one.replace(annotation=named(one.annotation), default=plain(one.default))
        for one in signature.parameters.values()
    ]
    return inspect.Signature(parameters, return_annotation=named(signature.return_annotation))


class Name(str):
    """A text that stands in a signature without quotes."""

    __repr__ = str.__str__


def slug(term: str) -> str:
    return "term-" + re.sub(r"\W+", "-", term.lower())


def with_anchors(glossary: str) -> str:
    return TERM.sub(
        lambda row: f'| <span id="{slug(row[1])}"></span>{row[1]}{row[2]} | {row[3]} |', glossary
    )


def with_links(text: str, path: str, terms: Mapping[str, str]) -> str:
    """A page where the first use of each term in prose is a link to the glossary."""
    place = relpath(GLOSSARY, Path(path).parent.as_posix())
    parts = NOT_PROSE.split(text)
    for term, meaning in terms.items():
        pattern = re.compile(rf"(?<![\w-]){re.escape(term)}(?![\w\[(-])", re.IGNORECASE)
        for number in range(0, len(parts), 2):
            match = pattern.search(parts[number])
            if match:
                before, after = parts[number][: match.start()], parts[number][match.end() :]
                link = f'[{match[0]}]({place}#{slug(term)} "{meaning}")'
                parts[number : number + 1] = [before, link, after]
                break
    return LINK_TO_CODE.sub(r"\1", "".join(parts))


if __name__ == "__main__":
    main()
