"""Every benchmark runs at toy size, so that what the docs publish can be measured again."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from toy_inputs import write_built, write_texts

import deltadex

ROOT = Path(deltadex.__file__).parent
DOCS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LONGEST_S = 120.0
"""A toy run takes seconds; what takes this long hangs."""

if not (ROOT / "benchmarks").exists():
    pytest.skip("not run from a checkout", allow_module_level=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """A benchmark's smallest run.

    Attributes:
        command: What comes after the interpreter; `{folder}` is a new folder, for every file.
        prepare: Writes what the run starts from into that folder.
        page: Of the docs, which publishes its figures and names it.
        published: Headings and labels that are in the output and on that page alike.
        prints: Patterns of further lines of the output.
        needs: What is missing, if something optional is, without which it cannot run.
    """

    command: Sequence[str]
    prepare: Callable[[Path], None] | None = None
    page: str = "benchmarks.md"
    published: Sequence[str] = ()
    prints: Sequence[str] = ()
    needs: str = ""

    @property
    def benchmark(self):
        """The script's or package's name."""
        name = self.command[1] if self.command[0] == "-m" else self.command[0]
        return name.removeprefix("benchmarks/").removeprefix("benchmarks.").removesuffix(".py")


def missing(module):
    """The module's name, unless it is installed."""
    return "" if importlib.util.find_spec(module) else module


FOLDER = "{folder}"
TOYS = {
    "catalog bytes": Toy(
        command=("benchmarks/catalog_bytes.py", "--models", "3", "--first", "1"),
        published=("| slots | bytes a model | planned | planned / measured |",),
        prints=(r"\| 72 \| [\d,]+ \| [\d,]+ \| [\d.]+ \|",),
    ),
    "families score": Toy(
        command=(
            *("-m", "benchmarks.families", "score", f"{FOLDER}/out", "--base", f"{FOLDER}/base"),
            *("--db", f"{FOLDER}/f.duckdb", "--budget", "10%", "--adapters", f"{FOLDER}/adapters"),
        ),
        prepare=write_built,
        page="scores.md",
        published=("| question |", "| adapters of |", "| queries |", "| chance |"),
        prints=(
            r"\| full \| sketch \| 4 \| 1\.000 \| 1\.00–1\.00 \| 1\.00 \| -?\d\.\d\d \| 0\.33 \|",
            r"\| base, author left in \| sketch \| 4 \|",
        ),
    ),
    "words": Toy(
        command=(
            *("-m", "benchmarks.words", "--texts", f"{FOLDER}/texts", "--base", f"{FOLDER}/base"),
            *("--sets", "news", "--steps", "2", "--runs", "decay .01", "masked, tied head"),
        ),
        prepare=write_texts,
        page="scores.md",
        published=(
            *("stored as | models | kind |", "of no batch | not found"),
            "| own file | others |",
        ),
        prints=(r"\| decay \.01, bfloat16 \| 2 \| exact",),
        needs=missing("transformers"),
    ),
    "fingerprinting": Toy(
        command=(
            *("benchmarks/fingerprinting.py", "--shapes", "tiny", "--types", "bfloat16"),
            *("--rivals", "deltadex", "--runs", "1", "--rounds", "1", "--folder", FOLDER),
        ),
        published=(
            "| shape | stored as | files | what | seconds | × read and subtract "
            "| processor seconds | × | peak MiB |",
            "read and subtract |",
            "deltadex |",
        ),
        prints=(r"\| tiny \| bfloat16 \| cached \| deltadex \| \d+\.\d\d \| ",),
    ),
    "large_models": Toy(
        command=(
            *("benchmarks/large_models.py", "--shape", "tiny", "--threads", "1"),
            *("--parts", "range", "--folder", FOLDER),
        ),
        published=(
            "| model | files | GB of the fine-tune | seconds | processor seconds | seconds per GB "
            "| seconds for all layers | anonymous MiB |",
        ),
        prints=(
            r"fine-tune: 0\.0 MB in \d+ requests for 0\.0 MB of rows, [\d.]+ ×; base: 0\.0 MB in ",
        ),
    ),
    "studies/geometry": Toy(
        command=("benchmarks/studies/geometry.py", "--toy", "--threads", "1"),
        page="scores.md",
        published=("| cloud | d |", "| share of a text |"),
        prints=(r"\| ball \| 10 \| 200 \| 0\.\d\d ± 0\.\d\d \|",),
    ),
    "fan_out": Toy(
        command=("benchmarks/fan_out.py", "--models", "3", "--kib-per-second", "8192"),
        published=("| workers | models/hour | ratio | whole run, s | start, s | content |",),
        prints=(r"\| 4 \| [\d,]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [0-9a-f]{8} \|",),
        needs=missing("ray"),
    ),
    "publishing": Toy(
        command=("benchmarks/publishing.py", "--models", "600"),
        published=("| step | s | processor s | peak GiB |",),
        prints=(r"\| attach \| [\d.]+ \|",),
    ),
    "layouts": Toy(
        command=("benchmarks/layouts.py", "200", "--dim", "32", "--layouts", "pca", "auto"),
        prints=(r"pca \(landmarks None\): [\d.]+ s, ", r"auto \(landmarks None\): "),
    ),
    "load": Toy(
        command=(
            *("benchmarks/load.py", "--models", "30", "--rate", "10", "--minutes", "0.01"),
            *("--keep", f"{FOLDER}/c.duckdb"),
        ),
        prints=(r"6 requests at 10/s: p50 [\d.]+, .+; 0 errors",),
    ),
    "scale": Toy(
        command=(
            *("benchmarks/scale.py", "--models", "300", "--queries", "5"),
            *("--keep", f"{FOLDER}/c.duckdb"),
        ),
        published=("index file", "recall@10 against exact", "peak memory"),
        prints=(
            r"find_similar\(\), warm: p50 ",
            r"recall@10 against exact: (1\.000|0\.9\d\d)",
            r"catch up 300 new rows to 601: ",
        ),
    ),
    "start": Toy(
        command=("benchmarks/start.py", "--models", "24", "--runs", "1"),
        published=("| command |", "| script |", "| eval |"),
        prints=(r"\| find-similar \| [\d.]+ s \| [\d.]+ × \| [\d.]+ s \| [\d.]+ × \| \d+ MiB \|",),
    ),
    "families of every kind": Toy(
        command=(
            *("-m", "benchmarks.families", "build", f"{FOLDER}/out", "--texts", f"{FOLDER}/texts"),
            *("--base", f"{FOLDER}/base", "--runs", "1", "--steps", "1"),
        ),
        prepare=write_texts,
        page="scores.md",
        prints=(r"18/18 \S+ \d+ s",),
        needs=missing("peft"),
    ),
}


def named_commands():
    """Benchmarks that the Makefile runs or a page names: by page and script, their options."""
    run = re.compile(r"python (?:(benchmarks/\S+)\.py|-m (benchmarks\.\w+) [\w-]+)([^`\n]*)")
    named = {}
    for page in (ROOT / "Makefile", *DOCS):
        text = page.read_text("utf-8").replace("\\\n", " ")
        for script, package, rest in run.findall(text):
            options = re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)
            place = page.name, script or package.replace(".", "/")
            named.setdefault(place, set()).update(options)
    return named


NAMED = named_commands()


@pytest.fixture
def folder():
    """A new folder with a short name: sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="b", ignore_cleanup_errors=True) as name:
        yield Path(name)


def run_benchmark(arguments, folder):
    """What a run prints, which must end well; one that hangs is killed with all its processes."""
    settings = {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"}
    # threads that wait for one another take many times as long beside other tests
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **settings, **one_thread},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"no end within {LONGEST_S:.0f} s; printed until then:\n{output}")
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_a_toy_run_prints_what_the_docs_publish(toy, folder):
    if toy.needs:
        pytest.skip(f"{toy.needs} is not installed")
    if toy.prepare is not None:
        toy.prepare(folder)
    page = (ROOT / "docs" / toy.page).read_text("utf-8")

    output = run_benchmark([part.format(folder=folder) for part in toy.command], folder)

    assert re.search(rf"\bbench(marks/|marks\.|-){toy.benchmark}\b", page), f"docs/{toy.page}"
    for heading in toy.published:
        assert heading in output, output
        assert heading in page, f"docs/{toy.page}"
    for pattern in toy.prints:
        assert re.search(pattern, output), f"{pattern}\n{output}"


def test_every_benchmark_has_a_toy_run():
    folder = ROOT / "benchmarks"
    packages = {path.parent.name for path in folder.glob("*/__main__.py")}
    studies = {f"studies/{path.stem}" for path in (folder / "studies").glob("*.py")}
    names = {path.stem for path in folder.glob("*.py")} | studies | packages
    assert {toy.benchmark for toy in TOYS.values()} == names


@pytest.mark.parametrize("named", NAMED, ids=": ".join)
def test_a_command_of_the_makefile_or_the_docs_has_the_options_that_it_names(named):
    script = ROOT / named[1]
    sources = [*script.rglob("*.py"), script.with_name(f"{script.name}.py")]
    text = "".join(source.read_text("utf-8") for source in sources if source.exists())

    assert NAMED[named] <= set(re.findall(r"\"(--[a-z][a-z-]*)\"", text))
    assert {page for page, _ in NAMED} >= {"Makefile", "benchmarks.md"}
