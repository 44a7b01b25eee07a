import hashlib
import os

import pytest
import torch
from factories import make_checkpoint

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ModelFolder


@pytest.fixture
def folder(tmp_path):
    tensors = {"a": torch.ones(2), "b": torch.ones(2)}
    made = make_checkpoint(tmp_path / "m", tensors, shards=2, config={"model_type": "bert"})
    for path in made.iterdir():
        os.utime(path, ns=(0, 10**18))
    return made


def touch(path):
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


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
        lambda f: touch(f / SHARD),
        lambda f: touch(f / "config.json"),
        lambda f: grow(f / SHARD),
        lambda f: grow(f / "config.json"),
        lambda f: (f / SHARD).unlink(),
        lambda f: (f / SHARD).rename(f / "other.safetensors"),
        lambda f: (f / "adapter_model.bin").touch(),
    ],
    ids=["touched", "config touched", "grown", "config grown", "gone", "renamed", "added"],
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


def test_a_name_that_is_not_unicode_is_no_obstacle(folder):
    before = signature(folder)

    (folder / os.fsdecode(b"\xff.bin")).touch()

    assert signature(folder) != before


def test_a_missing_folder_is_unreadable(tmp_path):
    with pytest.raises(ModelError, match="unreadable"):
        signature(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 3 * 2**20])
def test_a_files_sha256_is_that_of_its_bytes(tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)

    assert ModelFolder.at(tmp_path).sha256("f") == hashlib.sha256(data).hexdigest()


def test_the_sha256_of_a_missing_file_is_unreadable(tmp_path):
    with pytest.raises(ModelError, match="unreadable: f: No such file"):
        ModelFolder.at(tmp_path).sha256("f")
