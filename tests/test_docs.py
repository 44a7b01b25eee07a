import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import deltadex
from deltadex.cli import main
from deltadex.errors import REASONS
from deltadex.store.tables.filters import COLUMNS

ROOT = Path(deltadex.__file__).parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
README = ROOT / "README.md"

pytestmark = pytest.mark.skipif(not README.exists(), reason="not run from a checkout")


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_is_in_the_readme(command):
    assert re.search(rf"\b{command}\b", README.read_text("utf-8"))


def test_the_two_commands_are_on_the_first_screen():
    top = "\n".join(README.read_text("utf-8").splitlines()[:15])

    assert "make demo" in top
    assert "make test" in top


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_code_is_explained(code):
    assert f"| `{code}` | {REASONS[code].status}" in (ROOT / "docs" / "reasons.md").read_text(
        "utf-8"
    )


@pytest.mark.parametrize("column", COLUMNS)
def test_every_filter_column_is_documented(column):
    assert f"`{column}`" in (ROOT / "docs" / "catalog.md").read_text("utf-8")


def test_commands_of_the_readme_have_the_options_they_show():
    shown = re.findall(r"^deltadex (\S+)(.*)$", README.read_text("utf-8"), re.MULTILINE)

    assert len(shown) >= 5
    for command, rest in shown:
        help_text = CliRunner().invoke(main, [command, "--help"]).output
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest):
            assert option in help_text, f"{command} {option}"


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", *DOCS], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_no_tracked_file_names_a_machine_path():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    places = re.compile(r"(?<![\w.~])/(work|root|home|opt|tmp/exp)/[a-z]")
    for name in tracked.stdout.splitlines():
        if Path(name).suffix in (".py", ".md", ".toml", ".txt", ".cff", ""):
            text = (ROOT / name).read_text("utf-8", errors="replace")
            assert not places.search(text), name
