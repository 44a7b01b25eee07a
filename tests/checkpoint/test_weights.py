import errno
import json
import os
from pathlib import Path

import pytest
import torch
from factories import make_checkpoint, write_weights
from memory_bytes import assert_same

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import open_adapter_weights, open_local

TENSORS = {f"layer.{i}.weight": torch.randn(3, 5) for i in range(7)}
ONES, ZEROS = {"w": torch.ones(2, 2)}, {"w": torch.zeros(2, 2)}


def test_shards_that_transformers_wrote_are_one_checkpoint(tmp_path):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(vocab_size=64, hidden_size=24, num_hidden_layers=2))
    model.save_pretrained(tmp_path, max_shard_size="50kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2

    assert_same(open_local(tmp_path), model.state_dict())


@pytest.mark.parametrize("shards", [1, 3])
def test_every_byte_read_is_counted(tmp_path, shards):
    make_checkpoint(tmp_path, TENSORS, shards=shards)
    files = list(tmp_path.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    heads = sum(8 + int.from_bytes(file.read_bytes()[:8], "little") for file in files)

    checkpoint = open_local(tmp_path)

    assert checkpoint.bytes_total == size
    assert checkpoint.bytes_read == heads
    checkpoint.read("layer.3.weight")
    assert checkpoint.bytes_read == heads + 3 * 5 * 4
    for name in checkpoint.tensors:
        checkpoint.read(name)
    assert checkpoint.bytes_read == size + 3 * 5 * 4


@pytest.mark.parametrize("shards", [1, 2])
def test_an_absent_tensor_is_missing(tmp_path, shards):
    checkpoint = open_local(make_checkpoint(tmp_path, TENSORS, shards=shards))

    for reading in (checkpoint.read, lambda name: list(checkpoint.stream([name]))):
        with pytest.raises(ModelError, match=r"missing-tensor: .*'nope'"):
            reading("nope")


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["pytorch_model.bin", "model.fp16.safetensors"], "pytorch_model.bin"),
        (["model.safetensors", "model.fp16.safetensors"], "model.safetensors"),
        (["model-00001-of-00001.safetensors"], "model-00001-of-00001.safetensors"),
        (["consolidated.safetensors", "adapter_model.safetensors"], "consolidated.safetensors"),
    ],
)
def test_the_file_that_transformers_would_load_is_chosen(tmp_path, files, chosen):
    for file in files:
        write_weights(tmp_path / file, ONES if file == chosen else ZEROS)

    assert_same(open_local(tmp_path), ONES)


def test_one_file_goes_before_shards_and_safetensors_before_bin(tmp_path):
    make_checkpoint(tmp_path, {**ZEROS, "v": torch.ones(1)}, shards=2, form="bin")
    assert len(open_local(tmp_path).tensors) == 2

    for single, tensors in (("pytorch_model.bin", ONES), ("model.safetensors", ZEROS)):
        write_weights(tmp_path / single, tensors)
        assert_same(open_local(tmp_path), tensors)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        (["adapter_model.safetensors", "optimizer.bin"], "no-weights"),
        (["sub/model.safetensors"], "no-weights"),
        (["one.safetensors", "two.safetensors"], "no-weights"),
        (["model-00002-of-00003.safetensors"], "missing-shard"),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], "missing-shard"),
    ],
)
def test_a_folder_without_a_clear_choice_is_refused(tmp_path, files, code):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write_weights(tmp_path / file, ONES)

    with pytest.raises(ModelError, match=f"^{code}: {tmp_path.name}: "):
        open_local(tmp_path)


def test_an_adapter_without_weights_is_refused_and_of_two_files_the_safetensors_is_read(tmp_path):
    write_weights(tmp_path / "model.safetensors", ONES)
    with pytest.raises(ModelError, match=r"no-weights: .*adapter_model\.safetensors or"):
        open_adapter_weights(tmp_path)

    write_weights(tmp_path / "adapter_model.bin", ZEROS)
    write_weights(tmp_path / "adapter_model.safetensors", ONES)
    assert_same(open_adapter_weights(tmp_path), ONES)


def say(folder, tensor, file):
    """The index, now with this file for this tensor."""
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][tensor] = file
    path.write_text(json.dumps(index))


DESCRIPTORS = Path("/proc/self/fd")
FIRST = "model-00001-of-00002.safetensors"
OTHER_FILES = ("/etc/x.safetensors", "../x.safetensors", "a/b.safetensors", "a\\b.safetensors")
NO_FILES = ("..", "config.json", "x\0.safetensors", None, ["x"])


@pytest.mark.parametrize("file", [*OTHER_FILES, *NO_FILES])
def test_an_index_that_leaves_its_folder_or_names_no_weight_file_is_refused(tmp_path, file):
    make_checkpoint(tmp_path / "m", TENSORS, shards=2)
    write_weights(tmp_path / "x.safetensors", TENSORS)
    say(tmp_path / "m", "layer.0.weight", file)

    with pytest.raises(ModelError, match=r"bad-config: model\.safetensors\.index\.json: weight_"):
        open_local(tmp_path / "m")


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}])
def test_an_index_without_a_weight_map_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(ModelError, match=r"bad-config: model\.safetensors\.index\.json: no weight"):
        open_local(tmp_path)


def test_a_tensor_that_its_shard_does_not_hold_and_a_shard_that_is_not_there_are_named(tmp_path):
    make_checkpoint(tmp_path, TENSORS, shards=2)
    say(tmp_path, "layer.1.weight", FIRST)
    with pytest.raises(ModelError, match=f"missing-tensor: {FIRST}: no tensor 'layer.1.weight'"):
        open_local(tmp_path)

    (tmp_path / FIRST).unlink()
    with pytest.raises(ModelError, match=f"missing-shard: .*'{FIRST}'"):
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


LARGE = {"a": torch.randn(100, 100), "b": torch.randn(100, 100)}


@pytest.fixture
def opened(tmp_path):
    return open_local(make_checkpoint(tmp_path, LARGE))


def test_a_file_cut_short_after_opening_has_changed(tmp_path, opened):
    os.truncate(tmp_path / "model.safetensors", 50_000)

    with pytest.raises(ModelError, match=r"changed: model\.safetensors: .* index it again"):
        opened.read("b")


def test_a_file_rewritten_in_place_has_changed(tmp_path, opened):
    opened.read("a")
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    os.utime(path, ns=(0, 1))

    with pytest.raises(ModelError, match="changed"):
        opened.read("b")


def test_a_file_replaced_meanwhile_is_still_read_as_it_was(tmp_path, opened):
    make_checkpoint(tmp_path / "new", {name: torch.zeros(1) for name in LARGE})
    os.replace(tmp_path / "new/model.safetensors", tmp_path / "model.safetensors")

    assert torch.equal(opened.read("b"), LARGE["b"])


def test_a_file_without_permission_and_a_failing_disk_are_unreadable(tmp_path, opened, monkeypatch):
    def fail(error):
        def call(*_):
            raise error

        return call

    monkeypatch.setattr(os, "preadv", fail(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(ModelError, match=r"unreadable: model\.safetensors: Input/output error"):
        opened.read("a")
    monkeypatch.setattr(os, "open", fail(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(ModelError, match=r"unreadable: model\.safetensors: Permission denied"):
        open_local(tmp_path)


def test_tensors_outlive_the_checkpoint_share_no_memory_and_after_closing_nothing_is_read(opened):
    first, second = opened.read("a"), opened.read("a")
    opened.close()
    opened.close()
    first.zero_()

    assert torch.equal(second, LARGE["a"])
    with pytest.raises(ModelError, match="unreadable"):
        opened.read("a")
