import io
import os
import pickle
import time
import zipfile

import pytest
import torch
from factories import NESTED_STATE_DICTS, TOO_DEEP, nest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_bytes import open_bin_bytes, to_bin

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import open_local

WEIGHT = torch.arange(12.0).reshape(3, 4)


def opened(path):
    return open_local(path.parent)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


def rewrite(path, edit=lambda _, data: data, compression=zipfile.ZIP_STORED):
    """Write the archive again, each entry as `edit` returns it, without those that are None."""
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as old:
        entries = {name: edit(name, old.read(name)) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", compression) as new:
        for name, data in entries.items():
            if data is not None:
                new.writestr(name, data)


def test_the_time_of_reading_does_not_matter(path, monkeypatch):
    torch.save({"w": WEIGHT}, path)
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert torch.equal(opened(path).read("w"), WEIGHT)


def test_views_strides_sharing_and_parameters_are_resolved(path):
    rows = torch.arange(20.0).reshape(5, 4)
    saved = {
        "whole": rows,
        "part": rows[1:3],
        "transposed": rows.T,
        "steps": rows[::2, ::3],
        "parameter": torch.nn.Parameter(rows),
        "empty": torch.zeros(0, 3),
    }
    torch.save(saved, path)

    checkpoint = opened(path)

    for name, tensor in saved.items():
        got = checkpoint.read(name)
        assert torch.equal(got, tensor.detach())
        assert got.is_contiguous()
        assert not got.requires_grad
        got.fill_(-1)
    assert torch.equal(checkpoint.read("whole"), rows)


@pytest.mark.parametrize("keys", NESTED_STATE_DICTS, ids=".".join)
def test_a_state_dict_may_lie_down_to_three_levels_deep(path, keys):
    torch.save(nest({"w": WEIGHT}, keys), path)

    checkpoint = opened(path)

    assert list(checkpoint.tensors) == ["w"]
    assert torch.equal(checkpoint.read("w"), WEIGHT)


ELSEWHERE = {".".join(keys): nest({"w": WEIGHT}, keys) for keys in TOO_DEEP}
UNNAMED = {"a number": {"a": 1}, "list": [WEIGHT], "no names": {0: WEIGHT}}


@pytest.mark.parametrize("case", ["nothing", *ELSEWHERE, *UNNAMED])
def test_anything_but_named_tensors_in_their_place_is_refused(path, case):
    torch.save((ELSEWHERE | UNNAMED).get(case, {}), path)

    with pytest.raises(ModelError, match=r"no-weights: pytorch_model\.bin: no tensors by name"):
        opened(path)


@pytest.mark.parametrize(
    "content",
    [
        {"step": torch.tensor(7), "module": {"lr": 0.1}, "state_dict": {"w": WEIGHT}},
        {"w": WEIGHT, "state_dict": {"lr": 0.1}, "model": {}, "step": 7, 3: WEIGHT},
    ],
)
def test_what_lies_beside_the_state_dict_or_is_no_tensor_is_no_weight(path, content):
    torch.save(content, path)

    assert list(opened(path).tensors) == ["w"]


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_pickle_protocol_3_is_read_and_4_refused_as_by_torch(path):
    torch.save({"w": WEIGHT}, path, pickle_protocol=3)
    assert torch.equal(opened(path).read("w"), WEIGHT)

    torch.save({"w": WEIGHT}, path, pickle_protocol=4)

    with pytest.raises(ModelError, match=r"unsafe-pickle: .* refuses it; save it as safetensors"):
        opened(path)


def test_a_compressed_archive_is_refused_for_torch_would_map_it_as_numbers(path):
    torch.save({"w": torch.zeros(100, 100)}, path)
    rewrite(path, compression=zipfile.ZIP_DEFLATED)

    with pytest.raises(ModelError, match=r"bad-header: pytorch_model\.bin: compressed inside"):
        opened(path)


def test_a_torch_that_notes_places_in_fake_mode_only_is_used_there(path, monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.save({"w": WEIGHT, "turned": WEIGHT.T}, path)
    monkeypatch.setattr("deltadex.indexer.checkpoint.bin_file.places_noted", FakeTensorMode)

    checkpoint = opened(path)

    assert torch.equal(checkpoint.read("w"), WEIGHT)
    assert torch.equal(checkpoint.read("turned"), WEIGHT.T)


DAMAGE = {
    "a storage is gone": (lambda n, d: None if n.endswith("/data/0") else d, "truncated"),
    "the pickle is gone": (lambda n, d: None if n.endswith("/data.pkl") else d, "truncated"),
    "the pickle is junk": (lambda n, d: b"x" if n.endswith("/data.pkl") else d, "unsafe-pickle"),
    "a shape beyond its storage": (
        lambda n, d: d.replace(b"K\x03K\x04\x86", b"J\0\0\0\x10K\x04\x86"),
        "truncated",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_archive_is_refused_in_one_short_line(path, case):
    edit, code = DAMAGE[case]
    torch.save({"w": WEIGHT}, path)
    rewrite(path, edit)

    with pytest.raises(ModelError) as caught:
        opened(path)

    assert caught.value.code == code
    assert caught.value.reason.startswith("pytorch_model.bin: ")
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 300


def over_several_disks(data):
    place = data.rindex(b"PK\x06\x07") + 16
    return data[:place] + b"\x09" + data[place + 1 :]


LFS = b"version https://git-lfs.github.com/spec/v1\n"
CUTS = {f"cut at {n}": lambda data, n=n: data[:n] for n in (0, 4, 100, -1)}
OTHER_FILES = {
    "a Git LFS pointer": (lambda _: LFS, "bad-header: .*git lfs pull"),
    "a web page": (lambda _: b"<html>Not found</html>", "legacy-pickle: .*not torch's zip form"),
    "over several disks": (over_several_disks, "truncated"),
    **{name: (cut, r"truncated: pytorch_model\.bin") for name, cut in CUTS.items()},
}


@pytest.mark.parametrize("case", OTHER_FILES)
def test_a_cut_file_and_files_of_other_forms_are_refused(path, case):
    change, reason = OTHER_FILES[case]
    torch.save({"w": WEIGHT}, path)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(ModelError, match=reason):
        opened(path)


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        (torch.ones(2, 2).to(torch.float8_e4m3fn), "F8_E4M3"),
        (torch.eye(3).to_sparse_coo(), "torch.sparse_coo"),
        (torch.empty(3, device="meta"), "meta"),
    ],
    ids=["float8", "sparse", "meta"],
)
def test_other_types_are_listed_and_refused_when_read(path, tensor, dtype):
    torch.save({"odd": tensor, "w": WEIGHT}, path)

    checkpoint = opened(path)

    assert checkpoint.tensors["odd"].dtype == dtype
    assert torch.equal(checkpoint.read("w"), WEIGHT)
    with pytest.raises(ModelError, match=f"unsupported-dtype: .*'odd' is {dtype}"):
        checkpoint.read("odd")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_one_changed_byte_changes_no_number_and_raises_only_model_errors(position, byte):
    data = bytearray(to_bin({"a.weight": WEIGHT, "b": WEIGHT.half().T}))
    data[position % len(data)] = byte

    try:
        checkpoint = open_bin_bytes(bytes(data), "f.bin")
        read = {name: checkpoint.read(name) for name in checkpoint.tensors}
    except ModelError as err:
        reason = err.reason
    else:
        assert read.keys() == {"a.weight", "b"}
        assert torch.equal(read["a.weight"], WEIGHT)
        assert torch.equal(read["b"], WEIGHT.half().T)
        return
    assert reason.startswith("f.bin: ")
    assert reason.isprintable()


MARKER = "DELTADEX_TEST_MARKER"


class Malicious:
    """Leaves its mark when it is unpickled."""

    def __reduce__(self):
        return exec, (f"import os; os.environ[{MARKER!r}] = 'ran'",)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("zip", r"unsafe-pickle: pytorch_model\.bin: holds more than tensors: exec"),
        ("legacy", "legacy-pickle"),
        ("pickle", "legacy-pickle"),
    ],
)
def test_a_malicious_pickle_does_not_run(path, form, reason, monkeypatch):
    monkeypatch.delenv(MARKER, raising=False)
    path.write_bytes(pickle.dumps(Malicious()))
    if form != "pickle":
        content = {"w": WEIGHT, "x": Malicious()}
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")

    with pytest.raises(ModelError, match=reason):
        opened(path)

    assert MARKER not in os.environ
    if form == "pickle":
        pickle.loads(path.read_bytes())
        assert os.environ.pop(MARKER) == "ran"


def test_a_whole_module_is_refused_by_its_class_and_a_torchscript_program_too(path):
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(ModelError, match=r"unsafe-pickle: .*torch\.nn\.modules\.linear\.Linear"):
        opened(path)

    torch.save({"w": WEIGHT}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pytorch_model/constants.pkl", b"")
    with pytest.raises(ModelError, match=r"unsafe-pickle: .*TorchScript"):
        opened(path)
