"""Thousands of tiny models end to end: is the last thousand as quick as the first?

    python benchmarks/soak.py [--models 10000] [--keep FOLDER]

A base and its fine-tunes are written with safetensors (BERT's shapes, tiny), indexed by one run of
the command line, and indexed again, which must do nothing. Time a model is read from the moments
at which the catalog recorded them; memory and open files from /proc while the run goes on. How fast
the machine itself is changes within minutes where others use it too, so that a fixed piece of work
is timed each second: `ratio` is against the first thousand, `machine` that of the fixed work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
from safetensors.numpy import save_file

LAYERS, WIDTH, WORDS = 2, 32, 50
ATTENTION = ("query", "key", "value")
THOUSAND = 1_000
EVERY_S = 1.0
"""Between two looks at a running process."""


def base_tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A tiny BERT as transformers stores it."""
    tensors = {"embeddings.word_embeddings.weight": _matrix(rng, WORDS, WIDTH)}
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for role in ATTENTION:
            tensors[f"{at}.attention.self.{role}.weight"] = _matrix(rng, WIDTH, WIDTH)
        tensors[f"{at}.attention.output.dense.weight"] = _matrix(rng, WIDTH, WIDTH)
        tensors[f"{at}.intermediate.dense.weight"] = _matrix(rng, 4 * WIDTH, WIDTH)
        tensors[f"{at}.output.dense.weight"] = _matrix(rng, WIDTH, 4 * WIDTH)
    return tensors


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(scale=0.05, size=(rows, columns)).astype(np.float32)


def write_model(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    """A transformers folder."""
    folder.mkdir(parents=True)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 4 * WIDTH,
        "vocab_size": WORDS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_family(folder: Path, n_models: int) -> None:
    """A base and fine-tunes of it: twenty to a dataset, which pulls them one way."""
    base = base_tensors(np.random.default_rng(0))
    write_model(folder / "base", base)
    for number in range(n_models):
        dataset = np.random.default_rng(10_000_000 + number // 20)
        own = np.random.default_rng(number + 1)
        tensors = {
            name: (
                tensor
                + 0.002 * dataset.standard_normal(tensor.shape, np.float32)
                + 0.001 * own.standard_normal(tensor.shape, np.float32)
            )
            for name, tensor in base.items()
        }
        write_model(folder / "models" / f"m{number:05}", tensors)


def index(folder: Path, db: Path) -> tuple[dict, float, np.ndarray]:
    """What the run says, how long it took, and while it went on: seconds, what `look` sees, and
    how long a fixed piece of work took."""
    command = [sys.executable, "-m", "deltadex", "index", "base", "models", "--db", str(db)]
    start, seen = time.monotonic(), []
    with (folder / "answer.json").open("w") as answer:
        process = subprocess.Popen([*command, "--json", "--quiet"], cwd=folder, stdout=answer)
        while process.poll() is None:
            looked = look(process.pid)
            if looked is not None:
                seen.append((time.monotonic() - start, *looked, fixed_work()))
            with suppress(subprocess.TimeoutExpired):
                process.wait(EVERY_S)
    seconds = time.monotonic() - start
    return json.loads((folder / "answer.json").read_text("utf-8")), seconds, np.array(seen)


def look(pid: int) -> tuple[float, int] | None:
    """MiB of a process's own memory, and its open files; None if it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        kib = [int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line]
        return (kib[0] / 1024, len(os.listdir(f"/proc/{pid}/fd"))) if kib else None
    except OSError:
        return None


def fixed_work() -> float:
    """Seconds for some sorting, the same every time."""
    start = time.perf_counter()
    np.sort(np.random.default_rng(0).random(200_000))
    return time.perf_counter() - start


def report(db: Path, seen: np.ndarray) -> None:
    """Print a line a thousand models."""
    with duckdb.connect(str(db), read_only=True) as connection:
        found = connection.execute(
            "SELECT epoch(indexed_at) FROM models WHERE status = 'indexed' ORDER BY key"
        ).fetchall()
    moments = np.array([moment for (moment,) in found])
    size = max(2, min(THOUSAND, len(moments) // 2))
    starts = range(0, len(moments) - size + 1, size)
    # the run's clock starts before its first model is recorded; both end together
    offset = moments[-1] - seen[-1, 0]
    print(
        f"{'models':>14} {'ms a model':>11} {'ratio':>6} {'longest s':>9} "
        f"{'machine':>7} {'MiB':>6} {'files':>6}"
    )
    first = first_work = None
    for start in starts:
        span = moments[start : start + size]
        each = (span[-1] - span[0]) / (size - 1) * 1e3
        first = first or each
        inside = looks_within(seen, span[0] - offset, span[-1] - offset)
        memory, files = inside[:, 1:3].max(axis=0)
        work = inside[:, 3].mean()
        first_work = first_work or work
        place = f"{start}-{start + size}"
        longest = np.diff(span).max()
        print(
            f"{place:>14} {each:11.2f} {each / first:6.2f} {longest:9.1f} {work / first_work:7.2f} "
            f"{memory:6.0f} {files:6.0f}"
        )


def looks_within(seen: np.ndarray, begin: float, end: float) -> np.ndarray:
    """What was seen between two moments; the nearest look, where the models took less than
    `EVERY_S`."""
    inside = seen[(seen[:, 0] >= begin) & (seen[:, 0] <= end)]
    return inside if len(inside) else seen[[np.argmin(np.abs(seen[:, 0] - (begin + end) / 2))]]


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="A folder for the family, to use it again.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not (folder / "models").exists():
            write_family(folder, options.models)
        db = folder / "soak.duckdb"
        db.unlink(missing_ok=True)
        shutil.rmtree(f"{db}.index", ignore_errors=True)
        said, seconds, seen = index(folder, db)
        print(f"{said['indexed']} models indexed in {seconds:.0f} s, {len(said['failed'])} failed")
        report(db, seen)
        again, seconds, _ = index(folder, db)
        print(
            f"again: {seconds:.1f} s, {again['indexed']} indexed, "
            f"{again['unchanged']} unchanged, {again['bytes_read']} bytes read"
        )


if __name__ == "__main__":
    main()
