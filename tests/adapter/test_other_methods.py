"""LoHa and LoKr against PEFT's own merges."""

import pytest
import torch
from peft_adapters import in_memory

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.delta import dense

LAYER = "encoder.layer.0.attention.self.query"


def loha(rank):
    generator = torch.Generator().manual_seed(0)
    return {
        f"h.0.q.hada_w{i}_{side}": torch.randn(shape, generator=generator)
        for i in (1, 2)
        for side, shape in (("a", (9, rank)), ("b", (rank, 8)))
    }


def vera(*, shared_rank=3, out=5):
    return {
        "base_model.vera_A": torch.ones(3, 4),
        "base_model.vera_B": torch.ones(5, shared_rank),
        "h.0.q.vera_lambda_b": torch.ones(out),
        "h.0.q.vera_lambda_d": torch.ones(3),
    }


HALF_LOHA = {name: tensor for name, tensor in loha(2).items() if name != "h.0.q.hada_w2_b"}
FIRST, SECOND = {"h.0.q.lokr_w1": torch.ones(2, 3)}, torch.ones(4, 5)


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (HALF_LOHA, {}, "missing-tensor: "),
        (HALF_LOHA | {"h.0.q.hada_w2_b": torch.ones(3, 8)}, {}, "shape-mismatch: "),
        (loha(2) | {"h.0.q.hada_w2_a": torch.ones(9, 2).byte()}, {}, "unsupported-dtype: "),
        (FIRST | {"h.0.q.lokr_w2_a": SECOND}, {"r": 1}, "missing-tensor: .*lokr_w2_b"),
        (FIRST | {"h.0.q.lokr_w2": SECOND}, {"r": 0}, "bad-config: "),
        ({"h.0.k.ia3_l": torch.ones(2, 3)}, {}, "shape-mismatch: "),
        (vera(shared_rank=2), {}, "shape-mismatch: "),
        (vera(out=6), {}, "shape-mismatch: "),
    ],
)
def test_tensors_that_do_not_fit_together_are_refused(tensors, config, said):
    with pytest.raises(ModelError, match=f"^{said}"):
        read_adapter(in_memory(tensors), {"alpha": 1, **config})


@pytest.mark.parametrize(
    ("config", "scale"), [({"alpha": 6, "r": 2}, 3.0), ({"alpha": 6}, 1.0), ({"r": 2}, 1.0)]
)
def test_a_whole_lokr_takes_its_rank_from_the_config(config, scale):
    tensors = {"h.0.q.lokr_w1": torch.ones(2, 3), "h.0.q.lokr_w2": torch.full((4, 5), 2.0)}

    delta = read_adapter(in_memory(tensors), config).delta("h.0.q", None)

    assert dense(delta).tolist() == torch.full((8, 15), 2.0 * scale).tolist()


def test_a_lokr_of_too_many_elements_is_refused_by_its_shapes():
    shape = 1 << 14, 2

    def modules(n_more):
        second = shape[0] + n_more, shape[1]
        sides = [torch.ones(1, 1).expand(side) for side in (shape, second)]  # takes no memory
        names = (f"{LAYER}.lokr_w1", f"{LAYER}.lokr_w2")
        tensors = dict(zip(names, sides, strict=True))
        return read_adapter(in_memory(tensors), {"alpha": 1, "r": 1}).modules

    assert modules(0) == {LAYER: (shape[0] ** 2, shape[1] ** 2)}
    with pytest.raises(ModelError, match=r"^shape-mismatch: .*more than 1073741824 elements"):
        modules(1)


def test_lycoris_own_alpha_counts_where_the_config_has_none():
    tensors = {**loha(2), "h.0.q.alpha": torch.tensor(8.0)}

    own = read_adapter(in_memory(tensors), None)
    stated = read_adapter(in_memory(tensors), {"alpha": 2})

    torch.testing.assert_close(
        dense(own.delta("h.0.q", None)), 4 * dense(stated.delta("h.0.q", None))
    )


def test_vera_narrower_than_the_base_is_refused():
    adapter = read_adapter(in_memory(vera()), None)

    with pytest.raises(ModelError, match=r"^shape-mismatch: "):
        adapter.delta("h.0.q", torch.ones(5, 6))
