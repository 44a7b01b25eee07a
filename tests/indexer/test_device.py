import pytest
import torch

from deltadex.errors import RequestError
from deltadex.indexer import factorise
from deltadex.indexer.delta import DenseDelta, Scratch, update_against
from deltadex.indexer.job import choose_device


def test_auto_takes_the_processor_where_there_is_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert choose_device("auto") == "cpu"
    assert choose_device("cpu") == "cpu"


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert choose_device("auto") == "cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RequestError, match="'cuda' cannot be used here"):
        choose_device("cuda")


def test_a_name_that_is_no_device_is_refused():
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
