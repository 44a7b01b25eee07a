"""`.bin` files that strangers wrote: torch archives, read in part and never unpickled."""

import io
import stat
import struct
import zipfile

import pytest
import torch
from bounds import code_of, result_or_refusal, within
from factories import write_file
from memory_bytes import open_bin_bytes, to_bin

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import open_local


def archive(entries, *, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return file.getvalue()


def called(name, argument):
    """A state dict whose one value is what a global gives for an argument."""
    return b"\x80\x02}X\x01\x00\x00\x00w" + b"c" + name + b"\n" + argument + b"\x85Rs."


GOOD = to_bin({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)})
GIGABYTES = b"\x8a\x08" + struct.pack("<q", 1 << 36)


def read_all(data):
    checkpoint = open_bin_bytes(data, "pytorch_model.bin")
    return dict(checkpoint.stream(checkpoint.tensors))


@pytest.mark.parametrize(
    "name", [b"builtins\nbytearray", b"__builtin__\nbytearray", b"torch\nFloatTensor",
             b"torch.storage\nUntypedStorage", b"torch\nTensor"],
)  # fmt: skip
def test_a_few_bytes_cannot_ask_for_gigabytes(name):
    data = archive({"archive/data.pkl": called(name, GIGABYTES), "archive/version": b"3\n"})

    with within(seconds=20, mebibytes=64):
        assert code_of(lambda: read_all(data)) in (
            "unsafe-pickle", "truncated", "no-weights", "bad-offsets",
        )  # fmt: skip


def test_a_zip_bomb_is_refused_by_its_list():
    with within(seconds=20, mebibytes=256):
        bomb = archive(
            {"archive/data.pkl": b".", "archive/data/0": bytes(100 << 20)},
            method=zipfile.ZIP_DEFLATED,
        )
        assert len(bomb) < 1 << 20
        assert code_of(lambda: read_all(bomb)) == "bad-header"


def test_a_vast_list_of_entries_is_refused_unread(tmp_path):
    path = write_file(tmp_path / "pytorch_model.bin", b"PK\x03\x04")
    with path.open("r+b") as file:
        file.seek(200 << 20)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, 200 << 20, 0, 0))

    with within(seconds=10, mebibytes=16):
        assert code_of(lambda: open_local(tmp_path)) == "bad-header"


@pytest.mark.parametrize("vast", ["data.pkl", "byteorder"])
def test_a_vast_list_of_tensors_or_word_on_the_byte_order_is_refused_unread(tmp_path, vast):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as made:
        if vast != "data.pkl":
            made.writestr("archive/data.pkl", b"x")
        with made.open(f"archive/{vast}", "w") as entry:
            for _ in range(70):
                entry.write(bytes(1 << 20))

    with within(seconds=10, mebibytes=16):
        assert code_of(lambda: open_local(tmp_path)) == "bad-header"


@pytest.mark.parametrize(
    "name", ["../../owned", "/owned", "archive/../../owned", "a\0b", "x" * 9000]
)
def test_names_in_an_archive_lead_nowhere(tmp_path, name):
    with zipfile.ZipFile(io.BytesIO(GOOD)) as good:
        entries = {entry: good.read(entry) for entry in good.namelist()}
    folder = tmp_path / "a" / "b"
    write_file(folder / "pytorch_model.bin", archive({**entries, name: b"owned"}))

    result_or_refusal(lambda: open_local(folder))

    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["pytorch_model.bin"]


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    link = zipfile.ZipInfo("archive/data/0")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = tmp_path / "pytorch_model.bin"
    with (
        zipfile.ZipFile(io.BytesIO(to_bin({"w": torch.zeros(4)}))) as good,
        zipfile.ZipFile(path, "w") as made,
    ):
        prefix = good.namelist()[0].partition("/")[0]
        for entry in good.namelist():
            if not entry.endswith("data/0"):
                made.writestr(entry, good.read(entry))
        link.filename = f"{prefix}/data/0"
        made.writestr(link, b"/etc/passwd\0\0\0\0\0")

    given = result_or_refusal(lambda: open_local(tmp_path))

    if not isinstance(given, ModelError):
        assert given.read("w").numpy().tobytes() == b"/etc/passwd\0\0\0\0\0"


def test_a_tensor_that_repeats_few_bytes_over_gigabytes_is_refused():
    vast = torch.zeros(1).expand(1 << 20, 1 << 14)

    with within(seconds=10, mebibytes=64):
        assert code_of(lambda: read_all(to_bin({"w": vast}))) == "bad-offsets"
