"""The data sets that come with deltadex: read as a user's would be, and made again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import deltadex
from deltadex.tables.data_files import data_set_names, data_sets_in
from deltadex.training_data.examples import read_examples

ROOT = Path(deltadex.__file__).parent
PANEL = ROOT / "training_data/builtin_panel"
PATHS = data_sets_in(PANEL)
N_ROWS = 128
SLOT = re.compile(r"\{[a-z]+\}")
in_checkout = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="not from a checkout")


@pytest.fixture(scope="module")
def sets():
    return {path.stem: read_examples(path, max_examples=1000) for path in PATHS}


def test_each_data_set_has_balanced_classes(sets):
    assert len(sets) == len(data_set_names(PATHS)) == 48
    for name, found in sets.items():
        counts = [entry.rows for entry in found.classes]
        assert found.kind == "classes", name
        assert 2 <= len(counts) <= 6, name
        assert max(counts) - min(counts) <= 1, name
        assert sum(counts) == len(found.examples) == found.rows == N_ROWS, name
        assert not found.skipped, name


def test_texts_are_short_and_none_is_there_twice(sets):
    texts = [example.text for found in sets.values() for example in found.examples]

    assert len({text.casefold() for text in texts}) == len(texts) == 48 * N_ROWS
    assert max(len(text.split()) for text in texts) <= 40
    assert not [text for text in texts if SLOT.search(text)]
    assert sum(path.stat().st_size for path in PATHS) <= 500_000


@in_checkout
def test_the_sources_name_every_data_set_of_a_package(sets):
    written = (ROOT / "benchmarks/panel/written.txt").read_text("utf-8")
    sources = (PANEL / "_SOURCES.md").read_text("utf-8")

    for name in sets:
        assert f"\n# {name}\n" in written or name in sources


@in_checkout
def test_what_needs_no_package_is_made_again_to_the_byte(tmp_path):
    command = [sys.executable, "-m", "benchmarks.panel", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    made = sorted(tmp_path.iterdir())
    assert len(made) == 35
    for path in made:
        assert path.read_bytes() == (PANEL / path.name).read_bytes(), path.name
