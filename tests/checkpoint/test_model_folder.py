import hashlib
import os

import pytest
import torch
from factories import make_checkpoint

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ModelFolder, read_json


@pytest.fixture
def folder(tmp_path):
    tensors = {"a": torch.ones(2), "b": torch.ones(2)}
    made = make_checkpoint(tmp_path / "m", tensors, shards=2, config={"model_type": "bert"})
    for path in made.iterdir():
        os.utime(path, ns=(0, 10**18))
    return made


def grow(path):
    with path.open("ab") as file:
        file.write(b" ")
    os.utime(path, ns=(0, 10**18))


def signature(folder):
    return ModelFolder.at(folder).signature()


SHARD = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    "change",
    [
        lambda f: os.utime(f / "config.json", ns=(0, 10**18 + 1)),
        lambda f: grow(f / SHARD),
        lambda f: (f / SHARD).rename(f / "other.safetensors"),
        lambda f: (f / "adapter_model.bin").touch(),
        lambda f: (f / os.fsdecode(b"\xff.bin")).touch(),
    ],
)
def test_a_change_to_weights_or_config_changes_the_signature(folder, change):
    before = signature(folder)

    change(folder)

    assert signature(folder) != before


def test_reading_moving_and_other_files_leave_the_signature(folder):
    before = signature(folder)

    (folder / SHARD).read_bytes()
    (folder / "notes.txt").touch()
    (folder / "checkpoint-5").mkdir()
    (folder / os.fsdecode(b"\xff.txt")).touch()
    moved = folder.rename(folder.parent / "elsewhere")

    assert signature(moved) == before


@pytest.mark.parametrize("size", [0, 2**20 + 1])
def test_a_files_sha256_is_that_of_its_bytes(tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)

    assert ModelFolder.at(tmp_path).sha256("f") == hashlib.sha256(data).hexdigest()


BAD = {
    "nothing": b"",
    "null": b"null",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "half a surrogate pair": b'{"a": "\\uD83D"}',
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_a_bad_config_in_one_line(tmp_path, case):
    (tmp_path / "adapter_config.json").write_bytes(BAD[case])

    with pytest.raises(ModelError, match=r"^bad-config: adapter_config\.json: ") as from_file:
        ModelFolder.at(tmp_path).json("adapter_config.json")
    with pytest.raises(ModelError) as from_bytes:
        read_json(BAD[case], name="adapter_config.json")

    assert from_file.value.args == from_bytes.value.args
    assert from_file.value.reason.isprintable()


def test_what_is_missing_and_a_folder_for_a_file_are_unreadable(tmp_path):
    (tmp_path / "adapter_config.json").mkdir()

    with pytest.raises(ModelError, match=r"unreadable: config\.json: No such file"):
        ModelFolder.at(tmp_path).json("config.json")
    with pytest.raises(ModelError, match=r"unreadable: adapter_config\.json: not a file"):
        ModelFolder.at(tmp_path).json("adapter_config.json")
    with pytest.raises(ModelError, match="unreadable: f: No such file"):
        ModelFolder.at(tmp_path).sha256("f")
    with pytest.raises(ModelError, match="unreadable"):
        signature(tmp_path / "nowhere")
