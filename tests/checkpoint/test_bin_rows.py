"""Rows of `.bin` tensors: what torch.load gives, from the bytes of those rows."""

import io
import struct
import zipfile
from dataclasses import replace

import pytest
import torch
from memory_bytes import MemoryBytes, to_bin

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import FEW_BYTES, RowBlock, open_local
from deltadex.indexer.checkpoint.bin_file import BinFile

TABLE = torch.arange(60 * 40, dtype=torch.float32).reshape(60, 40)
STACK = torch.arange(4 * 30 * 20, dtype=torch.float32).reshape(4, 30, 20)

KINDS = {
    "half": lambda: {"a": TABLE.bfloat16(), "b": TABLE.half(), "c": TABLE.double()},
    "whole numbers": lambda: {"a": TABLE.long(), "b": TABLE.to(torch.int8), "c": TABLE > 5},
    "rows of a larger one": lambda: {"a": TABLE[5:50], "b": TABLE[20:]},
    "columns of a larger one": lambda: {"a": TABLE[:, 3:11], "b": TABLE[:, 11:40]},
    "every other column": lambda: {"a": TABLE[:, ::2], "b": TABLE[::2, 1::3]},
    "transposed": lambda: {"a": TABLE.T, "b": TABLE.clone().T[3:20]},
    "shared": lambda: {"a": TABLE, "b": TABLE, "c": TABLE.view(40, 60)},
    "one row repeated": lambda: {"a": TABLE[:1].expand(9, 40)},
    "one column repeated": lambda: {"a": TABLE[:, :1].expand(60, 1)},
    "stacked": lambda: {"a": STACK, "b": STACK[1:3], "c": STACK[:, 4:9]},
    "stacked, turned": lambda: {"a": STACK.transpose(1, 2), "b": STACK.transpose(0, 1)},
    "nothing in it": lambda: {"a": torch.zeros(5, 0), "b": TABLE},
}  # fmt: skip


def loaded(data):
    return torch.load(io.BytesIO(data), weights_only=True)


def remote(data):
    """The archive read by ranges, as of a Hub model under a budget; and what is read."""
    source = MemoryBytes(data, "pytorch_model.bin", FEW_BYTES)
    return BinFile(source), source


def some_blocks(data):
    """The first rows of each tensor, the last, and some between them."""
    blocks = []
    for name, tensor in loaded(data).items():
        n_rows = tensor.shape[0] * (tensor.shape[1] if tensor.dim() > 2 else 1)
        third = max(1, n_rows // 3)
        blocks += [RowBlock(name, 0, third), RowBlock(name, n_rows - third, n_rows)]
        blocks.append(RowBlock(name, third // 2, third // 2 + 1))
    return list(dict.fromkeys(blocks))


def assert_rows(checkpoint, data, blocks):
    """The blocks come, each once, as they are cut from what torch loads."""
    state = loaded(data)
    read = list(checkpoint.stream_rows(blocks))
    order = [(b.tensor, b.start, b.stop) for b, _ in read]
    assert sorted(order) == sorted((b.tensor, b.start, b.stop) for b in blocks)
    for block, rows in read:
        expected = state[block.tensor].detach().flatten(0, -2)[block.start : block.stop]
        assert rows.dtype == expected.dtype
        assert torch.equal(rows, expected)
        assert rows.is_contiguous()
        assert rows.untyped_storage().nbytes() == rows.nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_torch_loads(tmp_path, kind):
    data = to_bin(KINDS[kind]())
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    blocks = [b for b in some_blocks(data) if kind != "one row repeated"]

    for checkpoint in (open_local(tmp_path), remote(data)[0]):
        assert_rows(checkpoint, data, blocks)


def written_again(data, edit=lambda _, d: d, *, padding=b""):
    """As Python's zipfile writes it: without alignment and without descriptors.

    The padding belongs to nothing, between an entry's content and the next entry.
    """
    old, file = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, edit(name, old.read(name)))
            new.fp.write(padding)
            new.start_dir += len(padding)
    return file.getvalue()


ARCHIVES = {
    "without descriptors": lambda data: written_again(data),
    "big-endian": lambda data: written_again(
        data, lambda n, d: b"big" if n.endswith("/byteorder") else d
    ),
    "descriptors of nothing": lambda data: data.replace(b"PK\x07\x08", b"PK\x07\x09"),
    "padded": lambda data: written_again(data, padding=b"?" * 37),
}


@pytest.mark.parametrize("archive", ARCHIVES)
def test_where_content_begins_is_read_not_guessed(tmp_path, archive):
    tensors = {"a": TABLE, "b": TABLE + 1, "c": TABLE.T, "half": STACK[0, :4, :3].half().T}
    data = ARCHIVES[archive](to_bin(tensors))
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    single = [RowBlock("a", 58, 60), RowBlock("b", 0, 2), RowBlock("c", 30, 31)]

    for blocks in (single, some_blocks(data)):
        assert_rows(open_local(tmp_path), data, blocks)
        assert_rows(remote(data)[0], data, blocks)
    for name, whole in loaded(data).items():
        assert torch.equal(open_local(tmp_path).read(name), whole)


LARGE = {
    f"layer.{i}.{name}": torch.full((256, 1024), float(i)) for i in range(8) for name in ("q", "o")
}


def test_of_a_remote_file_the_rows_and_little_else_are_read():
    data = to_bin(LARGE)
    blocks = [RowBlock(name, *((0, 8) if i % 2 else (248, 256))) for i, name in enumerate(LARGE)]
    checkpoint, source = remote(data)
    opening = len(source.ranges)

    assert_rows(checkpoint, data, blocks)

    wanted = len(blocks) * 8 * 1024 * 4
    read = sum(stop - start for start, stop in source.ranges[opening:])
    assert wanted <= read <= 1.01 * wanted
    # the last rows of one tensor and the first of the next are one range
    assert len(source.ranges) - opening == len(blocks) / 2
    assert sum(stop - start for start, stop in source.ranges[:opening]) < 12_000


def test_a_plan_that_reads_all_bytes_cuts_rows_from_whole_tensors(tmp_path):
    data = to_bin({"a": TABLE})
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    blocks = [RowBlock("a", 3, 5)]

    whole, part = open_local(tmp_path, whole=True), open_local(tmp_path)
    assert_rows(whole, data, blocks)
    assert_rows(part, data, blocks)

    assert (whole.verify(), part.verify()) == ("crc", "unverified")


def test_rows_come_in_one_order_however_they_are_read():
    state = {"z": TABLE, "a": TABLE, "turned": TABLE.clone().T, "some": TABLE[3:50], "b": TABLE + 1}
    data = to_bin(state)
    blocks = some_blocks(data)
    by_rows, _ = remote(data)
    whole = BinFile(MemoryBytes(data, "w.bin", replace(FEW_BYTES, whole=True)))

    orders = [[block for block, _ in c.stream_rows(blocks)] for c in (by_rows, whole)]

    assert orders[0] == orders[1]


def test_an_entry_read_in_part_is_not_compared_and_one_read_whole_is():
    data = bytearray(to_bin({"a": TABLE, "turned": TABLE.clone().T}))
    place = bytes(data).index(struct.pack("<2f", 2000.0, 2001.0))
    data[place] ^= 1
    checkpoint, _ = remote(bytes(data))

    ((_, rows),) = checkpoint.stream_rows([RowBlock("a", 0, 2)])
    assert torch.equal(rows, TABLE[:2])
    assert checkpoint.verify() == "unverified"
    with pytest.raises(ModelError, match="checksum-mismatch"):
        checkpoint.read("a")
    assert len(list(checkpoint.stream_rows([RowBlock("turned", 0, 2)]))) == 1


@pytest.mark.parametrize("damage", [b"PX\x03\x04", b"PK\x03\x04" + b"\xff" * 26])
def test_a_damaged_local_header_is_refused(damage):
    data = bytearray(to_bin({"a": TABLE}))
    entry = zipfile.ZipFile(io.BytesIO(bytes(data))).getinfo("archive/data/0")
    data[entry.header_offset : entry.header_offset + len(damage)] = damage
    checkpoint, _ = remote(bytes(data))

    with pytest.raises(ModelError, match=r"bad-header|bad-offsets"):
        list(checkpoint.stream_rows([RowBlock("a", 0, 2)]))
