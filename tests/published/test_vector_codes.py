import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import BadIndex
from deltadex.store.published.manifest import (
    BLOCK,
    decode_vectors,
    encode_vectors,
    form_for,
    vector_bytes,
)

DIMS = (1, 3, 16, 63, 64, 65, 200)


@st.composite
def unit_rows(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, dim = draw(st.integers(1, 4)), draw(st.sampled_from(DIMS))
    # some numbers are far larger than others
    rows = rng.normal(size=(n, dim)) * np.exp(draw(st.floats(0, 6)) * rng.normal(size=(n, dim)))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@given(rows=unit_rows())
def test_half_precision_numbers_come_back_within_the_stated_tolerance(rows):
    stored = encode_vectors(rows, "float16")
    numbers = stored.view("<f2").astype(np.float64)

    assert stored.shape == (len(rows), vector_bytes(rows.shape[1], "float16"))
    assert (np.abs(numbers - rows) <= 2.0**-11 * np.abs(rows) + 2.0**-25).all()
    assert np.abs(decode_vectors(stored, rows.shape[1], "float16") - numbers).max() <= 2.0**-10


@given(rows=unit_rows())
def test_eight_bits_come_back_within_the_stated_tolerance(rows):
    dim = rows.shape[1]
    stored = encode_vectors(rows, "int8")
    back = decode_vectors(stored, dim, "int8").astype(np.float64)

    assert stored.shape == (len(rows), vector_bytes(dim, "int8"))
    padded = np.zeros((len(rows), -(-dim // BLOCK) * BLOCK))
    padded[:, :dim] = np.abs(rows)
    largest = np.repeat(padded.reshape(len(rows), -1, BLOCK).max(axis=2), BLOCK, axis=1)[:, :dim]
    # decoding divides by the length, which is that of the original within the same error
    assert (np.abs(back - rows) <= largest / 250 + 2.0**-17 + 0.02 * np.abs(rows)).all()
    assert np.abs((back * rows).sum(axis=1) - 1).max() < 1e-3


def test_the_default_recipe_has_half_precision_and_version_two_has_eight_bits():
    assert [(form_for(dim), vector_bytes(dim, form_for(dim))) for dim in (2048, 4096)] == [
        ("float16", 4096),
        ("int8", 4224),
    ]


@pytest.mark.parametrize("form", ["float16", "int8"])
@pytest.mark.parametrize("bad", ["zero", "nan", "large"])
def test_a_stored_vector_that_is_none_is_refused(form, bad):
    stored = encode_vectors(np.eye(2, 64, dtype=np.float32), form)
    number = {"zero": 0.0, "nan": np.nan, "large": np.inf}[bad]
    stored[0, :2] = np.array([number], "<f2").view(np.uint8)

    with pytest.raises(BadIndex, match="1 vectors are not finite"):
        decode_vectors(stored, 64, form)
