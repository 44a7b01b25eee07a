"""Updates: their forms, norms and spectra on any device, and whether they descend from a base."""

import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from deltadex.errors import ModelError, RequestError
from deltadex.indexer import delta, factorise, update_spectra, weight_spectra
from deltadex.indexer.delta import RELATIVE_ROUNDING, DenseDelta, Scratch, update_against
from deltadex.indexer.job import choose_device
from deltadex.indexer.updates import FIRST_LOOK, MIN_COSINE, BaseGate

TYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("shape", [(1, 1), (7, 30), (40, 24), (3, 200)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("base_type", TYPES)
@pytest.mark.parametrize("child_type", TYPES)
def test_blocks_of_rows_give_the_update_of_the_whole(
    monkeypatch, shape, transposed, base_type, child_type
):
    """Blocks of two rows or of one, a shorter one at the end."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator)
    step = 0.1 * torch.randn(shape, generator=generator)
    base, child = weight.to(base_type), (weight + step).to(child_type)
    if transposed:
        base, child = base.T.contiguous().T, child.T.contiguous().T
    candidates = [child.float() - base.float()]
    if child_type.itemsize < base_type.itemsize:
        candidates.append(child.float() - base.to(child_type).float())

    monkeypatch.setattr(delta, "WIDE_BLOCK", 60)
    update = update_against(child, base, Scratch())

    nearest = min(candidates, key=lambda matrix: float(matrix.norm()))
    assert torch.equal(update.matrix, nearest)
    assert update.norm == pytest.approx(float(nearest.norm()), rel=1e-6)


@pytest.mark.parametrize("stored", TYPES)
def test_rounding_is_as_large_as_the_norm_of_the_weights_foretells(stored):
    generator = torch.Generator().manual_seed(0)
    ratios = []
    for eighth in range(8):  # where in a binade the weights lie is chance
        weights = torch.randn(200, 200, generator=generator, dtype=torch.float64)
        weights *= 2.0 ** (eighth / 8 - 3)
        rounding = (weights.to(stored).double() - weights).norm()
        ratios.append(float(rounding) / (RELATIVE_ROUNDING[stored] * float(weights.norm())))

    # 0.735 is a mean over a binade: 3 % are for what it leaves out
    assert sum(ratios) / 8 == pytest.approx(1.0, rel=0.03)
    assert RELATIVE_ROUNDING[torch.float64] == 0.0


def test_auto_takes_a_gpu_where_there_is_one_and_what_is_no_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(RequestError, match="expected auto, cpu, or cuda"):
        choose_device("toaster")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_another_device_gives_the_same_update_and_factors(dtype, transposed):
    """`cpu:0` takes the path of other devices, on CPU tensors."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(40, 24, generator=generator)
    child = (base + 0.01 * torch.randn(40, 24, generator=generator)).to(dtype)
    if transposed:
        base, child = base.T, child.T

    here = update_against(child, base, Scratch())
    there = update_against(child, base, Scratch(), device="cpu:0")

    assert torch.equal(here.matrix, there.matrix)
    assert here.norm == pytest.approx(there.norm, rel=1e-6)
    ours = factorise(DenseDelta(here.matrix), 8, seed=0)
    theirs = factorise(there, 8, seed=0)
    assert torch.allclose(ours.sigma, theirs.sigma, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_factors_of_the_processor():
    matrix = torch.randn(300, 200, generator=torch.Generator().manual_seed(0))

    here = factorise(DenseDelta(matrix), 16, seed=0)
    there = factorise(DenseDelta(matrix.cuda()), 16, seed=0)

    assert torch.allclose(here.sigma, there.sigma.cpu(), rtol=1e-3)


def _add(gate, child, base):
    gate.add(float(child.norm()), float(base.norm()), float((child - base).norm()))


def _pairs(n, owed, seed=0):
    """Pairs of matrices of all scales that together have a cosine near `owed`."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(n):
        base = torch.randn(60, 50, generator=generator, dtype=torch.float64) * 2.0**number
        other = torch.randn(60, 50, generator=generator, dtype=torch.float64) * 2.0**number
        yield owed * base + math.sqrt(1 - owed**2) * other, base


@given(st.integers(1, FIRST_LOOK - 1), st.floats(-1, 1), st.integers(0, 99), st.floats(-6, 6))
def test_cosine_and_ratio_are_those_of_all_matrices_as_one_vector(n, owed, seed, exponent):
    gate = BaseGate("base")
    pairs = [(child * 10**exponent, base) for child, base in _pairs(n, owed, seed)]
    for child, base in pairs:
        _add(gate, child, base)

    child, base = (torch.cat([pair[side].flatten() for pair in pairs]) for side in (0, 1))
    assert gate.matrices == n
    # a difference of squares: rounding is magnified by |child| / |base| or its inverse
    tolerance = 1e-9 * 10 ** abs(exponent)
    assert gate.cosine == pytest.approx(
        float(torch.cosine_similarity(child, base, dim=0)), abs=tolerance
    )
    assert gate.ratio == pytest.approx(float((child - base).norm() / base.norm()))


@pytest.mark.parametrize("n", [1, FIRST_LOOK - 1, FIRST_LOOK, FIRST_LOOK + 1, 3 * FIRST_LOOK])
def test_a_model_that_owes_the_base_less_than_a_quarter_is_refused(n):
    def check_all(gate, owed):
        for child, base in _pairs(n, owed):
            _add(gate, child, base)
        gate.check()

    far = BaseGate("the-base")
    check_all(BaseGate("the-base"), MIN_COSINE + 0.05)

    with pytest.raises(ModelError) as caught:
        check_all(far, MIN_COSINE - 0.05)

    assert caught.value.code == "wrong-base"
    assert far.matrices == min(n, FIRST_LOOK)
    assert f"cosine {far.cosine:.2f} over {far.matrices} matri" in str(caught.value)
    assert f"|ΔW|/|W| = {far.ratio:.2f}" in str(caught.value)


@pytest.mark.parametrize("norms", [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0)])
def test_zeros_descend_from_nothing(norms):
    gate = BaseGate("base")
    gate.add(*norms)

    assert gate.cosine == 0.0
    assert (gate.ratio == math.inf) == (norms[1] == 0.0)
    with pytest.raises(ModelError, match=r"cosine 0\.00 over 1 matrix"):
        gate.check()


def _weights(folder):
    return load_file(folder / "model.safetensors")


QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(("spectra", "rtol"), [(update_spectra, 1e-5), (weight_spectra, 1e-6)])
def test_energies_are_the_squared_singular_values_of_the_update_or_the_weights(
    made_family, catalog, spectra, rtol
):
    base, child = made_family / "base", made_family / "models" / "a-0"

    found = spectra(catalog, str(child), str(base))

    (spectrum,) = [s for s in found if s.slot.layer == 0 and s.slot.role == "q"]
    matrix = _weights(child)[QUERY].double()
    if spectra is update_spectra:
        matrix -= _weights(base)[QUERY].double()
    expected = torch.linalg.svdvals(matrix).square().numpy()
    np.testing.assert_allclose(spectrum.energies, expected, rtol=rtol, atol=expected[0] * 1e-12)
    assert spectrum.known_rank is None


def test_shorter_storage_raises_the_expected_noise(made_family, catalog, tmp_path):
    child, short = made_family / "models" / "a-0", tmp_path / "short"
    shutil.copytree(child, short)
    tensors = {n: t.bfloat16() for n, t in _weights(child).items()}
    save_file(tensors, short / "model.safetensors", {"format": "pt"})

    full = update_spectra(catalog, str(child), str(made_family / "base"))
    rounded = update_spectra(catalog, str(short), str(made_family / "base"))

    for a, b in zip(full, rounded, strict=True):
        assert b.noise_energy > 1e3 * a.noise_energy


def test_an_unaltered_copy_has_no_energies_and_what_cannot_be_read_is_refused_by_name(
    made_family, catalog, tmp_path
):
    base = str(made_family / "base")
    (tmp_path / "empty").mkdir()

    assert all(s.energies.size == 0 for s in update_spectra(catalog, base, base))
    gone = (weight_spectra, "gone")
    for of, name in [(update_spectra, "empty"), (weight_spectra, "empty"), gone]:
        with pytest.raises(RequestError, match=name):
            of(catalog, str(tmp_path / name), base)


@pytest.mark.parametrize(
    ("value", "flaw"), [(float("nan"), "holds NaN or infinity"), (1e300, "overflows")]
)
def test_weights_that_are_not_finite_are_refused_by_tensor(
    made_family, catalog, tmp_path, value, flaw
):
    child, broken = made_family / "models" / "a-0", tmp_path / "broken"
    shutil.copytree(child, broken)
    tensors = _weights(broken)
    tensors[QUERY] = tensors[QUERY].double()
    tensors[QUERY][0, 0] = value
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})

    with pytest.raises(RequestError, match=f"non-finite: tensor '{QUERY}' {flaw}"):
        weight_spectra(catalog, str(broken), str(made_family / "base"))
