"""Headers of very many tensors: the work grows as the header does."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from factories import make_bert

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.architecture import MAX_EXPERTS, place, place_modules
from deltadex.indexer.base import Base
from deltadex.indexer.checkpoint import TensorRef, open_local, parse_header

SMALL, LARGE = 400, 1600


@dataclass
class Headers:
    """A checkpoint of which only the headers are read; every tensor is 1 × 1."""

    names: Sequence[str]
    concurrent = True
    bytes_total = bytes_read = 0

    def __post_init__(self):
        self.tensors = {
            name: TensorRef(name=name, dtype="F32", shape=(1, 1), file="f", start=0, stop=4)
            for name in self.names
        }

    def nothing(self, *_):
        raise AssertionError("only headers are read")

    read = view = stream = stream_rows = verify = close = nothing


def bare_checkpoint(names):
    return Headers(names)


def header_of(names):
    """The beginning of a file of 1 × 1 tensors, and the file's size."""
    entries = {
        name: {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * n, 4 * n + 4]}
        for n, name in enumerate(names)
    }
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + 4 * len(names)


ALLOWED = 1.5
"""Times the growth of the header; quadratic work grows four times as much."""


def n_calls(work):
    """Functions that are called meanwhile, those of C among them."""
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    except ModelError:
        pass
    finally:
        sys.setprofile(before)
    return calls


def assert_linear(work):
    n_calls(work(8))  # tables are read and patterns compiled once
    small, large = n_calls(work(SMALL)), n_calls(work(LARGE))

    assert large <= ALLOWED * LARGE / SMALL * small


FULL_NAMES = {
    "layers": lambda n: f"layers.{n // 4}.self_attn.{'qkvo'[n % 4]}_proj.weight",
    "experts": lambda n: f"layers.{n // 100}.mlp.experts.{n % 100}.up_proj.weight",
    "unknown": lambda n: f"encoder.layer.{n % 10}.x{n}.weight",
    "prefixes": lambda n: f"m{n}.layers.0.self_attn.q_proj.weight",
    "no layers": lambda n: f"w{n}",
    "one bert and more": lambda n: f"bert.encoder.layer.0.attention.self.query.{n}.weight",
}


@pytest.mark.parametrize("kind", FULL_NAMES)
def test_headers_are_read_checked_and_placed_in_linear_time(kind):
    def work(n):
        names = [FULL_NAMES[kind](i) for i in range(n)]
        data, size = header_of(names)

        def read():
            refs = parse_header(data, file="model.safetensors", file_size=size)
            shapes = {ref.name: ref.shape for ref in refs}
            place_modules({name.removesuffix(".weight"): s for name, s in shapes.items()}, None)
            place(shapes, None)

        return read

    assert_linear(work)


@pytest.mark.parametrize(
    "config",
    [
        lambda n: {"lora_alpha": 8, "r": 1},
        pytest.param(
            lambda n: {"lora_alpha": 8, "target_modules": [f"m{i}" for i in range(n)]},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["plain", "targets"],
)
def test_adapters_are_read_in_linear_time(config):
    def work(n):
        modules = [f"base_model.model.layers.{i}.self_attn.q_proj" for i in range(n // 2)]
        names = [f"{module}.lora_{factor}.weight" for module in modules for factor in "AB"]
        return lambda: read_adapter(bare_checkpoint(names), config(n))

    assert_linear(work)


def test_whole_weights_are_looked_up_in_the_base_in_linear_time(tmp_path):
    make_bert(tmp_path, seed=0)
    base = Base(name="b", folder=tmp_path).weights()
    ends = sorted(base.placed.by_module)

    def work(n):
        return lambda: [base.shape_of(f"base.{i}.{ends[i % len(ends)]}") for i in range(n)]

    assert_linear(work)
    assert base.shape_of("x.encoder.layer.1.output.dense") == (32, 64)


def test_archives_are_listed_in_linear_time(tmp_path):
    def work(n):
        (tmp_path / str(n)).mkdir()
        weights = {f"layers.{i}.q.weight": torch.ones(1) for i in range(n)}
        torch.save(weights, tmp_path / str(n) / "pytorch_model.bin")
        return lambda: open_local(tmp_path / str(n))

    assert_linear(work)


@pytest.mark.parametrize("part", ["layers.0.", "a.", "experts.0."])
def test_long_names_are_placed_in_linear_time(part):
    """Of each a hundred; a name repeats a layer's path."""

    def work(n):
        names = [f"{part * (n // len(part))}{i}.lora_A.weight" for i in range(20)]
        shapes = dict.fromkeys(names, (1, 1))

        def read():
            place_modules(shapes, None)
            read_adapter(bare_checkpoint(names), {"lora_alpha": 1, "target_modules": ["q"]})

        return read

    assert_linear(work)


@pytest.mark.parametrize("shape", [(10**9, 0, 0), (MAX_EXPERTS + 1, 1, 1), (10**9, 1, 1)])
def test_experts_without_number_are_not_placed(shape):
    shapes = {
        "layers.0.mlp.experts.gate_up_proj": shape,
        "layers.0.self_attn.q_proj.weight": (4, 4),
    }

    placed = place(shapes, None)

    assert placed.unknown == ("layers.0.mlp.experts.gate_up_proj",)
    assert len(placed.placements) == 1
