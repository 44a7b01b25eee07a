"""Time and peak memory of fingerprinting one fine-tune, against reading its bytes and
against other SVDs of the same matrices, in one run.

    python benchmarks/fingerprinting.py [--shapes bert-base llama-1b] [--types float32 bfloat16]
        [--rivals deltadex torch.linalg.svd] [--threads 1]
    python benchmarks/fingerprinting.py --index BASE MODELS

Checkpoints are made on the fly (a random base, an update of decaying spectrum and relative
size 0.01). Every figure is taken in a process of its own; exact SVDs and the rivals'
randomised ones run on one layer and are scaled to all layers, as the table says. What is measured
of whole models is measured in turns, with files in the page cache and with cold ones, which are
dropped from it before every run (Linux). The shape `tiny` says nothing about speed: it shows that
this program works.

`--index`: `deltadex index` of a folder of full fine-tunes, the command from start to end, in turns
with a script that reads and subtracts the same matrices; medians of `--rounds`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from importlib import import_module
from pathlib import Path
from statistics import median

import torch
from safetensors import safe_open
from safetensors.torch import save_file

RANK = 16
Matrices = dict[str, tuple[int, int]]


def _bert(layers: int, width: int, *, heads: int) -> tuple[int, Matrices, str, dict[str, object]]:
    ends = ("self.query", "self.key", "self.value", "output.dense")
    matrices: Matrices = {f"attention.{end}": (width, width) for end in ends}
    matrices |= {"intermediate.dense": (4 * width, width), "output.dense": (width, 4 * width)}
    config = {"model_type": "bert", "num_attention_heads": heads, "hidden_size": width}
    return layers, matrices, "encoder.layer", config


SHAPES: dict[str, tuple[int, Matrices, str, dict[str, object]]] = {
    "bert-base": _bert(12, 768, heads=12),
    "llama-1b": (
        16,
        {
            "self_attn.q_proj": (2048, 2048),
            "self_attn.k_proj": (512, 2048),
            "self_attn.v_proj": (512, 2048),
            "self_attn.o_proj": (2048, 2048),
            "mlp.gate_proj": (8192, 2048),
            "mlp.up_proj": (8192, 2048),
            "mlp.down_proj": (2048, 8192),
        },
        "model.layers",
        {
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 2048,
        },
    ),
    "tiny": _bert(2, 32, heads=4),
}
PUBLISHED = ("bert-base", "llama-1b")


def make_pair(folder: Path, shape: str, dtype: torch.dtype) -> None:
    """A base and a fine-tune of it, on disk; embeddings stand in for what is not read."""
    layers, matrices, prefix, config = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    base, tuned = {}, {}
    for layer in range(layers):
        for name, (n_out, n_in) in matrices.items():
            weight = torch.randn(n_out, n_in, generator=generator) * 0.02
            left = torch.randn(n_out, 64, generator=generator)
            right = torch.randn(64, n_in, generator=generator) / torch.arange(1, 65)[:, None]
            update = left @ right
            update *= 0.01 * weight.norm() / update.norm()
            key = f"{prefix}.{layer}.{name}.weight"
            base[key], tuned[key] = weight.to(dtype), (weight + update).to(dtype)
    hidden = int(str(config["hidden_size"]))
    embeddings = torch.zeros(30_000, hidden, dtype=dtype)
    for which, tensors in (("base", base), ("tuned", tuned)):
        (folder / which).mkdir(parents=True)
        (folder / which / "config.json").write_text(json.dumps(config))
        save_file(
            {**tensors, "embeddings.word_embeddings.weight": embeddings},
            folder / which / "model.safetensors",
        )


def pairs(
    folder: Path, only_layer: str | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(base, tuned) matrices, by the safetensors library."""
    files = [folder / which / "model.safetensors" for which in ("base", "tuned")]
    with safe_open(files[0], "pt") as base, safe_open(files[1], "pt") as tuned:
        for name in base.keys():  # noqa: SIM118 (not a dict)
            if "embeddings" not in name and (only_layer is None or f".{only_layer}." in name):
                yield base.get_tensor(name), tuned.get_tensor(name)


def read_and_subtract(folder: Path) -> float:
    return sum(float((b.float() - a.float()).norm()) for a, b in pairs(folder))


def deltadex(folder: Path) -> float:
    """On as many threads as torch has."""
    from deltadex.indexer.base import Base
    from deltadex.indexer.family import Wanted, find_member
    from deltadex.indexer.fingerprint import make_recipe
    from deltadex.indexer.job import IndexJob, single_torch_thread
    from deltadex.indexer.run import fingerprint_member
    from deltadex.records import Indexed

    base = Base(name="base", folder=folder / "base")
    job = IndexJob(
        base=base,
        wanted=Wanted(names=("base",)),
        recipes=[make_recipe("sketch", RANK, ())],
        layout=(),
        threads=torch.get_num_threads(),
    )
    with single_torch_thread():
        outcome = fingerprint_member(find_member(str(folder / "tuned"), "base"), job)
    assert isinstance(outcome, Indexed), outcome
    return outcome.fingerprints[0].norm


def one_layer(factor: Callable[[torch.Tensor], object]) -> Callable[[Path], float]:
    def run(folder: Path) -> float:
        for a, b in pairs(folder, only_layer="0"):
            factor(b.float() - a.float())
        return 0.0

    return run


def sklearn_svd(matrix: torch.Tensor) -> object:
    from sklearn.utils.extmath import randomized_svd

    return randomized_svd(matrix.numpy(), RANK, random_state=0)


def read_family(base: Path, models: Path) -> None:
    """Read and subtract the layer matrices of every model, matched by the ends of their names."""
    for folder in sorted(path.parent for path in models.glob("*/model.safetensors")):
        files = [path / "model.safetensors" for path in (base, folder)]
        with safe_open(files[0], "pt") as old, safe_open(files[1], "pt") as new:
            prefix = min(n.partition("encoder.")[0] for n in new.keys() if "encoder." in n)  # noqa: SIM118
            for name in old.keys():  # noqa: SIM118 (not a dict)
                if "encoder.layer" in name and len(old.get_slice(name).get_shape()) == 2:
                    end = name[name.index("encoder.") :]
                    float((new.get_tensor(prefix + end) - old.get_tensor(name)).norm())


def measure_index(base: Path, models: Path, rounds: int) -> None:
    """Print the median wall-clock and processor seconds, and MiB, of both commands."""
    with tempfile.TemporaryDirectory() as folder:
        reading = [sys.executable, __file__, "--read", str(base), str(models)]
        taken: dict[str, list[Figures]] = {READING: [], "deltadex index": []}
        for number in range(rounds):
            indexing = [sys.executable, "-m", "deltadex", "index", str(base), str(models)]
            indexing += ["--db", f"{folder}/{number}.duckdb", "--quiet"]
            for figures, command in zip(taken.values(), (reading, indexing), strict=True):
                start = time.perf_counter()
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
                seconds, processor = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
                assert status == 0, command
                figures.append(Figures(seconds, processor, usage.ru_maxrss / 1024))
    print("| what | seconds | processor seconds | peak MiB |\n| --- | ---: | ---: | ---: |")
    for what, figures in taken.items():
        medians = (median(column) for column in zip(*map(astuple, figures), strict=True))
        print("| {} | {:.2f} | {:.2f} | {:.0f} |".format(what, *medians))


READING = "read and subtract"
RIVALS: dict[str, Callable[[Path], float]] = {
    READING: read_and_subtract,
    "deltadex": deltadex,
    "torch.linalg.svd": one_layer(lambda m: torch.linalg.svd(m, full_matrices=False)),
    "torch.svd_lowrank": one_layer(lambda m: torch.svd_lowrank(m, q=RANK, niter=2)),
    "sklearn randomized_svd": one_layer(sklearn_svd),
}
WHOLE = (READING, "deltadex")
FILES = ("cached", "cold")
IMPORTS = {"deltadex": "deltadex.indexer", "sklearn randomized_svd": "sklearn.utils.extmath"}
"""What rivals import beside torch and safetensors, which must not count."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one measurement took.

    Attributes:
        seconds: Wall-clock.
        processor: Seconds of all threads.
        peak: MiB above the imports.
    """

    seconds: float
    processor: float
    peak: float

    def best(self, other: Figures) -> Figures:
        """The shorter times of both, and the higher peak."""
        return Figures(
            min(self.seconds, other.seconds),
            min(self.processor, other.processor),
            max(self.peak, other.peak),
        )

    def scaled(self, layers: int) -> Figures:
        """For all layers, of which one was measured."""
        return Figures(self.seconds * layers, self.processor * layers, self.peak)


def measure(folder: Path, rival: str, options: argparse.Namespace, *, cold: bool) -> Figures:
    """The best of a rival's runs, in a process of their own."""
    runs = options.runs if rival in WHOLE else 1
    command = [sys.executable, __file__, "--one", rival, "--folder", str(folder)]
    command += ["--runs", str(runs), "--threads", str(options.threads), *["--cold"] * cold]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return Figures(*json.loads(done.stdout.splitlines()[-1]))


def measure_in_turns(
    folder: Path, rivals: Sequence[str], options: argparse.Namespace, *, cold: bool
) -> dict[str, Figures]:
    """The best of every rival over all rounds."""
    figures: dict[str, Figures] = {}
    for _ in range(options.rounds):
        for rival in rivals:
            one = measure(folder, rival, options, cold=cold)
            figures[rival] = one.best(figures.get(rival, one))
    return figures


def run_one(folder: Path, rival: str, runs: int, *, cold: bool) -> None:
    if rival in IMPORTS:
        import_module(IMPORTS[rival])
    torch.randn(64, 64) @ torch.randn(64, 64)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = peak_kib()
    seconds = processor = float("inf")
    for _ in range(runs):
        if cold:
            drop_from_page_cache(folder)
        start, processor_start = time.perf_counter(), time.process_time()
        RIVALS[rival](folder)
        processor = min(processor, time.process_time() - processor_start)
        seconds = min(seconds, time.perf_counter() - start)
    print(json.dumps([seconds, processor, (peak_kib() - before) / 1024]))


def drop_from_page_cache(folder: Path) -> None:
    """The next read of the folder's weights comes from the disk."""
    for path in folder.rglob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # pages that are not written yet are not dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def peak_kib() -> int:
    """Highest resident memory since it was last forgotten (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(next(x for x in status.splitlines() if x.startswith("VmHWM")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", nargs="+", default=PUBLISHED, choices=list(SHAPES))
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), choices=list(RIVALS))
    parser.add_argument("--files", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--one", choices=list(RIVALS), help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="Where the checkpoints are made.")
    parser.add_argument("--index", nargs=2, type=Path, metavar=("BASE", "MODELS"))
    parser.add_argument("--read", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.read:
        read_family(*options.read)
        return
    if options.index:
        measure_index(*options.index, options.rounds)
        return
    if options.one:
        run_one(options.folder, options.one, options.runs, cold=options.cold)
        return
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, rank {RANK}, seed 0"
    )
    print(
        "| shape | stored as | files | what | seconds | × read and subtract "
        "| processor seconds | × | peak MiB |"
    )
    print("| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for shape in options.shapes:
        for name in options.types:
            with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
                folder = Path(temporary)
                make_pair(folder, shape, getattr(torch, name))
                print_rows(f"| {shape} | {name} |", folder, SHAPES[shape][0], options)


def print_rows(head: str, folder: Path, layers: int, options: argparse.Namespace) -> None:
    """The rows of one pair of checkpoints."""
    rivals = dict.fromkeys((READING, *options.rivals))
    whole = [rival for rival in rivals if rival in WHOLE]
    for files in options.files:
        figures = measure_in_turns(folder, whole, options, cold=files == "cold")
        if files == "cached":
            for rival in rivals:
                if rival not in WHOLE:
                    figures[rival] = measure(folder, rival, options, cold=False).scaled(layers)
        reading = figures[READING]
        for rival, taken in figures.items():
            scaled = "" if rival in WHOLE else " (one layer, scaled)"
            print(
                f"{head} {files} | {rival}{scaled} | {taken.seconds:.2f} "
                f"| {taken.seconds / reading.seconds:.1f} | {taken.processor:.2f} "
                f"| {taken.processor / reading.processor:.1f} | {taken.peak:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
