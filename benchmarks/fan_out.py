"""Many workers: models per hour where the network binds.

    python benchmarks/fan_out.py [--models 96] [--kib-per-second 1024]

It reads a family of full fine-tunes from a stand-in Hub on loopback that limits the bytes
per second of every connection, with 1, 2 and 4 local Ray workers, each into a catalog of its own.
Models per hour are counted from the first part that was committed to the last: a cluster's start
is listed beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from factories import finetune, make_bert, make_checkpoint
from hub_standin import StandInHub

import deltadex

WORKERS = (1, 2, 4)


class QuickHub(StandInHub):
    """The stand-in with its files' hashes computed once."""

    def __init__(self) -> None:
        super().__init__(page_size=500)
        self._stored: dict[str, bytes] = {}

    def store(self, id: str, files: dict[str, bytes], **options: Any) -> None:
        self.add(id, files, **options)
        self._stored.update({hashlib.sha256(c).hexdigest(): c for c in files.values()})

    def content(self, digest: str) -> bytes | None:
        return self._stored.get(digest)


def make_family(folder: Path, models: int, *, width: int) -> None:
    """`folder/base` and `folder/models/N`."""
    base = make_bert(folder / "base", seed=0, width=width)
    config = json.loads((folder / "base" / "config.json").read_text())
    for number in range(models):
        tensors = finetune(base, seed=1 + number)
        make_checkpoint(folder / "models" / f"m{number:03}", tensors, config=config)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "deltadex", *arguments]


def content_hash(db: Path) -> tuple[str, int]:
    """What a catalog says, and of how many models."""
    with deltadex.open(db) as opened:
        counts = opened.stats(content_hash=True).to_json()
    return counts["content_sha256"], sum(counts["statuses"].values())


def serve(folder: Path, bytes_per_second: float) -> None:
    """Serve a family as a Hub until the process is ended; prints the endpoint."""
    with QuickHub() as hub:
        hub.bytes_per_second = bytes_per_second

        def files(place: Path) -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in sorted(place.iterdir())}

        hub.store("org/base", files(folder / "base"))
        for place in sorted((folder / "models").iterdir()):
            hub.store(f"org/{place.name}", files(place), parents=("org/base",))
        print(hub.endpoint, flush=True)
        signal.pause()


def speed(models: int, kib_per_second: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_family(folder, models, width=128)
        size = (folder / "models" / "m000" / "model.safetensors").stat().st_size
        print(f"{models} models of {size / 1e6:.1f} MB, {kib_per_second:.0f} KiB/s a connection")
        script = [sys.executable, __file__, "--serve", place]
        script += ["--kib-per-second", str(kib_per_second)]
        hub = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
        assert hub.stdout is not None
        endpoint = hub.stdout.readline().strip()
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": f"{place}/hf"}
        rates: dict[int, float] = {}
        print("| workers | models/hour | ratio | whole run, s | start, s | content |")
        print("| --- | --- | --- | --- | --- | --- |")
        try:
            for workers in WORKERS:
                db = folder / f"{workers}.duckdb"
                arguments = ["index", "org/base", "--hub", "--db", str(db), "--quiet", "--json"]
                start = time.time()
                subprocess.run(
                    command(*arguments, "--ray", "local", "--workers", str(workers)),
                    check=True,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                )
                seconds = time.time() - start
                times = committed_at(db)
                rates[workers] = 3600 * (len(times) - 1) / (times[-1] - times[0])
                ratio = rates[workers] / rates[WORKERS[0]]
                print(
                    f"| {workers} | {rates[workers]:,.0f} | {ratio:.2f} | {seconds:.1f} "
                    f"| {times[0] - start:.1f} | {content_hash(db)[0][:8]} |",
                    flush=True,
                )
        finally:
            hub.kill()


def committed_at(db: Path) -> list[float]:
    """When each model was read, as seconds since 1970."""
    with deltadex.open(db) as opened:
        rows = opened.sql("SELECT epoch(indexed_at) AS moment FROM models ORDER BY moment")
        return [float(row["moment"]) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help="only be the Hub of this folder")
    parser.add_argument("--models", type=int, default=96)
    parser.add_argument("--kib-per-second", type=float, default=1024)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, 1024 * arguments.kib_per_second)
    else:
        speed(arguments.models, arguments.kib_per_second)


if __name__ == "__main__":
    main()
