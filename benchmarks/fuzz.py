"""Fuzz one parser of strangers' files with atheris, guided by the code that each input reaches.

    python benchmarks/fuzz.py TARGET --seconds 60
    python benchmarks/fuzz.py all --once

A result and the documented error are both right; any other error, a wait of 20 s, or 4 GiB of
memory ends the run with the input that made it. Fuzzing needs `pip install atheris`; `--once`,
which parses only the inputs that fuzzing begins with, does not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

try:
    import atheris
except ModuleNotFoundError:
    atheris = None

INSTRUMENTED = [
    "deltadex.indexer.adapter",
    "deltadex.indexer.checkpoint",
    "deltadex.indexer.family",
    "deltadex.store.sharing",
    "deltadex.store.remote",
    "yaml",
]


def instrumented() -> AbstractContextManager[object]:
    """What is imported inside tells which code an input reaches, where that is asked for."""
    if atheris is None or not {"--once", "--help"}.isdisjoint(sys.argv):
        return nullcontext()
    return atheris.instrument_imports(include=INSTRUMENTED)


with instrumented():
    import torch
    from safetensors.torch import save

    from deltadex.errors import ModelError, SourceError
    from deltadex.indexer.adapter import read_adapter
    from deltadex.indexer.adapter_config import read_config
    from deltadex.indexer.card import card_bases, label_of, split_card
    from deltadex.indexer.checkpoint import open_local, parse_header, read_json
    from deltadex.indexer.family import (
        Wanted,
        listed_members,
        read_labels,
        read_member,
        refuse_strangers,
    )
    from deltadex.store.remote import Link
    from deltadex.store.sharing import Gone, holder_path, read_holder

PLACE = Path(tempfile.mkdtemp(prefix="deltadex-fuzz-"))
TENSORS = {
    "base_model.model.h.0.attn.c_attn.lora_A.weight": torch.ones(2, 4),
    "base_model.model.h.0.attn.c_attn.lora_B.weight": torch.ones(12, 2),
}
LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "alpha_pattern": {r".*\.c_attn": 8}}
CARD = (
    "---\nbase_model: gpt2\ndatasets:\n- imdb\nmodel-index:\n- results:\n  - dataset:\n"
    "      type: glue\n      config: sst2\n---\nfine-tuned version of x on the imdb dataset\n"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, the errors that it may raise, and inputs to begin with."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    documented: tuple[type[Exception], ...] = (ModelError,)


def main() -> None:
    targets = make_targets()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=[*sorted(targets), "all"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="Parse the first inputs, once each.")
    given = parser.parse_args()
    if given.once:
        for name in sorted(targets) if given.target == "all" else [given.target]:
            parse_once(name, targets[name])
        shutil.rmtree(PLACE)
    elif given.target == "all":
        parser.error("one target is fuzzed at a time; `all` goes with --once")
    elif atheris is None:
        parser.error("fuzzing needs atheris: pip install atheris")
    else:
        fuzz(given.target, targets[given.target], given.seconds, given.seed)


def parse_once(name: str, target: Target) -> None:
    """Parse the inputs that fuzzing begins with; print what comes of it."""
    for data in target.seeds:
        check(target, data)
    print(f"{name}: inputs parsed, or refused as documented: {len(target.seeds)}", flush=True)


def fuzz(name: str, target: Target, seconds: int, seed: int) -> None:
    """Fuzz until the time is over, or an input is found; libFuzzer ends the process."""
    corpus = PLACE / "corpus"
    for number, data in enumerate(target.seeds):
        write(corpus / str(number), data)
    options = {
        "max_total_time": seconds, "seed": seed, "timeout": 20, "rss_limit_mb": 4096,
        "max_len": 1 << 16, "artifact_prefix": f"{PLACE}/{name}-", "print_final_stats": 1,
    }  # fmt: skip
    arguments = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], lambda data: check(target, data))
    atheris.Fuzz()


def check(target: Target, data: bytes) -> None:
    """Pass on whatever is no documented error."""
    try:
        target.parse(data)
    except target.documented as err:
        if isinstance(err, ModelError) and err.code == "internal":
            raise AssertionError("a defect, not a refusal") from err


def make_targets() -> Mapping[str, Target]:
    weights, index = save(TENSORS), json.dumps({"weight_map": {"w": "a.safetensors"}}).encode()
    archive = BytesIO()
    torch.save(TENSORS, archive)
    lora, config = json.dumps(LORA).encode(), b'{"model_type": "gpt2", "n_head": 12}'
    note = {"pid": 1, "machine": socket.gethostname(), "port": 80, "key": "00"}
    labels = b"model,dataset,author,run\na,imdb,x,1\n"
    return {
        "header": Target(header, (weights,)),
        "index": Target(shards, (index,)),
        "adapter-config": Target(adapter_config, (lora,)),
        "adapter": Target(adapter, (weights,)),
        "config": Target(config_json, (config, lora)),
        "card": Target(card, (CARD.encode(),)),
        "labels": Target(label_file, (labels,), (SourceError,)),
        "list": Target(model_list, (b"# models\n/a\n/b\n",), (SourceError,)),
        "bin": Target(torch_archive, (archive.getvalue(),)),
        "note": Target(holder_note, (json.dumps(note).encode(),)),
        "wire": Target(wire, (message(),), (Gone,)),
    }


def header(data: bytes) -> object:
    return parse_header(data, file="model.safetensors", file_size=len(data))


def shards(data: bytes) -> object:
    folder = PLACE / "shards"
    write(folder / "a.safetensors", save({"w": torch.ones(1)}))
    write(folder / "model.safetensors.index.json", data)
    checkpoint = open_local(folder)
    checkpoint.close()
    return checkpoint


def adapter_config(data: bytes) -> object:
    config = read_config(read_json(data))
    return config.alpha_of("h.0.attn.c_attn"), config.rank_of("h.0.attn.c_attn")


def adapter(data: bytes) -> object:
    """Weights that fit a good config, to ΔW."""
    write(PLACE / "adapter" / "model.safetensors", data)
    checkpoint = open_local(PLACE / "adapter")
    try:
        found = read_adapter(checkpoint, LORA)
        return [found.delta(m, None) for m in found.modules if m not in found.needs_base]
    finally:
        checkpoint.close()


def config_json(data: bytes) -> object:
    write(PLACE / "config" / "config.json", data)
    wanted = Wanted(names=("gpt2",), folder=PLACE, config={"model_type": "gpt2"})
    return refuse_strangers(read_member(PLACE / "config", id="m", base="gpt2"), wanted)


def card(data: bytes) -> object:
    front, text = split_card(data.decode("utf-8", "replace"))
    return card_bases(front), label_of(name="m", card=front, text=text)


def label_file(data: bytes) -> object:
    return read_labels(write(PLACE / "labels.csv", data))


def model_list(data: bytes) -> object:
    absolute = b"\n".join(b"/" + line for line in data.splitlines())
    return list(listed_members(write(PLACE / "list", absolute), "gpt2"))


def torch_archive(data: bytes) -> object:
    write(PLACE / "archive" / "pytorch_model.bin", data)
    checkpoint = open_local(PLACE / "archive")
    try:
        return list(checkpoint.stream(checkpoint.tensors))
    finally:
        checkpoint.close()


def holder_note(data: bytes) -> object:
    write(holder_path(PLACE / "catalog"), data)
    return read_holder(PLACE / "catalog")


def wire(data: bytes) -> object:
    """A message of which only the announced length is right."""
    return exchange(struct.pack("!i", max(0, len(data) - 4)) + data[4:])


def exchange(sent: bytes) -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return Link(ours).receive()


def message() -> bytes:
    import pyarrow as pa

    ours, theirs = socket.socketpair()
    with ours, theirs:
        Link(ours).send({"do": "execute"}, pa.table({"a": [1, 2]}))
        return theirs.recv(1 << 16)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    main()
