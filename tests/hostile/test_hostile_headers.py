"""Safetensors headers and shard lists that strangers wrote."""

import json
import os
import sys

import pytest
import torch
from bounds import code_of, damaged, few, result_or_refusal, within
from factories import write_file
from hypothesis import given
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.architecture import place, place_modules
from deltadex.indexer.architecture.placing import MAX_EXPERTS
from deltadex.indexer.checkpoint import open_local
from deltadex.indexer.checkpoint.files import parse_header

GOOD = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)})
ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def framed(header, n_bytes=16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(n_bytes)


def read_all(folder):
    checkpoint = open_local(folder)
    try:
        return dict(checkpoint.stream(checkpoint.tensors))
    finally:
        checkpoint.close()


def with_entry(**changes):
    return {"w": ENTRY | changes}


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (with_entry(shape=[2**31, 2**31]), "bad-offsets"),
        (with_entry(shape=[10**9]), "bad-offsets"),
        (with_entry(shape=[10**400]), "bad-header"),
        (with_entry(shape=[2.0, 2.0]), "bad-header"),
        (with_entry(shape=[float("nan")]), "bad-header"),
        (with_entry(data_offsets=[0, float("inf")]), "bad-header"),
        (b"[" * 100_000, "bad-header"),
        (b'{"a":' * 100_000, "bad-header"),
        (b'{"w": ' + b"9" * 100_000 + b"}", "bad-header"),
    ],
)
def test_a_header_that_claims_too_much_is_refused(tmp_path, header, code):
    write_file(tmp_path / "model.safetensors", framed(header))

    with within(seconds=10, mebibytes=64):
        assert code_of(lambda: read_all(tmp_path)) == code


@pytest.mark.parametrize("length", [10**8, 2**63, 2**64 - 1])
def test_a_vast_header_is_refused_before_it_is_read(tmp_path, length):
    path = write_file(tmp_path / "model.safetensors", length.to_bytes(8, "little"))
    os.truncate(path, 110_000_000)

    with within(seconds=10, mebibytes=4):
        assert code_of(lambda: read_all(tmp_path)) == "bad-header"


@few
@given(data=damaged(json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()))
def test_a_damaged_shard_list_is_read_or_refused(tmp_path, data):
    write_file(tmp_path / "model-1.safetensors", GOOD)
    write_file(tmp_path / "model.safetensors.index.json", data)

    with within(seconds=10):
        result_or_refusal(lambda: read_all(tmp_path))


# very many tensors: the work grows as the header does

SMALL, LARGE = 100, 300


ALLOWED = 1.5
"""Times the growth of the header; quadratic work grows three times as much."""


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
        one = {"dtype": "F32", "shape": [1, 1]}
        offsets = [{"data_offsets": [4 * i, 4 * i + 4]} for i in range(n)]
        data = framed({FULL_NAMES[kind](i): one | offsets[i] for i in range(n)}, 0)
        size = len(data) + 4 * n

        def read():
            refs = parse_header(data[8:], file="model.safetensors", file_size=size)
            shapes = {ref.name: ref.shape for ref in refs}
            place_modules({name.removesuffix(".weight"): s for name, s in shapes.items()}, None)
            place(shapes, None)

        return read

    n_calls(work(8))  # tables are read and patterns compiled once
    small, large = n_calls(work(SMALL)), n_calls(work(LARGE))
    assert large <= ALLOWED * LARGE / SMALL * small


@pytest.mark.parametrize("shape", [(10**9, 0, 0), (MAX_EXPERTS + 1, 1, 1), (10**9, 1, 1)])
def test_experts_without_number_are_not_placed(shape):
    shapes = {
        "layers.0.mlp.experts.gate_up_proj": shape,
        "layers.0.self_attn.q_proj.weight": (4, 4),
    }

    placed = place(shapes, None)

    assert placed.unread == ("layers.0.mlp.experts.gate_up_proj",)
    assert len(placed.placements) == 1
