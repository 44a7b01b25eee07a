"""Safetensors headers and shard lists that strangers wrote."""

import json
import os

import pytest
import torch
from bounds import HOSTILE_TEXTS, code_of, damaged, json_values, result_or_refusal, within, write
from factories import make_checkpoint
from fuzzing import few, many
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import open_local, parse_header

GOOD = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)})
ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def framed(header, n_bytes=16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(n_bytes)


def parse(data):
    return parse_header(data, file="model.safetensors", file_size=len(data))


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
        (with_entry(shape=[10**9], data_offsets=[0, 16]), "bad-offsets"),
        (with_entry(shape=[2**62, 2**62, 0], data_offsets=[0, 0]), "bad-offsets"),
        (with_entry(shape=[1] * 100), "bad-offsets"),
        (with_entry(shape=[10**400]), "bad-header"),
        (with_entry(shape=[-2, -2]), "bad-header"),
        (with_entry(shape=[2.0, 2.0]), "bad-header"),
        (with_entry(shape=[True, 4]), "bad-header"),
        (with_entry(shape=[float("nan")]), "bad-header"),
        (with_entry(data_offsets=[0, float("inf")]), "bad-header"),
        (with_entry(data_offsets=[16, 0]), "bad-offsets"),
        ({"v": ENTRY, "w": ENTRY}, "bad-offsets"),
        (b'{"w":' + json.dumps(ENTRY).encode() + b',"w":' + json.dumps(ENTRY).encode() + b"}",
         "duplicate-tensor"),
        (b'{"w":{"dtype":"F32","dtype":"F64","shape":[2,2],"data_offsets":[0,16]}}', "bad-header"),
        (b"[" * 100_000, "bad-header"),
        (b'{"a":' * 100_000, "bad-header"),
        (b'{"w": ' + b"9" * 100_000 + b"}", "bad-header"),
        (b"\xff\xfe{}", "bad-header"),
    ],
)  # fmt: skip
def test_a_header_that_claims_too_much_is_refused(header, code):
    with within(seconds=10, mebibytes=64):
        assert code_of(lambda: parse(framed(header))) == code


@pytest.mark.parametrize("length", [10**8, 2**63, 2**64 - 1])
def test_a_vast_header_is_refused_before_it_is_read(tmp_path, length):
    path = write(tmp_path / "model.safetensors", length.to_bytes(8, "little"))
    os.truncate(path, 110_000_000)

    with within(seconds=10, mebibytes=4):
        assert code_of(lambda: read_all(tmp_path)) == "bad-header"


@pytest.mark.parametrize("name", [t for t in HOSTILE_TEXTS if t.isprintable() or "\x1b" in t])
def test_any_name_of_a_tensor_is_only_a_name(tmp_path, name):
    write(tmp_path / "model.safetensors", framed({name: ENTRY}))

    assert set(read_all(tmp_path)) == {name}
    assert os.listdir(tmp_path) == ["model.safetensors"]


def check_damaged_file(tmp_path, data):
    write(tmp_path / "model.safetensors", data)
    with within(seconds=10):
        given = result_or_refusal(lambda: read_all(tmp_path))
    assert isinstance(given, ModelError) or sum(t.nbytes for t in given.values()) <= len(data)


@few
@given(data=damaged(GOOD))
def test_a_damaged_file_is_read_or_refused(tmp_path, data):
    check_damaged_file(tmp_path, data)


@pytest.mark.slow
@many
@given(data=damaged(GOOD))
def test_many_damaged_files_are_read_or_refused(tmp_path, data):
    check_damaged_file(tmp_path, data)


@few
@given(header=st.dictionaries(st.text(max_size=5), json_values() | st.just(ENTRY), max_size=3))
def test_any_header_is_read_or_refused(header):
    data = framed(json.dumps(header).encode())

    with within(seconds=10):
        result_or_refusal(lambda: parse(data))


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("../../etc/passwd", "bad-config"),
        ("../secret.safetensors", "bad-config"),
        ("/etc/shadow.safetensors", "bad-config"),
        ("..\\secret.safetensors", "bad-config"),
        ("a\0.safetensors", "bad-config"),
        ("a\x1b[31m.safetensors", "bad-config"),
        ("x" * 5000 + ".safetensors", "missing-shard"),
        ("model.safetensors.index.json", "bad-config"),
        (None, "bad-config"),
        ([], "bad-config"),
    ],
)
def test_a_shard_list_leads_to_files_beside_it_only(tmp_path, file, code):
    write(tmp_path / "secret.safetensors", GOOD)
    index = {"weight_map": {"a": file}}
    write(tmp_path / "m" / "model.safetensors.index.json", json.dumps(index))

    assert code_of(lambda: read_all(tmp_path / "m")) == code


@few
@given(index=json_values() | st.builds(lambda v: {"weight_map": v}, json_values()))
def test_any_shard_list_is_read_or_refused(tmp_path, index):
    write(tmp_path / "model.safetensors.index.json", json.dumps(index))

    with within(seconds=10):
        assert code_of(lambda: read_all(tmp_path))


@few
@given(data=damaged(json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()))
def test_a_damaged_shard_list_is_read_or_refused(tmp_path, data):
    write(tmp_path / "model-1.safetensors", GOOD)
    write(tmp_path / "model.safetensors.index.json", data)

    with within(seconds=10):
        result_or_refusal(lambda: read_all(tmp_path))


def test_a_shard_that_is_a_folder_is_refused(tmp_path):
    make_checkpoint(tmp_path, {"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, shards=2)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.mkdir()

    assert code_of(lambda: read_all(tmp_path)) == "unreadable"
