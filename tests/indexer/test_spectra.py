"""Spectra of updates against torch's own singular values."""

import shutil

import numpy as np
import pytest
import torch
from factories import make_family
from safetensors.torch import load_file, save_file

from deltadex.errors import RequestError
from deltadex.indexer import update_spectra, weight_spectra
from deltadex.store import Catalog


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("family")
    make_family(made)
    return made


@pytest.fixture
def catalog(tmp_path):
    with Catalog.open(tmp_path / "c.duckdb") as opened:
        yield opened


def _weights(folder):
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def _query(tensors, layer):
    (name,) = [
        n for n in tensors if f".{layer}." in n and n.endswith(("query.weight", "q_proj.weight"))
    ]
    return tensors[name].double()


def test_energies_are_the_squared_singular_values_of_the_update(folder, catalog):
    base, child = folder / "base", folder / "models" / "a-0"

    _, spectra = update_spectra(catalog, str(child), str(base))

    (spectrum,) = [s for s in spectra if s.slot.layer == 0 and s.slot.role == "q"]
    delta = _query(_weights(child), 0) - _query(_weights(base), 0)
    expected = torch.linalg.svdvals(delta).square().numpy()
    np.testing.assert_allclose(spectrum.energies, expected, rtol=1e-5, atol=expected[0] * 1e-12)
    assert spectrum.known_rank is None


def test_spectra_of_the_weights_themselves(folder, catalog):
    child = folder / "models" / "a-0"

    _, spectra = weight_spectra(catalog, str(child), str(folder / "base"))

    (spectrum,) = [s for s in spectra if s.slot.layer == 0 and s.slot.role == "q"]
    expected = torch.linalg.svdvals(_query(_weights(child), 0)).square().numpy()
    np.testing.assert_allclose(spectrum.energies, expected, rtol=1e-6, atol=expected[0] * 1e-12)


def test_shorter_storage_raises_the_expected_noise(folder, catalog, tmp_path):
    child, short = folder / "models" / "a-0", tmp_path / "short"
    short.mkdir()
    for file in child.iterdir():
        if file.suffix == ".safetensors":
            tensors = {n: t.bfloat16() for n, t in load_file(file).items()}
            save_file(tensors, short / file.name, {"format": "pt"})
        elif file.is_file():
            (short / file.name).write_bytes(file.read_bytes())

    _, full = update_spectra(catalog, str(child), str(folder / "base"))
    _, rounded = update_spectra(catalog, str(short), str(folder / "base"))

    for a, b in zip(full, rounded, strict=True):
        assert b.noise_energy > 1e3 * a.noise_energy


def test_an_unaltered_copy_has_no_energies(folder, catalog):
    base = folder / "base"

    _, spectra = update_spectra(catalog, str(base), str(base))

    assert all(s.energies.size == 0 for s in spectra)


def test_a_model_that_cannot_be_read_is_refused_by_name(folder, catalog, tmp_path):
    (tmp_path / "empty").mkdir()

    with pytest.raises(RequestError, match="empty"):
        update_spectra(catalog, str(tmp_path / "empty"), str(folder / "base"))


@pytest.mark.parametrize(
    ("value", "flaw"), [(float("nan"), "holds NaN or infinity"), (1e300, "overflows")]
)
def test_weights_that_are_not_finite_are_refused_by_tensor(folder, catalog, tmp_path, value, flaw):
    child, broken = folder / "models" / "a-0", tmp_path / "broken"
    shutil.copytree(child, broken)
    tensors = _weights(broken)
    (name,) = [n for n in tensors if ".0." in n and n.endswith("query.weight")]
    tensors[name] = tensors[name].double()
    tensors[name][0, 0] = value
    (file,) = broken.glob("*.safetensors")
    save_file(tensors, file, {"format": "pt"})

    with pytest.raises(RequestError, match=f"non-finite: tensor '{name}' {flaw}"):
        weight_spectra(catalog, str(broken), str(folder / "base"))
