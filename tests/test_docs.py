import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from factories import make_family, write_files

import deltadex
from deltadex.cli import main
from deltadex.errors import REASONS
from deltadex.options import options_of
from deltadex.questions.face.serving import PageOfModels
from deltadex.questions.find_data import FindData
from deltadex.questions.find_similar import FindSimilar
from deltadex.questions.terminal.command_line import Engine
from deltadex.search.labelled import WAYS
from deltadex.service.api.schemas import fields_of
from deltadex.service.api.settings import ServiceSettings
from deltadex.service.serve import Writing
from deltadex.store.tables.filters import COLUMNS

ROOT = Path(deltadex.__file__).parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
STUDY_DOCS = sorted((ROOT / "docs" / "studies").glob("*.md"))
README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS, *STUDY_DOCS]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not README.exists(), reason="not run from a checkout")


def text_of(page):
    return page.read_text("utf-8")


def anchors(page):
    """The fragments that the headings of a page answer to."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_the_reference_names_every_command_and_no_other():
    table = text_of(COMMANDS).split("## Every command")[1].split("##")[0]

    cells = re.findall(r"^\| [a-z ]+ \| ([^|]*)", table, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", " ".join(cells))) == set(main.commands)


def test_the_readme_is_short_and_the_site_lists_every_page():
    listed = set(re.findall(r": (docs/[\w/-]+)\.md$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE))
    pages = [*DOCS, *STUDY_DOCS, *(ROOT / "docs" / "notebooks").glob("*.ipynb")]

    assert len(text_of(README).splitlines()) <= 70
    assert {page.relative_to(ROOT).with_suffix("").as_posix() for page in pages} <= listed


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_make_targets_exist(page):
    targets = re.findall(r"^make ([\w-]+)", text_of(page), re.MULTILINE)
    makefile = text_of(ROOT / "Makefile")

    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_reason_code_is_explained_and_no_other():
    page = text_of(ROOT / "docs" / "reasons.md")
    rows = re.findall(r"^\| `[a-z-]+` \|[^|]*\|[^|]*\|", page, re.MULTILINE)

    assert set(rows) == {
        f"| `{code}` | {reason.status}{marks} | {reason.meaning} |"
        for code, reason in REASONS.items()
        for marks in [" *again*" * reason.transient + " *by nature*" * reason.by_nature]
    }


@pytest.mark.parametrize("column", COLUMNS)
def test_every_filter_column_is_documented(column):
    assert f"`{column}`" in text_of(ROOT / "docs" / "catalog.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_and_their_options_exist(page):
    blocks = "\n".join(code for language, code in FENCE.findall(text_of(page)) if not language)
    lines = re.findall(r"(?:^|\s)(?:deltadex deltadex|deltadex) ([a-z].*)$", blocks, re.MULTILINE)
    for line in lines:
        command, _, arguments = line.partition("  #")[0].split("|")[0].partition(" ")
        assert command in main.commands, f"deltadex {command}"
        is_group = isinstance(main.commands[command], click.Group)
        names = [command, *arguments.split()[:is_group]]
        help_text = CliRunner().invoke(main, [*names, "--help"]).output
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", arguments):
            assert option in help_text, f"{command} {option}"


def test_every_way_of_scoring_is_explained():
    section = text_of(ROOT / "docs" / "eval.md").split("## Ways of scoring")[1].split("##")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(WAYS)


def test_named_options_exist():
    """Options that running text names in backticks."""
    known = {"--help", "--version"} | {
        name
        for command in main.commands.values()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for page in (README, COMMANDS, ROOT / "docs" / "questions.md", ROOT / "docs" / "catalog.md"):
        prose = FENCE.sub("", text_of(page))
        for quoted in re.findall(r"`([^`]+)`", prose):
            for word in re.findall(r"(?<!\S)--[a-z-]+", quoted):
                assert word in known, f"{page.name}: {word}"


def test_the_table_of_serve_has_all_its_options():
    table = text_of(ROOT / "docs" / "service.md").split("| option | meaning |")[1].split("## ")[0]
    shown = re.findall(r"--[a-z-]+", "\n".join(re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)))

    assert set(shown) == {
        flag
        for record in (ServiceSettings, Writing, Engine)
        for name, (_, declared) in options_of(record).items()
        for flag in declared.flags or ("--" + name.replace("_", "-"),)
    }


@pytest.mark.parametrize(
    ("path", "question"),
    [("similar", FindSimilar), ("models", PageOfModels), ("nearest-data", FindData)],
)
def test_requests_are_shown_with_the_parameters_of_their_questions(path, question):
    page = text_of(ROOT / "docs" / "service.md")
    (shown,) = re.findall(rf"`GET {path}\?([^`]*)`", page)

    names = set(re.findall(r"(\w+)=", shown)) - {"model", "base"}

    assert names == fields_of(question).keys() - {"base"}


def test_the_environment_variables_are_those_of_the_code():
    code = "\n".join(
        path.read_text("utf-8")
        for folder in ("questions", "service", "store", "indexer")
        for path in (ROOT / folder).rglob("*.py")
    ) + text_of(ROOT / "cli.py")

    for variable in set(re.findall(r"DELTADEX_[A-Z]+", text_of(COMMANDS))):
        assert variable in code, variable


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target, fragment in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text_of(page)):
        place = page.parent / target if target else page
        assert place.exists(), target
        if fragment:
            assert fragment in anchors(place), f"{target}#{fragment}"


def test_llms_txt_names_every_page():
    links = re.findall(r"\]\(([^)]+)\)", text_of(ROOT / "docs" / "llms.txt"))

    assert set(links) == {page.name for page in DOCS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_modules_exist(page):
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|json))`", text_of(page)):
        assert (ROOT / path).exists(), path


def test_every_message_of_the_trouble_table_is_one_of_the_code():
    table = text_of(ROOT / "docs" / "service.md").split("### Trouble")[1]
    messages = re.findall(r"^\| `([^`]+)` ?\|", table, re.MULTILINE)
    code = "\n".join(
        path.read_text("utf-8")
        for folder in ("store", "service", "questions")
        for path in (ROOT / folder).rglob("*.py")
    )

    assert len(messages) >= 4
    for message in messages:
        assert message.removeprefix("process N ") in code, message


def test_no_tracked_file_names_a_machine_path():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    places = re.compile(r"(?<![\w.~])/(work|root|home|opt|tmp/exp)/[a-z]")
    for name in tracked.stdout.splitlines():
        if Path(name).suffix in (".py", ".md", ".toml", ".txt", ".cff", ""):
            text = (ROOT / name).read_text("utf-8", errors="replace")
            assert not places.search(text), name


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    broken = {"config.json": '{"model_type": "bert"}', "model.safetensors": b"x"}
    write_files(models / "empty", broken)
    return folder


@pytest.fixture(scope="module")
def documents(family):
    """What the commands print whose documents the reference shows."""

    def printed(line):
        arguments = [*shlex.split(line), "--json", "--quiet", "--db", str(family / "c.duckdb")]
        return json.loads(CliRunner().invoke(main, arguments).stdout)

    models = family / "models"
    return {
        "index": printed(f"index {family}/base {models} --labels {models}/labels.csv"),
        "find-similar": printed("find-similar a-0 -k 1"),
        "eval": printed("eval"),
        "ls": printed("ls --limit 1"),
    }


def keys_of(document):
    """The keys at every depth, but those of tables whose keys are datasets; a list has its first
    document's."""
    if isinstance(document, list):
        return keys_of(document[0]) if document else None
    if not isinstance(document, dict):
        return None
    return {
        key: None if key in ("by_dataset", "taken_for") else keys_of(value)
        for key, value in document.items()
    }


@pytest.mark.parametrize("command", ["find-similar", "eval", "ls", "index"])
def test_the_documents_shown_have_the_keys_that_are_printed(command, documents):
    section = text_of(COMMANDS).split(f"### `{command} --json`")[1]
    shown = keys_of(json.loads(FENCE.search(section)[2]))

    printed = keys_of(documents[command])

    assert list(shown) == list(printed)
    for key, inner in printed.items():
        if inner is not None:
            assert shown[key] == inner, key
