"""Fingerprinting fine-tunes of the shape of large models: time, memory, and bytes by range.

    python benchmarks/large_models.py [--layers 8] [--folder DIR] [--parts full range experts]

Checkpoints in bfloat16 are made in `--folder` and removed afterwards unless `--keep`: 32 GB for the
8B shape. Files are cold (dropped from the page cache first, Linux) or warm (read before); warm are
as many layers as fit into half of the free memory, in both models. Every figure is taken in a
process of its own; memory is what it holds beside mapped files (RssAnon), imports included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from large.checkpoints import SHAPES, write_headers, write_pair
from large.loopback import LoopbackHub

RANK = 16
SHARE = 0.02
BASE, TUNED = "bench/base", "bench/tuned"
EXPERTS = {
    "llama-8b": ("mixtral-8x7b", "mixtral-8x7b-stacked"),
    "tiny": ("tiny-moe", "tiny-moe-stacked"),
}
EXPERT_LAYERS = 2
SAMPLED_EVERY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one run took.

    Attributes:
        seconds: Wall-clock.
        processor: Seconds of all threads.
        anonymous: Peak MiB beside mapped files.
        n_bytes: Bytes that were read of the fine-tune.
        wanted: Bytes of the rows that were asked for; 0 where all are.
    """

    seconds: float
    processor: float
    anonymous: float
    n_bytes: int
    wanted: int = 0


class AnonymousMemory:
    """The most that this process holds beside mapped files, while the block lasts (Linux)."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> AnonymousMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            kib = int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
            self.peak_mib = max(self.peak_mib, kib / 1024)
            if self._ended.wait(SAMPLED_EVERY_S):
                return


def fingerprint(folder: Path | None, threads: int, share: float) -> Figures:
    """One fine-tune against its base: in a folder, or on the Hub that the environment names."""
    from deltadex.indexer.base import Base
    from deltadex.indexer.family import Wanted, find_member
    from deltadex.indexer.fingerprint import make_recipe
    from deltadex.indexer.job import IndexJob, base_parts, single_torch_thread
    from deltadex.indexer.run import fingerprint_member
    from deltadex.records import Indexed

    base = Base(name=BASE, folder=None if folder is None else folder / "base")
    names, recipes = Wanted(names=(BASE,)), [make_recipe("sketch", RANK, (), share=share)]
    parts = base_parts(base, recipes)
    job = IndexJob(
        base=base, wanted=names, recipes=recipes, layout=(), threads=threads, parts=parts
    )
    model = TUNED if folder is None else str(folder / "tuned")
    with AnonymousMemory() as memory, single_torch_thread():
        start, processor = time.perf_counter(), time.process_time()
        outcome = fingerprint_member(find_member(model, BASE), job)
        seconds = time.perf_counter() - start
        processor = time.process_time() - processor
    assert isinstance(outcome, Indexed), outcome
    wanted = 0
    if parts is not None:
        placed = base.weights().placed.by_key
        for key, part in parts.parts.items():
            across = placed[key].shape[1 - part.axis]
            wanted += 2 * (part.stop - part.start) * across
    return Figures(
        seconds=seconds,
        processor=processor,
        anonymous=memory.peak_mib,
        n_bytes=outcome.bytes_read,
        wanted=wanted,
    )


def place_headers(folder: Path) -> Figures:
    """Open a checkpoint and place all its matrices, from headers alone."""
    from deltadex.indexer.base import place_checkpoint
    from deltadex.indexer.checkpoint import open_local, read_json

    config = read_json((folder / "config.json").read_bytes())
    with AnonymousMemory() as memory:
        start, processor = time.perf_counter(), time.process_time()
        with closing(open_local(folder)) as checkpoint:
            place_checkpoint(checkpoint, config)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    return Figures(
        seconds=seconds,
        processor=processor,
        anonymous=memory.peak_mib,
        n_bytes=checkpoint.bytes_read,
    )


def in_process(arguments: Sequence[str], environment: dict[str, str] | None = None) -> Figures:
    """The figures of one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **(environment or {})},
    )
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def drop_from_page_cache(folder: Path) -> None:
    """The next read of the folder's weights comes from the disk."""
    for path in folder.rglob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # pages that are not written yet are not dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def first_layers(folder: Path, layers: int) -> Path:
    """The same files under an index that names the first layers only."""
    part = folder / f"first-{layers}"
    for which in ("base", "tuned"):
        (part / which).mkdir(parents=True, exist_ok=True)
        name = "model.safetensors.index.json"
        weight_map = json.loads((folder / which / name).read_text("utf-8"))["weight_map"]
        kept = {
            tensor: file
            for tensor, file in weight_map.items()
            if ".layers." in tensor and int(tensor.split(".")[2]) < layers
        }
        (part / which / name).write_text(json.dumps({"weight_map": kept}), "utf-8")
        shutil.copy(folder / which / "config.json", part / which)
        for file in set(kept.values()):
            os.link(folder / which / file, part / which / file)
    return part


def free_memory() -> int:
    """Bytes that the system could give to the page cache (Linux)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1])


@contextmanager
def pair(options: argparse.Namespace, shape: str, layers: int) -> Iterator[Path]:
    """The folder of a base and its fine-tune, removed afterwards."""
    parent = options.folder or Path(tempfile.gettempdir())
    folder = parent / f"deltadex-{shape}-{layers}"
    try:
        start = time.perf_counter()
        write_pair(folder, SHAPES[shape], layers)
        note(f"{shape}, {layers} layers: made in {time.perf_counter() - start:.0f} s")
        yield folder
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def layer_bytes(shape: str, layers: int) -> int:
    """Bytes of the layers' matrices of one model."""
    dims = [d for name, d in SHAPES[shape].tensors(layers) if ".layers." in name]
    return 2 * sum(map(math.prod, dims))


def read_whole(options: argparse.Namespace, folder: Path, shape: str, layers: int) -> None:
    """Rows of the table: all layers from a cold disk, as many as fit from a warm one."""
    arguments = ["--one", "fingerprint", "--threads", str(options.threads), "--folder"]
    drop_from_page_cache(folder)
    row(f"{shape}, {layers} layers", "cold", in_process([*arguments, str(folder)]), 1)
    fits = max(1, min(layers, free_memory() // 2 // (2 * layer_bytes(shape, 1))))
    part = first_layers(folder, fits)
    in_process([*arguments, str(part)])
    for _ in range(options.runs):
        row(f"{shape}, {fits} layers", "warm", in_process([*arguments, str(part)]), layers / fits)
    shutil.rmtree(part)


@contextmanager
def loopback(folder: Path) -> Iterator[tuple[LoopbackHub, dict[str, str]]]:
    """A Hub with the pair in the folder, and the environment of a process that asks it."""
    with tempfile.TemporaryDirectory() as home:
        hub = LoopbackHub({BASE: folder / "base", TUNED: folder / "tuned"})
        with hub:
            yield hub, {"HF_ENDPOINT": hub.endpoint, "HF_HOME": home, "DELTADEX_CACHE": home}


def read_by_range(options: argparse.Namespace, folder: Path, shape: str, layers: int) -> None:
    """Rows of the table: a budget's rows from a Hub on loopback, twice."""
    arguments = ["--one", "budget", "--threads", str(options.threads)]
    with loopback(folder) as (hub, environment):
        for what in ("first", "again"):
            before = dict(hub.bytes_sent), dict(hub.requests)
            figures = in_process(arguments, environment)
            sent, asked = (
                {repo: after[repo] - earlier[repo] for repo in after}
                for earlier, after in zip(before, (hub.bytes_sent, hub.requests), strict=True)
            )
            row(f"{shape}, {layers} layers, {SHARE:.0%}", what, figures, 1)
            print(
                f"  fine-tune: {sent[TUNED] / 1e6:.1f} MB in {asked[TUNED]} requests for "
                f"{figures.wanted / 1e6:.1f} MB of rows, {sent[TUNED] / figures.wanted:.4f} ×; "
                f"base: {sent[BASE] / 1e6:.1f} MB in {asked[BASE]} requests",
                flush=True,
            )


def read_experts(options: argparse.Namespace, shape: str) -> None:
    """Rows of the table: the headers of all layers, and two layers whole."""
    parent = options.folder or Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        layers = SHAPES[shape].layers
        write_headers(Path(temporary), SHAPES[shape], layers)
        figures = in_process(["--one", "headers", "--folder", temporary])
        row(f"{shape}, {layers} layers", "headers", figures, 1)
    with pair(options, shape, EXPERT_LAYERS) as folder:
        arguments = ["--one", "fingerprint", "--threads", str(options.threads)]
        figures = in_process([*arguments, "--folder", str(folder)])
        row(f"{shape}, {EXPERT_LAYERS} layers", "whole", figures, 1)
        with loopback(folder) as (_, environment):
            figures = in_process(["--one", "hub", "--threads", str(options.threads)], environment)
        row(f"{shape}, {EXPERT_LAYERS} layers", "whole, from a Hub", figures, 1)
        read_by_range(options, folder, shape, EXPERT_LAYERS)


def row(what: str, files: str, figures: Figures, scale: float) -> None:
    """One line of the table; seconds are also scaled to all layers."""
    gigabytes = figures.n_bytes / 1e9
    print(
        f"| {what} | {files} | {gigabytes:.2f} | {figures.seconds:.1f} | {figures.processor:.1f} "
        f"| {figures.seconds / gigabytes:.2f} | {figures.seconds * scale:.0f} "
        f"| {figures.anonymous:.0f} |",
        flush=True,
    )


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_one(options: argparse.Namespace) -> None:
    import deltadex.indexer.run  # noqa: F401 (what is imported must not count as time)

    if options.one == "headers":
        figures = place_headers(options.folder)
    elif options.one in ("budget", "hub"):
        share = SHARE if options.one == "budget" else 1.0
        figures = fingerprint(None, options.threads, share)
    else:
        figures = fingerprint(options.folder, options.threads, 1.0)
    print(json.dumps(asdict(figures)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama-8b", choices=list(EXPERTS))
    parser.add_argument("--layers", type=int, help="Of the dense shape; without, all.")
    parser.add_argument("--parts", nargs="+", default=["full", "range", "experts"])
    parser.add_argument("--runs", type=int, default=3, help="From a warm disk.")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="Where the checkpoints are made.")
    parser.add_argument("--keep", action="store_true", help="Leave them there.")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options)
        return
    layers = options.layers or SHAPES[options.shape].layers
    print(f"{platform.machine()}, {options.threads} threads, rank {RANK}, bfloat16")
    print(
        "| model | files | GB of the fine-tune | seconds | processor seconds | seconds per GB "
        "| seconds for all layers | anonymous MiB |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    if {"full", "range"} & set(options.parts):
        with pair(options, options.shape, layers) as folder:
            if "full" in options.parts:
                read_whole(options, folder, options.shape, layers)
            if "range" in options.parts:
                read_by_range(options, folder, options.shape, layers)
    if "experts" in options.parts:
        for shape in EXPERTS[options.shape]:
            read_experts(options, shape)


if __name__ == "__main__":
    main()
