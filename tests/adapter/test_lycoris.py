"""LoHa and LoKr against PEFT's own merges."""

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft_adapters import (
    MemoryCheckpoint,
    assert_same_updates,
    dense,
    make_adapter,
    read_folder,
)

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.delta import DenseDelta, LowRankDelta

LAYER = "encoder.layer.0.attention.self.query"
TARGETS = ["q_proj", "down_proj"]


@pytest.mark.parametrize("rank", [2, 5])
def test_loha_equals_the_merged_weights(rank, tmp_path):
    config = peft.LoHaConfig(
        r=rank, alpha=3, target_modules=TARGETS, alpha_pattern={r"0\..*q_proj": 7}
    )
    merged = make_adapter("llama", config, tmp_path)

    adapter = read_folder(tmp_path)
    delta = adapter.delta("model.layers.0.self_attn.q_proj", None)

    assert adapter.method == "loha"
    assert isinstance(delta, LowRankDelta if rank == 2 else DenseDelta)
    assert_same_updates(adapter, merged)


@pytest.mark.parametrize(
    "settings",
    [
        {"r": 2},
        {"r": 2, "decompose_both": True, "decompose_factor": 8},
        {"r": 32},
        {"r": 2, "decompose_factor": 2},
        {"r": 32, "rank_pattern": {"q_proj": 64}, "alpha_pattern": {"down_proj": 1}},
    ],
)
def test_lokr_equals_the_merged_weights(settings, tmp_path):
    config = peft.LoKrConfig(alpha=3, target_modules=TARGETS, **settings)
    merged = make_adapter("llama", config, tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == "lokr"
    assert_same_updates(adapter, merged)


def loha(rank, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        f"h.0.q.hada_w{i}_{side}": torch.randn(shape, generator=generator)
        for i in (1, 2)
        for side, shape in (("a", (9, rank)), ("b", (rank, 8)))
    }


@given(seed=st.integers(0, 2**16), rank=st.integers(1, 4))
def test_either_form_of_loha_is_the_hadamard_product(seed, rank):
    tensors = loha(rank, seed)
    a1, b1, a2, b2 = tensors.values()

    adapter = read_adapter(MemoryCheckpoint(tensors), {"alpha": 2.0 * rank})

    torch.testing.assert_close(
        dense(adapter.delta("h.0.q", None)), 2 * (a1 @ b1) * (a2 @ b2), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("drop", "change", "code"),
    [
        ("h.0.q.hada_w2_b", {}, "missing-tensor"),
        ("", {"h.0.q.hada_w2_b": torch.ones(3, 8)}, "shape-mismatch"),
        ("", {"h.0.q.hada_w2_a": torch.ones(7, 2)}, "shape-mismatch"),
        ("", {"h.0.q.hada_w2_a": torch.ones(9, 2, dtype=torch.uint8)}, "unsupported-dtype"),
    ],
)
def test_a_loha_that_does_not_fit_together_is_refused(drop, change, code):
    tensors = {**loha(2), **change}
    tensors.pop(drop, None)

    with pytest.raises(ModelError, match=f"^{code}: "):
        read_adapter(MemoryCheckpoint(tensors), {"alpha": 1})


def test_half_a_lokr_is_a_missing_tensor():
    tensors = {"h.0.q.lokr_w1": torch.ones(2, 2), "h.0.q.lokr_w2_a": torch.ones(3, 1)}

    with pytest.raises(ModelError, match=r"^missing-tensor: .*lokr_w2_b"):
        read_adapter(MemoryCheckpoint(tensors), {"alpha": 1, "r": 1})


@pytest.mark.parametrize(
    ("config", "scale"), [({"alpha": 6, "r": 2}, 3.0), ({"alpha": 6}, 1.0), ({"r": 2}, 1.0)]
)
def test_a_whole_lokr_takes_its_rank_from_the_config(config, scale):
    tensors = {"h.0.q.lokr_w1": torch.ones(2, 3), "h.0.q.lokr_w2": torch.full((4, 5), 2.0)}

    delta = read_adapter(MemoryCheckpoint(tensors), config).delta("h.0.q", None)

    assert dense(delta).tolist() == torch.full((8, 15), 2.0 * scale).tolist()


def test_a_whole_lokr_with_rank_zero_is_a_bad_config():
    tensors = {"h.0.q.lokr_w1": torch.ones(2, 3), "h.0.q.lokr_w2": torch.ones(4, 5)}

    with pytest.raises(ModelError, match=r"^bad-config: "):
        read_adapter(MemoryCheckpoint(tensors), {"alpha": 6, "r": 0})


@pytest.mark.parametrize("wider", [(0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(1 << 14, 2), (2, 1 << 14)])
def test_a_lokr_of_too_many_elements_is_refused_by_its_shapes(shape, wider):
    def modules(n_more):
        second = (shape[0] + n_more * wider[0], shape[1] + n_more * wider[1])
        sides = [torch.ones(1, 1).expand(side) for side in (shape, second)]  # takes no memory
        names = (f"{LAYER}.lokr_w1", f"{LAYER}.lokr_w2")
        tensors = dict(zip(names, sides, strict=True))
        return read_adapter(MemoryCheckpoint(tensors), {"alpha": 1, "r": 1}).modules

    assert modules(0) == {LAYER: (shape[0] ** 2, shape[1] ** 2)}
    with pytest.raises(ModelError, match=r"^shape-mismatch: .*more than 1073741824 elements"):
        modules(1)


def test_lycoris_own_alpha_counts_where_the_config_has_none():
    tensors = {**loha(2), "h.0.q.alpha": torch.tensor(8.0)}

    own = read_adapter(MemoryCheckpoint(tensors), None)
    stated = read_adapter(MemoryCheckpoint(tensors), {"alpha": 2})

    torch.testing.assert_close(
        dense(own.delta("h.0.q", None)), 4 * dense(stated.delta("h.0.q", None))
    )
