import errno
import os

import pytest
import torch
from factories import make_checkpoint

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import files as module
from deltadex.indexer.checkpoint import open_local

TENSORS = {"a": torch.randn(100, 100), "b": torch.randn(100, 100)}


@pytest.fixture
def opened(tmp_path):
    return open_local(make_checkpoint(tmp_path, TENSORS))


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
    make_checkpoint(tmp_path / "new", {name: torch.zeros(1) for name in TENSORS})
    os.replace(tmp_path / "new/model.safetensors", tmp_path / "model.safetensors")

    assert torch.equal(opened.read("b"), TENSORS["b"])


def test_reads_in_pieces_give_the_whole_tensor(opened, monkeypatch):
    monkeypatch.setattr(module, "MAX_READ_BYTES", 999)

    assert torch.equal(opened.read("b"), TENSORS["b"])


def test_a_file_without_permission_is_unreadable(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    make_checkpoint(tmp_path, TENSORS)
    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(ModelError, match=r"unreadable: model\.safetensors: Permission denied"):
        open_local(tmp_path)


def test_a_failing_disk_is_unreadable(opened, monkeypatch):
    def fail(_, buffers, offset):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)

    with pytest.raises(ModelError, match=r"unreadable: model\.safetensors: Input/output error"):
        opened.read("a")


def test_tensors_outlive_the_checkpoint_and_do_not_share_memory(opened):
    first, second = opened.read("a"), opened.read("a")
    opened.close()
    opened.close()
    first.zero_()

    assert torch.equal(second, TENSORS["a"])


def test_after_closing_nothing_is_read(opened):
    opened.close()

    with pytest.raises(ModelError, match="unreadable"):
        opened.read("a")
