import struct

import pytest

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import TensorRef, decode


def test_decode_shares_the_memory_of_a_fitting_buffer():
    ref = TensorRef(name="a", dtype="F32", shape=(2,), file="f", start=0, stop=8)
    buffer = bytearray(8)

    tensor = decode(memoryview(buffer), ref)
    buffer[:4] = struct.pack("<f", 5.0)

    assert tensor.tolist() == [5.0, 0.0]


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_decode_takes_misaligned_and_read_only_buffers(offset):
    ref = TensorRef(name="a", dtype="F64", shape=(2, 1), file="f", start=0, stop=16)
    data = bytes(offset) + struct.pack("<dd", 1.5, -2.5)

    for buffer in (memoryview(data)[offset:], memoryview(bytearray(data))[offset:]):
        tensor = decode(buffer, ref)

        assert tensor.tolist() == [[1.5], [-2.5]]
        assert tensor.data_ptr() % 8 == 0


def test_decode_refuses_a_buffer_of_another_size():
    ref = TensorRef(name="a", dtype="F64", shape=(2,), file="f", start=0, stop=16)

    with pytest.raises(ModelError, match="truncated: f: tensor 'a' has 15 of 16 bytes"):
        decode(bytearray(15), ref)
