import json
import struct
from pathlib import Path

import pytest
import torch
from factories import make_checkpoint, write_weights

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import TensorRef, decode, open_local

TENSORS = {f"layer.{i}.weight": torch.randn(3, 5) for i in range(7)}


def damage_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


DESCRIPTORS = Path("/proc/self/fd")
FIRST = "model-00001-of-00002.safetensors"
OTHER_FILES = ("/etc/x.safetensors", "../x.safetensors", "a/b.safetensors", "a\\b.safetensors")
NO_FILES = ("", "..", "config.json", "x\n.safetensors", "x\0.safetensors", 7, None, ["x"])


@pytest.mark.parametrize("file", [*OTHER_FILES, *NO_FILES])
def test_an_index_that_leaves_its_folder_or_names_no_weight_file_is_refused(tmp_path, file):
    make_checkpoint(tmp_path / "m", TENSORS, shards=2)
    write_weights(tmp_path / "x.safetensors", TENSORS)
    damage_index(tmp_path / "m", lambda m: m.update({"layer.0.weight": file}))

    with pytest.raises(ModelError, match=r"bad-config: model\.safetensors\.index\.json: weight_"):
        open_local(tmp_path / "m")


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}, {"a": 1}])
def test_an_index_without_a_weight_map_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(ModelError, match=r"bad-config: model\.safetensors\.index\.json: no weight"):
        open_local(tmp_path)


def test_a_shard_that_is_not_there_is_named(tmp_path):
    make_checkpoint(tmp_path, TENSORS, shards=2)
    (tmp_path / FIRST).unlink()

    with pytest.raises(ModelError, match=f"missing-shard: .*'{FIRST}'"):
        open_local(tmp_path)


def test_a_tensor_that_its_shard_does_not_hold_is_named(tmp_path):
    make_checkpoint(tmp_path, TENSORS, shards=2)
    damage_index(tmp_path, lambda m: m.update({"layer.1.weight": FIRST}))

    with pytest.raises(ModelError, match=f"missing-tensor: {FIRST}: no tensor 'layer.1.weight'"):
        open_local(tmp_path)


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs Linux's list of open files")
def test_a_damaged_shard_closes_the_others(tmp_path):
    make_checkpoint(tmp_path, TENSORS, shards=2)
    second = tmp_path / "model-00002-of-00002.safetensors"
    second.write_bytes(second.read_bytes()[:-1])
    descriptors = len(list(DESCRIPTORS.iterdir()))

    with pytest.raises(ModelError, match=f"truncated: {second.name}"):
        open_local(tmp_path)

    assert len(list(DESCRIPTORS.iterdir())) == descriptors


def test_decode_shares_the_memory_of_a_fitting_buffer():
    ref = TensorRef(name="a", dtype="F32", shape=(2,), file="f", start=0, stop=8)
    buffer = bytearray(8)

    tensor = decode(memoryview(buffer), ref)
    buffer[:4] = struct.pack("<f", 5.0)

    assert tensor.tolist() == [5.0, 0.0]


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_decode_takes_misaligned_and_read_only_buffers(offset):
    ref = TensorRef(name="a", dtype="F64", shape=(2, 1), file="f", start=0, stop=16)
    data = bytes(offset) + struct.pack("<dd", 1.5, -2.5)

    for buffer in (memoryview(data)[offset:], memoryview(bytearray(data))[offset:]):
        tensor = decode(buffer, ref)

        assert tensor.tolist() == [[1.5], [-2.5]]
        assert tensor.data_ptr() % 8 == 0


def test_decode_refuses_a_buffer_of_another_size():
    ref = TensorRef(name="a", dtype="F64", shape=(2,), file="f", start=0, stop=16)

    with pytest.raises(ModelError, match="truncated: f: tensor 'a' has 15 of 16 bytes"):
        decode(bytearray(15), ref)
