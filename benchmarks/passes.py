"""`find-trained-on` against the passes that it needs, by transformers alone.

    python benchmarks/passes.py DATA --db CATALOG [--base BASE] [--runs 3]

The rival is a process that is given the tokens of the same batches; it runs the base's encoder over
them forward and backward, with the weights of all its linear layers trainable and a random head of
classes. Whole processes in turn, one thread; processor seconds, medians, and the peak in MiB.
DATA has classes; the base is an encoder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE

BATCHES = """
import json, sys
import deltadex as dx
from deltadex.database.data import DataMaking, FindTrainedOn
from deltadex.training_data import gradients
db = dx.open(sys.argv[1])
asked = FindTrainedOn(sys.argv[2])
base = db._catalog.find_base(sys.argv[3] or db._catalog.bases()[0])
making = DataMaking(db._catalog, base, asked, db._track)
read = making.read(asked.data)
options, model = making._options, making._model(read)
loss = gradients.choose_loss(model, read.examples, max_tokens=options.max_tokens)
encoded = loss.encode(sorted(read.examples, key=gradients._sort_key))
batches = [
    [[list(e.ids) for e in batch], [int(e.value) for e in batch]]
    for group in gradients._groups(encoded, options)
    for batch in loss.batches(group, options.batch_size)
]
json.dump({"base": base, "batches": batches}, sys.stdout)
"""

RIVAL = """
import json, sys, time
import torch
from transformers import AutoModel
given = json.load(open(sys.argv[1]))
model = AutoModel.from_pretrained(given["base"]).eval()
model.requires_grad_(False)
for module in model.encoder.modules():
    if isinstance(module, torch.nn.Linear):
        module.weight.requires_grad_(True)
n_classes = 1 + max(max(classes) for _, classes in given["batches"])
head = torch.randn(n_classes, model.config.hidden_size) * 0.02
start = time.process_time()
for rows, classes in given["batches"]:
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
    wanted = torch.tensor(classes)
    torch.nn.functional.cross_entropy(states @ head.T, wanted, reduction="sum").backward()
print(time.process_time() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--base", default="")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    python, db, data = sys.executable, str(options.db), str(options.data)
    asked = [python, "-m", "deltadex", "find-trained-on", data, "--db", db, "--quiet"]
    asked += ["--base", options.base] if options.base else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.json"
        made = [python, "-c", BATCHES, db, data, options.base]
        path.write_bytes(subprocess.run(made, check=True, stdout=PIPE).stdout)
        commands = {"find-trained-on": asked, "rival": [python, "-c", RIVAL, str(path)]}
        costs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        passes = []
        for _ in range(options.runs):
            for name, command in commands.items():
                start = time.perf_counter()
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                printed = process.stdout.read() if process.stdout else ""
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise SystemExit(f"{name}: exit {process.returncode}")
                seconds = usage.ru_utime + usage.ru_stime
                wall = time.perf_counter() - start
                costs[name].append((seconds, wall, usage.ru_maxrss / 1024))
                if name == "rival":
                    passes.append(float(printed))
    alone = statistics.median(passes)
    print("| what | processor | × the passes | wall | peak |\n| --- | ---: | ---: | ---: | ---: |")
    print(f"| passes alone | {alone:.1f} s | 1.0 × | | |")
    for name, measured in costs.items():
        seconds, wall, peak = map(statistics.median, zip(*measured, strict=True))
        ratio = seconds / alone
        print(f"| {name} | {seconds:.1f} s | {ratio:.1f} × | {wall:.1f} s | {peak:.0f} MiB |")


if __name__ == "__main__":
    main()
