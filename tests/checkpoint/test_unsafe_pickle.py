import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_bytes import open_bin_bytes

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import Checkpoint, open_local

Opener = Callable[[Path], Checkpoint]
WEIGHT = torch.arange(12.0).reshape(3, 4)
MARKER = "DELTADEX_TEST_MARKER"


def from_disk(path: Path) -> Checkpoint:
    return open_local(path.parent)


def from_memory(path: Path) -> Checkpoint:
    return open_bin_bytes(path.read_bytes(), path.name)


both = pytest.mark.parametrize("opened", [from_disk, from_memory])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


class Malicious:
    """Leaves its mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; os.environ[{MARKER!r}] = 'ran'",)


@pytest.fixture
def malicious_forms(path: Path) -> dict[str, bytes]:
    forms = {"pickle": pickle.dumps(Malicious())}
    for name, zipped in (("zip", True), ("legacy", False)):
        torch.save({"w": WEIGHT, "x": Malicious()}, path, _use_new_zipfile_serialization=zipped)
        forms[name] = path.read_bytes()
    return forms


@both
@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("zip", r"unsafe-pickle: pytorch_model\.bin: holds more than tensors: exec"),
        ("legacy", "legacy-pickle"),
        ("pickle", "legacy-pickle"),
    ],
)
def test_a_malicious_pickle_does_not_run(path, opened, form, reason, malicious_forms, monkeypatch):
    monkeypatch.delenv(MARKER, raising=False)
    path.write_bytes(malicious_forms[form])

    with pytest.raises(ModelError, match=reason):
        opened(path)

    assert MARKER not in os.environ
    if form == "pickle":
        pickle.loads(malicious_forms[form])
        assert os.environ.pop(MARKER) == "ran"


@both
def test_a_whole_module_is_refused_by_its_class(path, opened):
    torch.save(torch.nn.Linear(2, 2), path)

    with pytest.raises(ModelError, match=r"unsafe-pickle: .*torch\.nn\.modules\.linear\.Linear"):
        opened(path)


@both
def test_a_torchscript_program_is_refused(path, opened):
    torch.save({"w": WEIGHT}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pytorch_model/constants.pkl", b"")

    with pytest.raises(ModelError, match=r"unsafe-pickle: .*TorchScript"):
        opened(path)
