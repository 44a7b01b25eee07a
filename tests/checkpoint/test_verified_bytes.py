"""Whole files against their listed SHA-256: no changed byte is passed on as right, in any order."""

from __future__ import annotations

import hashlib
import random

import pytest
import torch
from factories import put_in_cache
from hypothesis import example, given
from hypothesis import strategies as st
from memory_bytes import MemoryBytes, to_bin
from safetensors.torch import save

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ALL_TENSORS, WHOLE_TENSORS, ReadPlan, open_local
from deltadex.indexer.hub import files as module
from deltadex.indexer.hub.files import VerifiedBytes

CONTENT = random.Random(0).randbytes(1000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RANGES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: tuple(sorted(pair))),
    max_size=12,
)


class Line(MemoryBytes):
    """A file that travels, in which the n-th read may come with one byte changed."""

    def __init__(self, plan=WHOLE_TENSORS, *, bad_read=-1, at=0):
        super().__init__(CONTENT, "model.safetensors", plan)
        self.bytes_fetched = 0
        self._bad_read, self._at = bad_read, at

    def read(self, start, stop):
        buffer = super().read(start, stop)
        if len(self.ranges) - 1 == self._bad_read and buffer:
            buffer[self._at % len(buffer)] ^= 1
        self.bytes_fetched += stop - start
        return buffer


@pytest.fixture(scope="module", autouse=True)
def _small_pieces_for_drawn_cases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", 64)
        patch.setattr(module, "CHUNK", 32)
        yield


def plan(held):
    return ReadPlan(ahead=held // 5, memory=held) if held else WHOLE_TENSORS


@given(ranges=RANGES, held=st.sampled_from([0, 40, 300, 5000]))
def test_any_order_of_reads_gives_the_files_bytes_and_its_hash(ranges, held):
    source = VerifiedBytes(Line(plan(held)), SHA256)

    assert [bytes(source.read(a, b)) for a, b in ranges] == [CONTENT[a:b] for a, b in ranges]
    assert source.verify() == "sha256"


@example(ranges=[(129, 130), (129, 169)], held=40, bad_read=4, at=0)
@given(
    ranges=RANGES,
    held=st.sampled_from([0, 40, 300, 5000]),
    bad_read=st.integers(0, 30),
    at=st.integers(0, 999),
)
def test_a_changed_byte_is_noticed_before_the_file_counts_as_verified(ranges, held, bad_read, at):
    line = Line(plan(held), bad_read=bad_read, at=at)
    source = VerifiedBytes(line, SHA256)

    got, code = [], None
    try:
        got = [bytes(source.read(a, b)) for a, b in ranges]
        source.verify()
    except ModelError as err:
        code = err.code

    assert code == "checksum-mismatch" or got == [CONTENT[a:b] for a, b in ranges]
    assert code in (None, "checksum-mismatch")


FORWARD = [(start, start + 20) for start in (0, 30, 400, 640, 700)]
LIST_AT_THE_END_FIRST = [(940, 1000), (0, 50), (50, 500), (500, 940)]
INTO_THE_LIST = [*LIST_AT_THE_END_FIRST[:3], (500, 960)]
ANY_ORDER = random.Random(1).sample([(n, n + 100) for n in range(0, 1000, 100)], 10)


@pytest.mark.parametrize(
    ("held", "blocks"),
    [
        (0, FORWARD),
        (ALL_TENSORS.memory, FORWARD),
        (0, LIST_AT_THE_END_FIRST),
        (0, INTO_THE_LIST),
        (5000, ANY_ORDER),
    ],
    ids=["a full checkpoint", "an adapter", "an archive", "its last entry", "any order"],
)
def test_every_byte_travels_once(held, blocks):
    line = Line(plan(held))
    source = VerifiedBytes(line, SHA256)

    assert all(source.read(a, b) == CONTENT[a:b] for a, b in blocks)
    assert source.verify() == source.verify() == "sha256"
    assert line.bytes_fetched == len(CONTENT)


def test_what_is_not_held_any_more_comes_again_in_blocks():
    line = Line(plan(320))
    source = VerifiedBytes(line, SHA256)
    every_other = [*range(0, 1000, 40), *range(20, 1000, 40)]

    assert source.read(0, 20) == CONTENT[:20]
    assert line.ranges == [(0, 20)]
    assert all(source.read(n, n + 20) == CONTENT[n : n + 20] for n in every_other)
    assert source.verify() == "sha256"
    assert line.bytes_fetched < 2 * len(CONTENT)
    assert len(line.ranges) < 40


def test_what_a_reader_does_to_its_bytes_does_not_change_the_hash():
    source = VerifiedBytes(Line(plan(5000)), SHA256)

    for start, stop in ((500, 700), (0, 500), (700, 1000)):
        buffer = source.read(start, stop)
        buffer[:] = bytes(len(buffer))

    assert source.verify() == "sha256"


def test_another_file_of_the_same_size_is_refused():
    listed = hashlib.sha256(CONTENT[:-1] + b"?").hexdigest()

    with pytest.raises(ModelError, match=r"^checksum-mismatch: model\.safetensors: SHA-256 "):
        VerifiedBytes(Line(), listed).verify()


TENSORS = {"a.weight": torch.randn(8, 6, generator=torch.Generator().manual_seed(0))}


def changed(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_file_of_the_hub_clients_cache_is_compared_with_its_name(tmp_path):
    content, place = save(TENSORS), ("org/name", "0" * 40, "model.safetensors")
    folder = put_in_cache(tmp_path / "whole", *place, content)
    other = changed(content, len(content) - 3)
    damaged = put_in_cache(tmp_path / "cut", *place, other, named=content)
    (tmp_path / "model.safetensors").write_bytes(content)

    assert open_local(folder, whole=True).verify() == "sha256"
    assert open_local(folder).verify() == "unverified"
    assert open_local(tmp_path, whole=True).verify() is None  # nothing is listed of it
    checkpoint = open_local(damaged, whole=True)
    with pytest.raises(ModelError, match=r"^checksum-mismatch: model\.safetensors: .*fetch it"):
        checkpoint.verify()


@pytest.mark.parametrize(
    "reading",
    [
        lambda checkpoint: checkpoint.read("a.weight"),
        lambda checkpoint: checkpoint.view("a.weight").__enter__(),
        lambda checkpoint: list(checkpoint.stream(["a.weight"])),
    ],
    ids=["read", "view", "stream"],
)
def test_an_archives_entry_is_compared_with_its_crc(tmp_path, reading):
    content = to_bin(TENSORS)
    place = content.index(TENSORS["a.weight"].numpy().tobytes()) + 17
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    assert open_local(tmp_path).verify() == "crc"
    path.write_bytes(changed(content, place))

    checkpoint = open_local(tmp_path)
    with pytest.raises(ModelError, match=r"^checksum-mismatch: pytorch_model\.bin: tensor 'a\.w"):
        reading(checkpoint)


def test_an_archive_that_was_saved_without_crcs_is_read_and_nothing_is_claimed(tmp_path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        (tmp_path / "pytorch_model.bin").write_bytes(to_bin(TENSORS))
    finally:
        torch.serialization.set_crc32_options(before)

    checkpoint = open_local(tmp_path)
    assert torch.equal(checkpoint.read("a.weight"), TENSORS["a.weight"])
    assert checkpoint.verify() is None
