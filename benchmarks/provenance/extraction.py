"""Extraction of an adapter: time, peak memory and error, beside mergekit's and the exact SVD's.

    python -m benchmarks.provenance.extraction [--mergekit PYTHON] [--models FOLDER...]
        [--base FOLDER] [--hidden 2048] [--layers 1] [--large 3] [--rank 16] [--threads 1]

`--mergekit` is the python of an environment of its own that has mergekit. Both programs run as a
process each, imports included, on the same pair of made-up checkpoints of Llama's shape (bfloat16,
an update of decaying spectrum and rounding), one after the other, on `--threads` processors.
`--large` is the layers of a pair of the matrices of an 8B model, which deltadex alone extracts:
how much memory a process takes at most. `--models` are fine-tunes of `--base`, on which the error
is compared with that of exact singular values.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from benchmarks.large.checkpoints import SHAPES, Shape, _llama, write_pair

Tensors = dict[str, torch.Tensor]


def llama(hidden: int, layers: int, vocabulary: int) -> Shape:
    inner = hidden * 7 // 2
    heads = hidden // 128
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 4,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    return Shape(layers, _llama(hidden, hidden // 4, inner), vocabulary, config)


def measured(command: list[str], threads: int) -> tuple[float, float, float]:
    """Seconds, seconds of processors, and peak memory (MiB) of a process."""
    processors = sorted(os.sched_getaffinity(0))[:threads]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        os.sched_setaffinity(process.pid, processors)
        peak = 0
        while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            # the peak of wait4 has that of this process before it started the other
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
            peak = max([peak, *peaks])
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            output.seek(0)
            sys.exit(f"{command[:3]}: ended with {status}\n{output.read()[-2000:]}")
    return seconds, usage.ru_utime + usage.ru_stime, peak / 1024


def ours(model: Path, base: Path, out: Path, rank: int) -> list[str]:
    command = [sys.executable, "-m", "deltadex", "extract-adapter", str(model), "--base", str(base)]
    return [*command, "-o", str(out), "--rank", str(rank), "--db", str(out / "none"), "--force"]


def theirs(python: str, model: Path, base: Path, out: Path, rank: int) -> list[str]:
    script = "from mergekit.scripts.extract_lora import main; main()"
    places = ["--model", str(model), "--base-model", str(base), "--out-path", str(out)]
    return [python, "-c", script, *places, "--max-rank", str(rank), "--no-copy-tokenizer"]


def tensors(folder: Path) -> Tensors:
    loaded: Tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            loaded |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return loaded


def error(model: Path, base: Path, out: Path) -> float:
    """|ΔW − BA| / |ΔW| over all targets."""
    child, start, made = tensors(model), tensors(base), tensors(out)
    left = whole = 0.0
    for name, a in made.items():
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            weight = module.removeprefix("base_model.model.") + ".weight"
            delta = child[weight].float() - start[weight].float()
            kept = made[f"{module}.lora_B.weight"].float() @ a.float()
            left += float((delta - kept).square().sum())
            whole += float(delta.square().sum())
    return (left / whole) ** 0.5


def compare(folder: Path, options: argparse.Namespace) -> None:
    shape = llama(options.hidden, options.layers, 1000)
    write_pair(folder, shape, options.layers)
    model, base = folder / "tuned", folder / "base"
    commands = {"deltadex": ours(model, base, folder / "deltadex", options.rank)}
    if options.mergekit:
        commands["mergekit"] = theirs(
            options.mergekit, model, base, folder / "mergekit", options.rank
        )
    print(f"\nLlama, {options.layers} layers of {options.hidden}, rank {options.rank}")
    print("| program | seconds | CPU seconds | peak MiB | error |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for program, command in commands.items():
        seconds, busy, peak = measured(command, options.threads)
        left = error(model, base, folder / program)
        row = f"| {program} | {seconds:.1f} | {busy:.1f} | {peak:.0f} | {left:.5f} |"
        print(row, flush=True)


def memory(folder: Path, options: argparse.Namespace) -> None:
    shape = SHAPES["llama-8b"]
    shape = Shape(options.large, shape.matrices, 32_000, shape.config)
    write_pair(folder, shape, options.large)
    out = folder / "deltadex"
    command = ours(folder / "tuned", folder / "base", out, options.rank)
    seconds, busy, peak = measured(command, options.threads)
    size = sum(path.stat().st_size for path in (folder / "tuned").iterdir()) / 1e9
    print(f"\n{options.large} layers of 8B's matrices, {size:.2f} GB, rank {options.rank}")
    start = measured([sys.executable, "-c", "import deltadex.indexer.run"], options.threads)[2]
    print(f"{seconds:.0f} s, {busy:.0f} CPU s, peak {peak:.0f} MiB, imports alone {start:.0f} MiB")


def real(folder: Path, model: Path, options: argparse.Namespace) -> tuple[Any, ...]:
    """A real fine-tune: its error, the exact SVD's, and that of dealt out ranks in equal bytes."""
    out = folder / "out"
    command = [*ours(model, options.base, out, options.rank), "--json"]
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    command[command.index("--rank") : command.index("--rank") + 2] = "--bytes", document["bytes"]
    again = subprocess.run([*map(str, command)], check=True, capture_output=True)
    dealt = json.loads(again.stdout)
    ranks = [row["rank"] for row in dealt["slots"]]
    child, base = tensors(model), tensors(options.base)
    left = whole = 0.0
    for row in document["slots"]:
        weight = f"{row['module']}.weight"
        stored = next(base[n] for n in (weight, weight.partition(".")[2]) if n in base)
        sigma = torch.linalg.svdvals((child[weight] - stored).double()).square()
        left, whole = left + float(sigma[row["rank"] :].sum()), whole + float(sigma.sum())
    shutil.rmtree(out)
    return model.name, document["error"], (left / whole) ** 0.5, dealt["error"], ranks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mergekit")
    parser.add_argument("--models", type=Path, nargs="*", default=[])
    parser.add_argument("--base", type=Path)
    for name, default in (("hidden", 2048), ("layers", 1), ("large", 0), ("rank", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="Where checkpoints are made.")
    options = parser.parse_args()
    print(f"{platform.machine()}, {options.threads} processors, torch {torch.__version__}, seed 0")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        if options.layers:
            compare(folder / "pair", options)
        if options.large:
            memory(folder / "large", options)
        if options.models:
            print("\n| fine-tune | rank | error | exact SVD | ratio | `--bytes` | ranks |")
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for model in options.models:
            name, left, least, dealt, ranks = real(folder, model, options)
            cells = f"{left:.4f} | {least:.4f} | {left / least:.4f} | {dealt:.4f}"
            print(f"| {name} | {options.rank} | {cells} | {min(ranks)} to {max(ranks)} |")


if __name__ == "__main__":
    main()
