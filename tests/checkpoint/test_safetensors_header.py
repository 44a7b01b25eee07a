import json
import math
import struct

import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.torch import load, save

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import decode
from deltadex.indexer.checkpoint.files import DTYPES, MAX_HEADER, header_length, parse_header

FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.half, "BF16": torch.bfloat16}
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8).filter(
    lambda name: name != "__metadata__"
)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def file_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start, stop, shape=None, dtype="U8"):
    shape = [stop - start] if shape is None else list(shape)
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def parse(file):
    size = len(file)
    end = 8 + header_length(file[:8], file="f", file_size=size)
    return parse_header(file[8:end], file="f", file_size=size)


def code_of(file):
    """The code of the refusal; its reason is one short line that names the file."""
    try:
        parse(file)
        return None
    except ModelError as err:
        refusal = err
    assert refusal.reason.startswith("f: ")
    assert refusal.reason.isprintable()
    assert len(refusal.reason) < 500
    return refusal.code


def library_accepts(file):
    try:
        deserialize(file)
    except SafetensorError:
        return False
    return True


@given(st.dictionaries(NAMES, SHAPES), st.data())
def test_files_of_the_library_parse_and_decode_to_the_tensors_it_loads(shapes, data):
    tensors = {
        name: torch.randint(0, 2, shape).to(data.draw(st.sampled_from(list(DTYPES.values()))))
        for name, shape in shapes.items()
    }
    file = save(tensors, metadata={"format": "pt"})

    refs = parse(file)

    expected = load(file)
    assert {ref.name for ref in refs} == expected.keys()
    for ref in refs:
        tensor = decode(bytearray(file[ref.start : ref.stop]), ref)
        assert tensor.dtype == expected[ref.name].dtype
        assert tensor.shape == expected[ref.name].shape
        assert torch.equal(tensor, expected[ref.name])


@pytest.mark.parametrize("spelling", FLOATS)
def test_floats_are_read_bit_for_bit(spelling):
    bits = torch.randint(0, 256, (4096,), dtype=torch.uint8)
    file = save({"w": bits.view(FLOATS[spelling])})
    (ref,) = parse(file)

    tensor = decode(bytearray(file[ref.start : ref.stop]), ref)

    assert ref.dtype == spelling
    assert tensor.dtype == FLOATS[spelling]
    assert torch.equal(tensor.view(torch.uint8), bits)


GOOD = entry(0, 4)


def lone(entry, n_bytes=4):
    return file_bytes({"a": entry}, bytes(n_bytes))


REFUSALS = {
    "seven bytes": (b"\0" * 7, "truncated"),
    "header beyond the file": (struct.pack("<Q", 100) + b"{}", "truncated"),
    "header of 2^64 - 1": (struct.pack("<Q", 2**64 - 1) + b"{}", "bad-header"),
    "a Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "bad-header",
    ),
    "not JSON": (file_bytes(b"{'a': 1}"), "bad-header"),
    "not UTF-8": (file_bytes(b'{"\xff": 1}'), "bad-header"),
    "not an object": (file_bytes([GOOD]), "bad-header"),
    "a name twice": (
        file_bytes(b'{"a":%(e)s,"a":%(e)s}' % {b"e": json.dumps(GOOD).encode()}, bytes(4)),
        "duplicate-tensor",
    ),
    "a field twice": (
        file_bytes(b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}'),
        "bad-header",
    ),
    "half a surrogate pair": (
        file_bytes(b'{"\\ud800":%s}' % json.dumps(GOOD).encode(), bytes(4)),
        "bad-header",
    ),
    "an entry that is a list": (file_bytes({"a": [["dtype", "U8"]]}), "bad-header"),
    "dtype a number": (lone({**GOOD, "dtype": 1}), "bad-header"),
    "a boolean size": (lone(entry(0, 1, [True]), 1), "bad-header"),
    "a negative offset": (lone(entry(-4, 0, [4])), "bad-header"),
    "an offset of 2^63": (lone(entry(0, 2**63, [4])), "bad-header"),
    "three offsets": (lone({**GOOD, "data_offsets": [0, 4, 4]}), "bad-offsets"),
    "too many dimensions": (lone(entry(0, 1, [1] * 65), 1), "bad-offsets"),
    "2^62 squared elements": (lone(entry(0, 0, [2**62, 2**62]), 0), "bad-offsets"),
    "2^64 elements, none in the end": (lone(entry(0, 0, [0, 2**32, 2**32]), 0), "bad-offsets"),
    "a tensor of 2^40 bytes": (lone(entry(0, 2**40), 3), "truncated"),
    "a long name with a line break": (
        file_bytes({"\n" * 10_000: entry(0, 4, [5])}, bytes(4)),
        "bad-offsets",
    ),
}


READ_AMBIGUOUSLY = ("a name twice", "too many dimensions", "2^64 elements, none in the end")


@pytest.mark.parametrize("case", REFUSALS)
def test_a_damaged_file_is_refused_with_its_code_as_the_library_refuses_or_misreads_it(case):
    file, code = REFUSALS[case]

    assert code_of(file) == code
    assert library_accepts(file) == (case in READ_AMBIGUOUSLY)


def test_types_below_a_byte_and_unknown_ones_are_an_error_only_when_they_are_read():
    header = {"a": entry(0, 3, [4], "F6_E2M3"), "b": entry(3, 12, [1], "Z"), "c": entry(12, 13)}

    a, b, c = parse(file_bytes(header, bytes(13)))

    assert [ref.dtype for ref in (a, b, c)] == ["F6_E2M3", "Z", "U8"]
    assert decode(bytearray(1), c).item() == 0
    for ref in (a, b):
        with pytest.raises(ModelError, match=f"unsupported-dtype: f: .* is '{ref.dtype}'"):
            decode(bytearray(ref.stop - ref.start), ref)


def test_the_largest_header_is_taken_and_one_byte_more_and_a_cut_one_are_not():
    size = 2 * MAX_HEADER

    assert header_length(struct.pack("<Q", MAX_HEADER), file="f", file_size=size) == MAX_HEADER
    with pytest.raises(ModelError, match="bad-header"):
        header_length(struct.pack("<Q", MAX_HEADER + 1), file="f", file_size=size)
    with pytest.raises(ModelError, match="truncated"):
        parse(file_bytes({"a": GOOD}, bytes(4))[:20])


@st.composite
def nearly_valid_headers(draw):
    """A header that tiles its data, up to one changed number, and the data's size."""
    header, end = {}, 0
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        dtype, bits = draw(st.sampled_from([("U8", 8), ("F32", 32), ("F4", 4), ("C64", 64)]))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        start, end = end, end + math.prod(shape) * bits // 8
        header[name] = entry(start, end, shape, dtype)
    if header and draw(st.booleans()):
        changed = header[draw(st.sampled_from(sorted(header)))]
        numbers = changed[draw(st.sampled_from(["shape", "data_offsets"]))]
        if numbers:
            other = st.integers(-2, 9) | st.sampled_from([2**32, 2**64, 10**30, 1.0, None])
            numbers[draw(st.integers(0, len(numbers) - 1))] = draw(other)
    return header, end + draw(st.sampled_from([0, 0, 0, 1]))


@given(nearly_valid_headers())
def test_of_nearly_valid_headers_the_library_accepts_exactly_the_same(made):
    header, n_bytes = made
    file = file_bytes(header, bytes(n_bytes))
    accepted = code_of(file) is None
    event(f"accepted: {accepted}")

    assert accepted == library_accepts(file)


@given(st.integers(0, 10**6), st.sampled_from(list(b'0123456789{}[],:" "F\xff\0')))
def test_of_headers_with_one_byte_changed_nothing_unsafe_is_accepted(position, byte):
    file = bytearray(save({"a.weight": torch.ones(3, 4), "b": torch.ones(2, dtype=torch.bfloat16)}))
    position %= 8 + int.from_bytes(file[:8], "little")
    file[position] = byte

    if code_of(bytes(file)) is None:
        refs = parse(bytes(file))
        ends = [8 + int.from_bytes(file[:8], "little"), *(ref.stop for ref in refs)]
        assert [ref.start for ref in refs] == ends[:-1]
        assert ends[-1] == len(file)
        known = [ref for ref in refs if ref.dtype in DTYPES]
        assert all(math.prod(r.shape) * DTYPES[r.dtype].itemsize == r.stop - r.start for r in known)
    else:
        assert not library_accepts(bytes(file))
