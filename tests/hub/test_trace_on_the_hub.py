"""Of a model on the Hub `trace` reads little, and answers as for its folder."""

import pytest
import torch
from factories import files_of, finetune, in_order, make_checkpoint
from fault_family import impatient_session
from hub_standin import StandInHub

import deltadex as dx
from deltadex.errors import UnknownModel
from deltadex.indexer.hub.session import Patience, default_session

LAYERS, WIDTH = 6, 256
SIDES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH // 4, WIDTH),
    "self_attn.v_proj": (WIDTH // 4, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (3 * WIDTH, WIDTH),
    "mlp.up_proj": (3 * WIDTH, WIDTH),
    "mlp.down_proj": (WIDTH, 3 * WIDTH),
}
CONFIG = {"model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": LAYERS}


def llama(seed):
    """A Llama of some 30 MB in bfloat16, of normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(LAYERS)
        for name, shape in SIDES.items()
    }
    shapes["model.embed_tokens.weight"] = (8000, WIDTH)
    return {
        name: (0.02 * torch.randn(shape, generator=generator)).bfloat16()
        for name, shape in shapes.items()
    }


def repository(folder, tensors, shards=1):
    """The files of a model, in so many shards."""
    return files_of(make_checkpoint(folder, tensors, shards=shards, config=CONFIG))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A base, a fine-tune in three shards, the base in another order of its first layers."""
    base = llama(0)
    tuned, moved = finetune(base, seed=5), in_order(base, (1, 0, *range(2, LAYERS)))
    cache = tmp_path_factory.mktemp("cache")
    with StandInHub() as hub, impatient_session(hub, cache):
        default_session().patience = Patience()  # several requests at once, on a busy machine
        hub.add("org/base", repository(cache / "base", base))
        hub.add("org/tuned", repository(cache / "tuned", tuned, 3), parents=["org/base"])
        hub.add("org/moved", repository(cache / "moved", moved), parents=["org/other"])
        hub.add("org/adapter", {"adapter_config.json": b"{}"}, parents=["org/base"])
        yield hub


@pytest.fixture(scope="module")
def db(hub):
    with dx.open() as opened:
        (row,) = opened.known_bases.add("org/base")
        assert row["bytes"] <= 2_000_000
        yield opened


@pytest.mark.parametrize(
    ("model", "verdict", "changes"),
    [
        ("org/tuned", "fine-tune", []),
        ("org/moved", "transformed", ["layers in another order"]),
        ("org/base", "copy", []),
    ],
)
def test_at_most_a_hundredth_is_read_whatever_the_answer(hub, db, model, verdict, changes):
    hub.log.clear()

    answer = db.trace(model).to_json()

    assert (answer["base"], answer["verdict"], answer["changes"]) == ("org/base", verdict, changes)
    served = sum(r.body_bytes for r in hub.log if r.path.endswith(".safetensors"))
    travelled = sum(request.body_bytes for request in hub.log if request.where == "cdn")
    assert answer["bytes_read"] >= max(served, travelled) - len(CONFIG) * 100
    assert answer["bytes_read"] <= min(1_000_000, 0.01 * answer["bytes_total"])


def test_what_needs_the_network_is_not_there_offline(db):
    with pytest.raises(UnknownModel, match="no model of the catalog and no folder"):
        db.trace("org/tuned", offline=True)


def test_an_adapter_without_weights_is_refused_and_a_missing_base_is_named(db):
    assert db.trace("org/adapter").to_json()["verdict"] == "unknown"
    added = db.known_bases.add("org/nobody").to_json()

    (failed,) = added["failed"]
    assert added["bases"] == []
    assert failed["base"] == "org/nobody"
    assert "not-found" in failed["reason"] or "private-or-missing" in failed["reason"]
