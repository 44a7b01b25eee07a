"""Whole files against their listed SHA-256: no changed byte is passed on as right, in any order."""

from __future__ import annotations

import hashlib
import random
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import ALL_TENSORS, WHOLE_TENSORS, ReadPlan
from deltadex.indexer.hub import files as module
from deltadex.indexer.hub.files import VerifiedBytes

CONTENT = random.Random(0).randbytes(1000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RANGES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: tuple(sorted(pair))),
    max_size=12,
)


class Line:
    """A file that travels, in which the n-th read may come with one byte changed."""

    name = "model.safetensors"
    size = len(CONTENT)

    def __init__(self, plan=WHOLE_TENSORS, *, bad_read=-1, at=0):
        self.plan = plan
        self.bytes_fetched = 0
        self.reads: list[tuple[int, int]] = []
        self._bad_read, self._at = bad_read, at

    def read(self, start, stop):
        buffer = bytearray(CONTENT[start:stop])
        if len(self.reads) == self._bad_read and buffer:
            buffer[self._at % len(buffer)] ^= 1
        self.reads.append((start, stop))
        self.bytes_fetched += stop - start
        return buffer

    def view(self, start, stop):
        return nullcontext(self.read(start, stop))

    def verify(self):
        return None

    def close(self): ...


@pytest.fixture(scope="module", autouse=True)
def _small_pieces_for_drawn_cases():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", 64)
        patch.setattr(module, "CHUNK", 32)
        yield


def plan(held):
    return ReadPlan(ahead=1, memory=held) if held else WHOLE_TENSORS


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


@pytest.mark.parametrize("held", [0, ALL_TENSORS.memory], ids=["a full checkpoint", "an adapter"])
def test_forward_every_byte_travels_once(held):
    line = Line(plan(held))
    source = VerifiedBytes(line, SHA256)

    for start in (0, 30, 400, 640, 700):
        source.read(start, start + 20)
    source.verify()
    source.verify()

    assert line.bytes_fetched == len(CONTENT)


def test_an_adapter_that_fits_memory_travels_once_in_any_order():
    line = Line(plan(5000))
    source = VerifiedBytes(line, SHA256)
    blocks = [(start, start + 100) for start in range(0, 1000, 100)]
    random.Random(1).shuffle(blocks)

    assert all(source.read(a, b) == CONTENT[a:b] for a, b in blocks)
    assert source.verify() == "sha256"
    assert line.bytes_fetched == len(CONTENT)


def test_an_archive_whose_list_at_the_end_is_read_first_travels_once():
    line = Line()
    source = VerifiedBytes(line, SHA256)

    for start, stop in ((940, 1000), (0, 50), (50, 500), (500, 940)):
        source.read(start, stop)
    source.verify()

    assert line.bytes_fetched == len(CONTENT)


def test_what_a_reader_does_to_its_bytes_does_not_change_the_hash():
    source = VerifiedBytes(Line(plan(5000)), SHA256)

    for start, stop in ((500, 700), (0, 500), (700, 1000)):
        buffer = source.read(start, stop)
        buffer[:] = bytes(len(buffer))

    assert source.verify() == "sha256"


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1] + b"?", lambda c: b"?" + c[1:]], ids=["last", "first"]
)
def test_another_file_of_the_same_size_is_refused(change):
    listed = hashlib.sha256(change(CONTENT)).hexdigest()

    with pytest.raises(ModelError, match=r"^checksum-mismatch: model\.safetensors: SHA-256 "):
        VerifiedBytes(Line(), listed).verify()
