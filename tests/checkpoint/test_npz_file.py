"""Arrays of a `.npz` are those that NumPy reads; nothing in it is unpickled."""

import io
import zipfile
from contextlib import closing

import numpy as np
import pytest
import torch

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import open_adapter_weights

ARRAYS = {
    "model.layers.0.q.lora_a": np.arange(12, dtype="<f4").reshape(3, 4),
    "half": np.ones((2, 5), "<f2"),
    "turned": np.asfortranarray(np.arange(6, dtype="<f8").reshape(2, 3)),
    "deep": np.asfortranarray(np.arange(24, dtype="<i4").reshape(2, 3, 4)),
    "scalar": np.array(1.5, "<f4"),
    "empty": np.zeros((0, 4), "<f4"),
}


def npy(array, descr=None):
    """The array's file, its type as MLX spells it."""
    file = io.BytesIO()
    np.save(file, array)
    content = file.getvalue()
    return content if descr is None else content.replace(b"'|V2'", descr)


def written(folder, entries, **options):
    with zipfile.ZipFile(folder / "adapters.npz", "w", **options) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content)
    return folder / "adapters.npz"


def opened(folder):
    return closing(open_adapter_weights(folder))


def test_arrays_are_those_that_numpy_reads(tmp_path):
    np.savez(tmp_path / "adapters.npz", **ARRAYS)

    with opened(tmp_path) as checkpoint:
        read = {name: checkpoint.read(name) for name in checkpoint.tensors}
        way = checkpoint.verify()

    theirs = np.load(tmp_path / "adapters.npz", allow_pickle=False)
    assert read.keys() == set(theirs.files)
    assert all(np.array_equal(read[name].numpy(), theirs[name]) for name in read)
    assert way == "crc"


def test_two_bytes_without_a_type_are_the_bfloat16_of_mlx(tmp_path):
    values = torch.randn(3, 4).bfloat16()
    array = values.view(torch.int16).numpy().view("V2")
    written(tmp_path, [("w.npy", npy(array, b"'<V2'"))])

    with opened(tmp_path) as checkpoint:
        assert torch.equal(checkpoint.read("w"), values)


GOOD = npy(np.ones((2, 2), "<f4"))


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([("w.npy", npy(np.array([{"a": 1}], dtype=object)))], "unsafe-pickle"),
        ([("w.npy", b"\x93NUMPY\x01\x00\xff\xff{")], "bad-header"),
        ([("w.npy", GOOD[:-4])], "bad-offsets"),
        ([("w.npy", GOOD.replace(b"(2, 2), }    ", b"(-2, -2), }  "))], "bad-offsets"),
        ([("w.npy", GOOD.replace(b"(2, 2), }          ", b"(9999999, 9999999,)"))], "bad-header"),
        ([("w.npy", GOOD.replace(b"(2, 2), }        ", b"(9999999, 99999)}"))], "bad-offsets"),
        ([("w.npy", GOOD), ("w.npy", GOOD)], "duplicate-tensor"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_no_array_of_numbers_is_refused_with_its_reason(tmp_path, entries, code):
    written(tmp_path, entries)

    with pytest.raises(ModelError, match=f"^{code}: adapters.npz"):
        open_adapter_weights(tmp_path)


def test_a_damaged_archive_is_refused_with_its_reason(tmp_path):
    np.savez_compressed(tmp_path / "adapters.npz", **ARRAYS)
    with pytest.raises(ModelError, match=r"^bad-header: .*compressed inside"):
        open_adapter_weights(tmp_path)

    np.savez(tmp_path / "adapters.npz", w=np.ones((2, 64), "<f4"))
    whole = (tmp_path / "adapters.npz").read_bytes()
    (tmp_path / "adapters.npz").write_bytes(whole[:-40])
    with pytest.raises(ModelError, match=r"^truncated: "):
        open_adapter_weights(tmp_path)

    at = whole.index(b"\x00\x00\x80\x3f")
    (tmp_path / "adapters.npz").write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
    with opened(tmp_path) as checkpoint, pytest.raises(ModelError, match=r"^checksum-mismatch: "):
        checkpoint.read("w")
