"""The site builds without network; its links, anchors and pictures are there; notebooks run."""

import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from factories import make_family
from hub_standin import StandInHub
from running import printed

import deltadex
from deltadex.cli import main

ROOT = Path(deltadex.__file__).parent
LARGEST_PICTURE = 120 * 1024

pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="not from a checkout")


class Page(HTMLParser):
    """Of a page: ids, links, and what a browser loads with it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given.get("id"), given.get("name")} - {None}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("img", "script", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "preconnect", "icon"):
            self.loaded.append(given["href"])


@pytest.mark.slow
def test_the_site_builds_and_every_link_leads_somewhere(tmp_path):
    for folder, *command in (
        (ROOT, ".ci/site.py", str(tmp_path)),
        (tmp_path, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"),
    ):
        printed(sys.executable, *command, cwd=folder)
    site = tmp_path / "site"
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    written = {path.with_suffix(".html") for path in (tmp_path / "pages").rglob("*.md")}
    linked, wrong = defaultdict(set), []
    for path, page in pages.items():
        if path.name == "404.html":  # shown at any address
            continue
        for target in page.links + page.loaded:
            address, fragment = urldefrag(target)
            if urlsplit(address).scheme:
                if target in page.loaded:
                    wrong.append(f"{path.name} loads {target}")
                continue
            place = (path.parent / unquote(address)).resolve() if address else path
            place = place / "index.html" if place.is_dir() else place
            linked[path].add(place)
            ids = pages[place].ids if place in pages else {unquote(fragment)}
            if not place.is_file() or (fragment and unquote(fragment) not in ids):
                wrong.append(f"{path.name}: {target}")

    assert wrong == []
    assert {site / path.relative_to(tmp_path / "pages") for path in written} <= set(pages)
    assert {path for path in pages if path.name != "404.html"} <= linked[site / "index.html"]
    reference = "".join(path.read_text("utf-8") for path in site.glob("docs/reference/*.html"))
    assert {f'id="{name}"' for name in main.commands if f'id="{name}"' not in reference} == set()
    assert 'id="deltadex.Database.find_similar"' in reference
    assert 'href="glossary.html#term-adapter"' in (site / "docs/tutorial.html").read_text("utf-8")


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs/images").iterdir()}

    assert {name: size for name, size in sizes.items() if size > LARGEST_PICTURE} == {}


def run_notebook(name, folder, **replaced):
    """Run it in the folder; a cell that begins with a name of `replaced` is that text."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs/notebooks" / name, as_version=4)
    for cell in notebook.cells:
        for variable, value in replaced.items():
            if cell.source.startswith(f"{variable} = "):
                cell.source = f"{variable} = {value!r}"
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [
        "".join(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]


@pytest.mark.slow
def test_the_notebook_of_a_hub_family_runs(tmp_path, monkeypatch):
    models = make_family(tmp_path)
    with StandInHub() as hub:
        for folder in (tmp_path / "base", *filter(Path.is_dir, models.iterdir())):
            files = {path.name: path.read_bytes() for path in folder.iterdir()}
            parents = () if folder.name == "base" else ("acme/base",)
            hub.add(f"acme/{folder.name}", files, parents=parents)
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        printed = run_notebook("hub-family.ipynb", tmp_path, BASE="acme/base")

    assert any("(4, [])" in text for text in printed), printed


@pytest.mark.slow
def test_the_notebook_of_a_data_set_finds_who_trained_on_it(tmp_path):
    printed = run_notebook("who-trained-on-my-data.ipynb", tmp_path)

    (ranking,) = (text for text in printed if text.startswith("1 birds-"))
    assert [line.split()[1].partition("-")[0] for line in ranking.splitlines()[:5]] == ["birds"] * 5
    assert "perhaps" in ranking or "likely" in ranking
    assert any(text.startswith("1 rivers") for text in printed)
