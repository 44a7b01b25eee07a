"""Experts that are stacked in one tensor: read one at a time, and equal to what is on disk."""

import pytest
import torch
from factories import make_checkpoint

from deltadex.indexer.base import Base, place_checkpoint, stream_matrices
from deltadex.indexer.checkpoint import open_local
from deltadex.indexer.family import Wanted, find_member, member_of
from deltadex.indexer.fingerprint import make_recipe
from deltadex.indexer.hub import HubWeights, describe
from deltadex.indexer.job import Job
from deltadex.indexer.run import fingerprint_member
from deltadex.records import Indexed

CONFIG = {
    "model_type": "mixtral",
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 3,
}


def tensors(seed):
    """Two layers as transformers 5 holds them; from seed 1 on a fine-tune of seed 0."""
    shapes = {
        "self_attn.q_proj.weight": (24, 24),
        "self_attn.k_proj.weight": (12, 24),
        "self_attn.v_proj.weight": (12, 24),
        "self_attn.o_proj.weight": (24, 24),
        "mlp.gate.weight": (3, 24),
        "mlp.experts.gate_up_proj": (3, 80, 24),
        "mlp.experts.down_proj": (3, 24, 40),
    }
    base, change = (torch.Generator().manual_seed(s) for s in (0, seed))
    made = {}
    for layer in range(2):
        for name, shape in shapes.items():
            weight = torch.randn(shape, generator=base)
            if seed:
                weight += 0.1 * torch.randn(shape, generator=change)
            made[f"model.layers.{layer}.{name}"] = weight
    return made


def fingerprint(base, member):
    job = Job(
        base=base,
        wanted=Wanted(names=("org/base",)),
        recipes=[make_recipe("sketch", 4, ())],
        layout=(),
        threads=2,
    )
    outcome = fingerprint_member(member, job)  # type: ignore[arg-type]
    assert isinstance(outcome, Indexed), outcome
    return outcome


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_experts_of_a_remote_model_are_read_one_at_a_time(hub, session, tmp_path, form):
    for name, seed in (("base", 0), ("tuned", 1)):
        folder = make_checkpoint(tmp_path / name, tensors(seed), config=CONFIG, form=form)
        hub.add(f"org/{name}", {p.name: p.read_bytes() for p in folder.iterdir()})
    model = describe("org/tuned", session=session)
    checkpoint = HubWeights(model, session=session).open()
    placed = place_checkpoint(checkpoint, CONFIG)
    whole = open_local(tmp_path / "tuned")

    for placements, matrix in stream_matrices(checkpoint, placed):
        assert matrix.dim() == 2
        for placement in placements:
            expected = placement.cut(whole.read(placement.tensor))
            assert torch.equal(placement.cut_matrix(matrix), expected)

    base = Base(name="org/base", session=session)
    weights, local = base.weights(), Base(name="org/base", folder=tmp_path / "base").weights()
    for key in local.placed.by_key:
        with weights.matrix(key) as remote_matrix, local.matrix(key) as local_matrix:
            assert torch.equal(remote_matrix, local_matrix)
        assert torch.equal(weights.whole_matrix(key), local.whole_matrix(key))


def test_a_remote_mixture_of_experts_has_the_fingerprint_of_its_files(hub, session, tmp_path):
    for name, seed in (("base", 0), ("tuned", 1)):
        folder = make_checkpoint(tmp_path / name, tensors(seed), config=CONFIG)
        hub.add(f"org/{name}", {p.name: p.read_bytes() for p in folder.iterdir()})
    described = describe("org/tuned", session=session)
    local = fingerprint(
        Base(name="org/base", folder=tmp_path / "base"),
        find_member(str(tmp_path / "tuned"), "org/base"),
    )

    remote = fingerprint(
        Base(name="org/base", session=session),
        member_of(described, "org/base", claims=("org/base",)),
    )

    difference = remote.fingerprints[0].vector - local.fingerprints[0].vector
    assert abs(difference).max() < 1e-5
    assert remote.model.verified == "sha256"
    assert [slot.shape for slot in remote.slots] == [slot.shape for slot in local.slots]
